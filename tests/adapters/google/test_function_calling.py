"""Automatic function calling of google-genai, the SDK's default: several turns in one stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")

from google import genai
from google.genai import types

import monitor
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import Repeat, call, finish, text
from tests.adapters.google.sdk import sdk, sdk_warnings

pytestmark = [pytest.mark.asyncio, sdk_warnings]

MODEL = "gemini-test"
CHANT = "Let me check the file again. "


class Tool:
    """A Python function that the SDK calls."""

    def __init__(self, answer: Callable[[int], str]) -> None:
        self.times = 0
        self._answer = answer

    def config(self, **automatic: Any) -> types.GenerateContentConfig:
        def look(q: str) -> str:
            """Looks."""
            self.times += 1
            return self._answer(self.times)

        calling = types.AutomaticFunctionCallingConfig(**automatic) if automatic else None
        return types.GenerateContentConfig(tools=[look], automatic_function_calling=calling)


def looks(turn: int, *more: Any) -> list[Any]:
    id = f"r{turn}"
    return [text("I look. ", response_id=id), call("look", {"q": "a"}, response_id=id), *more, finish(response_id=id)]


def says(turn: int, *words: str) -> list[Any]:
    return [*[text(word, response_id=f"r{turn}") for word in words], finish(response_id=f"r{turn}")]


WAYS = ["models", "chat"]


async def opened(client: Any, way: str, config: types.GenerateContentConfig) -> Any:
    if way == "models":
        return await client.models.generate_content_stream(model=MODEL, contents="go", config=config)
    return await client.chats.create(model=MODEL, config=config).send_message_stream("go")


async def watched(
    server: LocalGemini, way: str, tool: Tool, guard: monitor.Guard, **automatic: Any
) -> monitor.outcome.Turn:
    async with sdk(server) as client:
        async with guard.watch(lambda: opened(client, way, tool.config(**automatic))) as stream:
            async for _ in stream:
                pass
        return stream.turn


@pytest.mark.parametrize("way", WAYS)
async def test_each_answer_is_a_turn_with_its_own_calls_and_usage(way: str):
    events = monitor.sinks.MemorySink()
    with LocalGemini([looks(1), looks(2), says(3, "It ", "rains")]) as server:
        async with monitor.Guard(sinks=[events]) as guard:
            turn = await watched(server, way, Tool(lambda n: f"seen {n}"), guard)
    assert turn.text == "It rains"
    assert turn.number == 3
    assert guard.outcome.ok
    assert guard.outcome.turns == len(server.requests) == 3
    ended = [one.turn for one in events.events if isinstance(one, monitor.events.TurnEnded)]
    assert [len(one.tool_calls) for one in ended] == [1, 1, 0]
    assert len({one.usage.total_tokens for one in ended}) >= 1
    assert guard.outcome.usage.total_tokens == sum(one.usage.total_tokens for one in ended)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("automatic", [{}, {"ignore_call_history": True}], ids=["history", "no_history"])
async def test_results_are_seen_whether_the_sdk_shows_them_or_not(way: str, automatic: dict[str, Any]):
    with LocalGemini([looks(1), looks(2), says(3, "It rains")]) as server:
        async with monitor.Guard(stop_when=monitor.MaxTurns(9)) as guard:
            await watched(server, way, Tool(lambda n: f"seen {n}"), guard, **automatic)
    covered = {one.what: one for one in guard.coverage()}
    assert covered["results"].detail == "2 of 2 calls have their result"


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_call_with_the_same_result_is_a_loop(way: str):
    with LocalGemini([looks(number) for number in range(1, 21)]) as server:
        async with monitor.Guard() as guard:
            await watched(server, way, Tool(lambda _: "nothing"), guard, maximum_remote_calls=30)
        assert len(server.requests) == 5
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("isolate", [False, True])
async def test_the_same_call_with_changing_results_is_none(way: str, isolate: bool):
    turns = [*[looks(number) for number in range(1, 8)], says(8, "It rains")]
    config = Tool(lambda n: f"{n} of 7 files").config(maximum_remote_calls=30)
    with LocalGemini(turns) as server:
        async with (
            sdk(server) as client,
            monitor.Guard() as guard,
            guard.watch(lambda: opened(client, way, config), isolate=isolate) as stream,
        ):
            async for _ in stream:
                pass
    assert guard.outcome.ok
    assert guard.outcome.turns == 8


async def test_turns_of_a_chat_are_told_apart_without_ids_of_their_responses_and_behind_a_generator():
    async def relayed(stream: Any) -> Any:
        async for one in stream:
            yield one

    answers = [[text("I look. "), call("look", {"q": "a"}), finish()], [text("It rains"), finish()]]
    with LocalGemini(answers) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            chat = await opened(client, "chat", Tool(lambda n: f"seen {n}").config())
            async with guard.watch(relayed(chat)) as stream:
                async for _ in stream:
                    pass
    assert stream.turn.text == "It rains"
    assert guard.outcome.turns == 2
    assert {one.what: one.detail for one in guard.coverage()}["results"] == "1 of 1 calls have their result"


@pytest.mark.parametrize("way", WAYS)
async def test_a_loop_of_text_in_a_later_turn_is_cut_and_the_service_closed(way: str):
    chant = [Repeat(text(CHANT, response_id="r2"), 5000, delay_s=0.001)]
    with LocalGemini([looks(1), chant]) as server:
        async with monitor.Guard() as guard:
            await watched(server, way, Tool(lambda n: f"seen {n}"), guard)
            await server.wait_closed_async(1)
        assert server.requests[1].events_sent < 500
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert guard.outcome.closed


@pytest.mark.parametrize("way", WAYS)
async def test_leaving_early_in_a_later_turn_closes_the_service(way: str):
    words = [Repeat(text("word ", response_id="r2"), 5000, delay_s=0.001)]
    with LocalGemini([looks(1), words]) as server:
        async with sdk(server) as client, monitor.Guard(detectors=None) as guard:
            config = Tool(lambda n: f"seen {n}").config()
            async with guard.watch(lambda: opened(client, way, config)) as stream:
                async for _ in stream:
                    if len(server.requests) == 2 and server.requests[1].events_sent > 5:
                        break
            await server.wait_closed_async(1)
    assert guard.outcome.closed


async def test_a_limit_on_turns_ends_the_run_before_the_next_request():
    tool = Tool(lambda n: f"seen {n}")
    with LocalGemini([looks(number) for number in range(1, 21)]) as server:
        async with monitor.Guard(stop_when=monitor.MaxTurns(3)) as guard:
            turn = await watched(server, "models", tool, guard, maximum_remote_calls=30)
        assert len(server.requests) == 3
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS
    assert guard.outcome.turns == 3
    assert turn.stopped is not None


async def test_a_limit_of_one_turn_ends_the_run_at_the_first_word_of_the_second():
    """That the SDK carries out calls by itself is only seen then."""
    with LocalGemini([looks(1), says(2, "It rains")]) as server:
        async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
            turn = await watched(server, "models", Tool(lambda n: f"seen {n}"), guard)
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS
    assert guard.outcome.turns == 1
    assert turn.stopped is not None


async def test_a_function_that_raises_gives_an_error():
    def fail(_: int) -> str:
        raise ValueError("no")

    with LocalGemini([looks(number) for number in range(1, 21)]) as server:
        async with monitor.Guard(stop_when=monitor.MaxConsecutiveErrors(2), detectors=None) as guard:
            await watched(server, "models", Tool(fail), guard, maximum_remote_calls=30)
    assert guard.outcome.reason is monitor.TerminateReason.CONSECUTIVE_ERRORS


async def test_two_calls_of_one_turn_have_their_results():
    both = looks(1, call("look", {"q": "b"}, response_id="r1"))
    with LocalGemini([both, says(2, "It rains")]) as server:
        async with monitor.Guard(stop_when=monitor.MaxTurns(5)) as guard:
            await watched(server, "models", Tool(lambda n: f"seen {n}"), guard)
    assert {one.what: one.detail for one in guard.coverage()}["results"] == "2 of 2 calls have their result"


async def test_the_most_remote_calls_end_the_stream_with_open_calls():
    with LocalGemini([looks(1), looks(2), says(3, "It rains")]) as server:
        async with monitor.Guard() as guard:
            turn = await watched(server, "models", Tool(lambda n: f"seen {n}"), guard, maximum_remote_calls=1)
    assert [one.name for one in turn.tool_calls] == ["look"]


async def test_a_synchronous_stream_has_turns_too() -> None:
    with LocalGemini([looks(1), says(2, "It ", "rains")]) as server:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=server.base_url))
        config = Tool(lambda n: f"seen {n}").config()
        with client, monitor.Guard() as guard:
            stream_of_sdk: Any = client.models.generate_content_stream(model=MODEL, contents="go", config=config)
            with guard.watch(stream_of_sdk) as stream:
                assert len(list(stream)) >= 4
    assert guard.outcome.turns == 2
    assert guard.outcome.text == "It rains"


async def test_results_that_the_caller_sends_in_a_chat_begin_no_turn_of_the_sdks() -> None:
    declared = types.Tool(function_declarations=[types.FunctionDeclaration(name="look")])
    config = types.GenerateContentConfig(tools=[declared])
    answer = types.Part.from_function_response(name="look", response={"result": "seen"})
    says_more = [call("look", {"q": "b"}), finish(), text("And more.")]
    with LocalGemini([[call("look", {"q": "a"}), finish()], says_more]) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            chat = client.chats.create(model=MODEL, config=config)
            turns = []
            for message in ("go", answer):
                async with guard.watch(await chat.send_message_stream(message)) as stream:
                    async for _ in stream:
                        pass
                turns.append(stream.turn)
                guard.tool_result(None, "seen")
    assert guard.outcome.turns == 2
    assert [turn.text for turn in turns] == ["", "And more."]
    assert [one.arguments for turn in turns for one in turn.tool_calls] == [{"q": "a"}, {"q": "b"}]
