"""A model that loops in most runs is told once, and not as the trouble of each run."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.proxy import Proxy
from monitor.proxy.runs import MODELS_KEPT, ModelOutages
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, finish, text
from tests.proxy.asked import BEARER, TOKEN, ask, chat

CHANT = [Repeat(text("Let me check the file again. "), 400)]
GOOD = [text("It is "), text("done."), finish()]


@pytest.mark.anyio
@pytest.mark.parametrize(("chanting", "told"), [(29, 1), (10, 0)])
async def test_a_model_that_loops_in_most_runs_is_one_line_for_all(chanting: int, told: int):
    def script(request: Any) -> list[Any]:
        number = int(str(request.body["messages"][-1]["content"]).split()[-1])
        return CHANT if number * 7 % 30 < chanting else GOOD

    with LocalOpenAI(script) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), token=TOKEN)
        for number in range(30):
            await ask(proxy, "POST", "/v1/chat/completions", chat(f"Task {number}"))
        shown = (await ask(proxy, "GET", "/agent-monitor/runs", headers=BEARER)).json
        counted = (await ask(proxy, "GET", "/agent-monitor/metrics", headers=BEARER)).body.decode()
        await proxy.aclose()
    assert sum(run["state"] == "stopped" for run in shown["runs"]) == chanting
    assert [one["what"] for one in shown["outages"]] == ["model m"] * told
    assert f"agent_monitor_proxy_model_outages_total {told}\n" in counted


def test_an_outage_ends_when_the_model_answers_again_or_is_asked_no_more():
    outages = ModelOutages()
    for number in range(9):
        outages.looped("m", f"run-{number}", float(number))
    (one,) = outages.going_on(9.0)
    assert one.message == "model m failed in 9 runs within 7 s: loop: the model repeats itself"
    assert outages.going_on(200.0) == []
    for number in range(4):
        assert outages.going_on(10.0)
        outages.worked("m", f"good-{number}", 10.0)
    assert outages.going_on(10.0) == []


def test_the_models_that_are_kept_are_bounded():
    outages = ModelOutages()
    for number in range(3 * MODELS_KEPT):
        outages.looped(f"m{number}", "run", 1.0)
    assert len(outages._troubles) == MODELS_KEPT
