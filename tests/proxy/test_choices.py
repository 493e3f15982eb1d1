"""Several answers at once: each is watched, and all of them are paid."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.proxy.http_messages import answer
from monitor.shared import SQLiteBudgets
from monitor.testing import LocalGemini, LocalOpenAI
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


def candidate(words: str, index: int, **more: Any) -> dict[str, Any]:
    content = {"content": {"role": "model", "parts": [{"text": words}]}} if words else {}
    return {"candidates": [{**content, "index": index, **more}], "modelVersion": "m"}


def gemini_answers(bad: int) -> list[dict[str, Any]]:
    begun = [candidate(f"Answer {at}.", at) for at in range(3)]
    chant = [candidate(SENTENCE, bad) for _ in range(60)]
    return [*begun, *chant, *(candidate("", at, finishReason="STOP") for at in range(3))]


ASKS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"candidateCount": 3}}


@pytest.mark.parametrize("how", ["streamGenerateContent?alt=sse", "generateContent"])
@pytest.mark.parametrize("bad", [0, 1, 2])
async def test_a_loop_in_any_candidate_ends_all_of_them_well(bad: int, how: str) -> None:
    with LocalGemini([gemini_answers(bad)]) as server:
        proxy = Proxy(server.base_url)
        reply = await ask(proxy, "POST", f"/v1beta/models/m:{how}", ASKS)
        await proxy.aclose()
    lines = reply.body.decode().splitlines()
    parts = [json.loads(line[6:]) for line in lines if line.startswith("data: ")] if "sse" in how else reply.json
    said, ends = ["", "", ""], ["", "", ""]
    for part in parts if isinstance(parts, list) else [parts]:
        for one in part["candidates"]:
            said[one["index"]] += "".join(piece["text"] for piece in one.get("content", {}).get("parts", ()))
            ends[one["index"]] = one.get("finishReason") or ends[one["index"]]
    assert ends == ["MAX_TOKENS"] * 3
    assert all(text.startswith(f"Answer {at}.") for at, text in enumerate(said))
    assert all(text.count("agent-monitor stopped") == 1 for text in said)
    assert said[bad].count(SENTENCE) < 20


async def test_good_candidates_come_as_they_were_sent() -> None:
    script = [candidate(f"Answer {at}.", at, finishReason="STOP") for at in range(3)]
    with LocalGemini([script]) as server:
        proxy = Proxy(server.base_url)
        reply = await ask(proxy, "POST", "/v1beta/models/m:streamGenerateContent?alt=sse", ASKS)
        await proxy.aclose()
    assert reply.header("x-agent-monitor").startswith("watched")
    assert [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line] == script


@pytest.mark.parametrize("bad", [None, 0, 2])
@pytest.mark.parametrize("form", ["openai-chat", "gemini"])
async def test_each_choice_of_an_answer_in_one_piece_is_read(form: str, bad: int | None) -> None:
    said = [SENTENCE * 40 if at == bad else f"Answer {at}." for at in range(3)]
    if form == "gemini":
        parts = [candidate(words, at, finishReason="STOP")["candidates"][0] for at, words in enumerate(said)]
        path, request = "/v1beta/models/m:generateContent", ASKS
        body: dict[str, Any] = {"candidates": parts}
    else:
        messages = [{"role": "assistant", "content": words} for words in said]
        choices = [{"index": at, "message": one, "finish_reason": "stop"} for at, one in enumerate(messages)]
        path, request = CHAT, chat(n=3, stream=False)
        body = {"object": "chat.completion", "choices": choices}

    async def service(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 200, json.dumps(body).encode(), b"application/json")

    async with serving(service, lifespan="off") as address:
        proxy = Proxy(address)
        reply = await ask(proxy, "POST", path, request)
        (run,) = proxy.runs
        await proxy.aclose()
    assert reply.json == body
    assert reply.header("x-agent-monitor").startswith("watched" if bad is None else "stopped; loop_detected")
    assert run.unwatched == ""


async def test_a_choice_that_nobody_has_asked_for_is_watched_too() -> None:
    script = [piece("Well.", 0), *(piece(SENTENCE, 1) for _ in range(60)), end(0), end(1)]
    with LocalOpenAI([script]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"))
        reply = await ask(proxy, "POST", CHAT, chat())
        await proxy.aclose()
    assert reply.body.decode().count(SENTENCE) < 20
