"""Several answers at once: each is watched, and all of them are paid."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.shared import SQLiteBudgets
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import chunk, text, usage_only
from tests.proxy.asked import ask, chat
from tests.proxy.served import serving

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
SENTENCE = "I will now read the file again. "


def piece(words: str, index: int) -> dict[str, Any]:
    return {**text(words), "choices": [{"index": index, "delta": {"content": words}, "finish_reason": None}]}


def end(index: int) -> dict[str, Any]:
    return {**chunk(), "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}


def answers(*words: str) -> list[Any]:
    return [*(piece(said, at) for at, said in enumerate(words)), *(end(at) for at in range(len(words)))]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("bad", [0, 1, 2])
async def test_a_loop_in_any_choice_ends_all_of_them_well(bad: int, *, stream: bool) -> None:
    chant = [piece(SENTENCE, bad) for _ in range(60)]
    script = [*(piece(f"Answer {at}.", at) for at in range(3)), *chant, *(end(at) for at in range(3))]
    with LocalOpenAI([script]) as server:
        made = Proxy(server.base_url.removesuffix("/v1"))
        async with serving(made) as address, openai.AsyncOpenAI(api_key="sk-x", base_url=f"{address}/v1") as client:
            said, ends = ["", "", ""], ["", "", ""]
            request: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 3}
            if stream:
                async for part in await client.chat.completions.create(**request, stream=True):
                    for choice in part.choices:
                        said[choice.index] += choice.delta.content or ""
                        ends[choice.index] = choice.finish_reason or ends[choice.index]
            else:
                whole = await client.chat.completions.create(**request)
                said = [choice.message.content or "" for choice in whole.choices]
                ends = [choice.finish_reason for choice in whole.choices]
    assert ends == ["stop"] * 3
    assert all(one.startswith(f"Answer {at}.") and "agent-monitor stopped" in one for at, one in enumerate(said))
    assert said[bad].count(SENTENCE) < 20


@pytest.mark.parametrize("number", [2, 5])
async def test_good_choices_come_as_without_the_proxy(number: int) -> None:
    script = answers(*(f"Answer {at}. " * 3 for at in range(number)))
    with LocalOpenAI([script]) as server:
        async with serving(Proxy(server.base_url.removesuffix("/v1"))) as address:
            heard = []
            for base in (server.base_url, f"{address}/v1"):
                async with openai.AsyncOpenAI(api_key="sk-x", base_url=base) as client:
                    request: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": number}
                    heard.append([one async for one in await client.chat.completions.create(**request, stream=True)])
    assert heard[0] == heard[1]


@pytest.mark.parametrize(("reports", "spent"), [(True, 907), (False, 3 * 100)])
async def test_all_choices_are_paid(reports: bool, spent: int) -> None:
    words = ["".join(f"{at} {number:03} " for number in range(66)) for at in range(3)]
    script = answers(*words) + ([usage_only(7, output=900)] if reports else [])
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([script]) as server:
        keys = KeyNames({"alice": digest_of("sk-alice")})
        proxy = Proxy(server.base_url.removesuffix("/v1"), keys=keys, budget=store, key_tokens=100_000)
        reply = await ask(proxy, "POST", CHAT, chat(n=3), headers={"authorization": "Bearer sk-alice"})
        assert reply.header("x-agent-monitor").startswith("watched")
        await proxy.aclose()
    (state,) = await store.states("proxy/alice")
    await store.aclose()
    assert spent <= state.spent.tokens <= (spent if reports else spent * 2)


async def test_a_further_choice_ends_where_the_budget_does() -> None:
    store = SQLiteBudgets(":memory:")
    words = [piece(f"{number} is a number that nobody has said. ", 1) for number in range(2_000)]
    with LocalOpenAI([[piece("Well.", 0), *words, end(0), end(1)]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), budget=store, key_tokens=2_000, budget_wait_s=0)
        reply = await ask(proxy, "POST", CHAT, chat(n=2), headers={"authorization": "Bearer sk-alice"})
        assert "its budget of tokens is used up" in reply.body.decode()
        assert len(reply.body) < len(json.dumps(words)) / 2
        await proxy.aclose()
    await store.aclose()


@pytest.mark.parametrize("wrong", [0, -1, 129, "2", 1.5, True, [2]])
async def test_another_number_of_answers_cannot_be_judged(wrong: Any) -> None:
    with LocalOpenAI([answers("hello")]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), unwatched="refuse")
        reply = await ask(proxy, "POST", CHAT, chat(n=wrong))
        assert (reply.status, server.requests) == (400, [])
        await proxy.aclose()
