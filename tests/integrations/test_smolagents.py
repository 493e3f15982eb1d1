"""smolagents: synchronous agents, and agents that another agent manages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("smolagents", reason="the framework is not installed: smolagents")

from smolagents import OpenAIModel
from smolagents.models import ChatMessageStreamDelta, Model

import monitor
from monitor.integrations.smolagents import GuardedModel, Stopped
from monitor.testing import LocalOpenAI
from tests.integrations.programs.smolagents import agent_of, model_of, run_sync
from tests.integrations.teams.service import Service, answered
from tests.integrations.wires import CHANT, OPENAI

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def final(text: str) -> list[Any]:
    return OPENAI.calls("final_answer", {"answer": text}, "call_final")


@pytest.mark.parametrize("stream", [False, True])
def test_a_chant_is_cut_and_the_server_sees_the_client_leave(stream: bool):
    guard = monitor.Guard()
    with LocalOpenAI([OPENAI.chants()]) as server:
        ending = run_sync(server.base_url, guard, str, stream=stream)
        server.wait_closed(0)
        assert len(server.requests) == 1
        assert server.requests[0].events_sent < 500
    assert ending.reason == "loop_detected"
    assert CHANT in ending.text
    assert guard.outcome.closed


def test_a_loop_of_equal_calls_with_equal_results_is_seen_over_the_turns():
    done: list[str] = []

    def look(q: str) -> str:
        done.append(q)
        return f"nothing about {q} was found in the archive"

    guard = monitor.Guard()
    with LocalOpenAI(OPENAI.looks(20)) as server:
        ending = run_sync(server.base_url, guard, look)
        assert len(server.requests) == 5
    assert ending.reason == "loop_detected"
    assert "gave the same result" in guard.outcome.detail
    assert len(done) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_good_run_gives_the_same_with_the_guard_as_without(stream: bool):
    seen: list[Any] = []
    guard = monitor.Guard(stop_when=monitor.MaxTurns(30))
    for one in (None, guard):
        numbers = itertools.count(1)
        turns = OPENAI.looks(6)[:6]
        with LocalOpenAI([*turns, final("It is done.")]) as server:
            model = model_of(server.base_url)
            tool: Any = __import__("tests.integrations.programs.smolagents", fromlist=["Look"]).Look(
                lambda q, numbers=numbers: f"{next(numbers)} of 6 files of {q} are copied"
            )
            with guard if one is not None else monitor.Guard():
                agent = agent_of(model if one is None else GuardedModel(model, one), [tool], stream_outputs=stream)
                result = agent.run("go", return_full_result=True)
            model.client.close()
            asked = [
                {name: body for name, body in request.body.items() if not name.startswith("stream")}
                for request in server.requests
            ]
            seen.append((result.output, result.state, result.token_usage.dict(), asked))
    assert seen[0] == seen[1]
    assert guard.outcome.turns == 7
    assert guard.outcome.usage.total_tokens == 7 * 10
    (results,) = [one for one in guard.coverage() if one.what == "results"]
    assert results.detail.startswith("6 of 7 calls have their result")  # the seventh is `final_answer`


def test_the_model_stays_of_its_class():
    model = OpenAIModel("local", api_base="http://127.0.0.1:9", api_key="none")
    with monitor.Guard() as guard:
        guarded = GuardedModel(model, guard)
    assert isinstance(guarded, OpenAIModel)
    assert type(guarded).__name__ == "OpenAIModel"
    assert guarded.model_id == "local"
    model.client.close()


@pytest.mark.parametrize("names", ["a", "ab"])
def test_managed_agents_give_the_same_with_the_guard_as_without(names: str):
    service = Service(OPENAI)
    seen: list[Any] = []
    guard = monitor.Guard()

    def script(request: Any) -> list[Any]:
        body = str(request.body["messages"])
        if "AGENT:boss" in body and "from " not in body:
            return service.calls(*[(name, {"task": f"task of {name}"}) for name in names])
        who = next((name for name in names if f"AGENT:{name}" in body), "boss")
        return final(f"from {who}")

    with LocalOpenAI(script) as server, guard:
        for one in (None, guard):
            before, model = len(server.requests), model_of(server.base_url)
            used: Any = model if one is None else GuardedModel(model, one)
            team = [agent_of(used, name=name, description=name, instructions=f"AGENT:{name}") for name in names]
            boss = agent_of(used, managed_agents=team, instructions="AGENT:boss")
            boss.max_tool_threads = 2
            result = boss.run("go", return_full_result=True)
            model.client.close()
            asked = sorted(str(request.body["messages"]) for request in server.requests[before:])
            seen.append((result.output, result.state, result.token_usage.dict(), asked))
    assert seen[0] == seen[1]
    assert len(seen[0][3]) == 2 + len(names)
    assert guard.outcome.ok


def test_a_loop_of_one_managed_agent_ends_all_of_them_and_no_request_follows():
    service = Service(OPENAI)
    both = service.calls(("a", {"task": "1"}), ("b", {"task": "2"}))
    service.first = {"boss": both, "a": service.chants(), "b": service.slow()}
    guard = monitor.Guard()
    with LocalOpenAI(service) as server, guard:
        model = model_of(server.base_url)
        a, b = (
            agent_of(GuardedModel(model, guard), name=name, description=name, instructions=f"AGENT:{name}")
            for name in "ab"
        )
        boss = agent_of(GuardedModel(model, guard), managed_agents=[a, b], instructions="AGENT:boss")
        boss.max_tool_threads = 2
        with pytest.raises(Exception, match="loop_detected"):
            boss.run("go")
        own = [number for number, one in enumerate(server.requests) if one.events_sent > 5]
        for number in own:
            server.wait_closed(number)
        assert len(server.requests) <= 3
        model.client.close()
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert not answered(server.requests[-1].body)


def test_an_item_that_is_no_delta_is_given_on_and_the_run_says_what_it_was():
    class Odd(Model):
        def generate_stream(self, *_: Any, **__: Any) -> Any:
            yield from (ChatMessageStreamDelta(content="It is "), None, ChatMessageStreamDelta(content="done."))

    given: list[Any] = []
    with monitor.Guard() as guard, pytest.raises(Stopped, match="NoneType"):
        given += (None if one is None else one.content for one in GuardedModel(Odd(), guard).generate_stream([]))
    assert guard.outcome.reason is monitor.TerminateReason.INVALID_STREAM
