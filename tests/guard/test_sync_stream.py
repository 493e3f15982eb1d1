"""Streams and loops without an event loop: the same core, driven by `for`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from anthropic import Anthropic
from google import genai
from google.genai import types
from openai import OpenAI

import monitor
from monitor.chunks import TextDelta, ToolCall, TurnFinished
from monitor.errors import ConfigError, FinishReason
from monitor.sinks import MemorySink
from monitor.testing import (
    FakeClock,
    LocalAnthropic,
    LocalGemini,
    LocalOpenAI,
    anthropic_steps,
    gemini_steps,
    openai_steps,
)
from monitor.testing.scripted import ScriptedModel

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


class Source:
    """A stream that knows what happened to it."""

    def __init__(self, *items: Any) -> None:
        self._items = iter(items)
        self.read, self.closed = 0, False

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        self.read += 1
        if isinstance(item, BaseException):
            raise item
        return item() if callable(item) else item

    def close(self) -> None:
        self.closed = True


def consumed(watched: Any) -> list[Any]:
    return list(watched)


# --- the three SDKs


@contextmanager
def openai_stream(*script: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    with LocalOpenAI([list(script)]) as server, OpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client:
        yield server, lambda: client.chat.completions.create(model="m", messages=HELLO, stream=True)


@contextmanager
def anthropic_stream(*script: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    with (
        LocalAnthropic([list(script)]) as server,
        Anthropic(api_key="x", base_url=server.base_url, max_retries=0) as client,
    ):
        yield server, lambda: client.messages.create(model="claude-test", max_tokens=9, messages=HELLO, stream=True)


@contextmanager
def google_stream(*script: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    with LocalGemini([list(script)]) as server:
        client = genai.Client(api_key="x", http_options=types.HttpOptions(base_url=server.base_url))
        try:
            yield server, lambda: client.models.generate_content_stream(model="gemini-test", contents="hello")
        finally:
            client.close()


SDKS: dict[str, tuple[Callable[..., AbstractContextManager[Any]], list[Any], Any]] = {
    "openai": (
        openai_stream,
        [openai_steps.text("hel"), openai_steps.text("lo"), openai_steps.finish()],
        openai_steps.Repeat(openai_steps.text(SENTENCE), delay_s=0.001),
    ),
    "anthropic": (
        anthropic_stream,
        [anthropic_steps.start(), *anthropic_steps.say("hel", "lo"), *anthropic_steps.finish()],
        anthropic_steps.Repeat(anthropic_steps.text(SENTENCE), delay_s=0.001),
    ),
    "google": (
        google_stream,
        [gemini_steps.text("hel"), gemini_steps.text("lo"), gemini_steps.finish()],
        gemini_steps.Repeat(gemini_steps.text(SENTENCE), delay_s=0.001),
    ),
}
each_sdk = pytest.mark.parametrize("sdk", SDKS)


@each_sdk
def test_a_synchronous_stream_of_each_sdk_is_read_to_its_good_end(sdk: str):
    opened, good, _ = SDKS[sdk]
    with opened(*good) as (_server, ask), monitor.watch(ask()) as watched:
        items = consumed(watched)
    assert len(items) >= 2
    assert watched.turn.text == "hello"
    assert watched.outcome.reason is Reason.STREAM_ENDED


@each_sdk
def test_a_chant_is_cut_while_it_is_written_and_the_server_sees_the_client_leave(sdk: str):
    opened, good, chant = SDKS[sdk]
    begin = good[:2] if sdk == "anthropic" else []
    with opened(*begin, chant) as (server, ask):
        with monitor.watch(ask) as watched:  # a function that opens the stream
            for _ in watched:
                pass
        assert watched.outcome.reason is Reason.LOOP_DETECTED
        assert watched.outcome.closed
        assert server.wait_closed(0) is not None
    assert SENTENCE.strip() in watched.turn.text


@each_sdk
def test_leaving_early_closes_the_connection(sdk: str):
    opened, good, chant = SDKS[sdk]
    begin = good[:2] if sdk == "anthropic" else []
    with opened(*begin, chant) as (server, ask):
        with monitor.watch(ask()) as watched:
            for _ in watched:
                break
        assert server.wait_closed(0) is not None
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER


@each_sdk
def test_a_refused_request_is_classed_and_not_raised(sdk: str):
    opened, _, _ = SDKS[sdk]
    steps: Any = {"openai": openai_steps, "anthropic": anthropic_steps, "google": gemini_steps}[sdk]
    with opened(steps.rate_limited()) as (_server, ask), monitor.watch(ask) as watched:
        assert consumed(watched) == []
    assert watched.outcome.reason is Reason.RATE_LIMITED
    assert watched.turn.model_error is not None


# --- one stream


def test_the_callers_objects_come_unchanged_and_in_order():
    items = [TextDelta("a"), TextDelta("b"), TurnFinished(FinishReason.DONE)]
    with monitor.watch(Source(*items)) as watched:
        assert consumed(watched) == items


def test_a_deadline_is_checked_between_two_objects_and_a_late_one_is_not_delivered():
    clock = FakeClock()

    def late() -> TextDelta:
        clock.advance(11)
        return TextDelta("late")

    source = Source(TextDelta("a"), late, TextDelta("never"))
    with monitor.watch(source, stop_when=monitor.Timeout(10), clock=clock) as watched:
        assert consumed(watched) == [TextDelta("a")]
    assert watched.outcome.reason is Reason.TIMEOUT
    assert source.closed
    assert source.read == 2


def test_an_abort_from_another_thread_ends_the_run_at_the_next_object():
    source = Source(*[TextDelta(f"word {n} ") for n in range(100)])
    with monitor.watch(source) as watched:
        for number, _ in enumerate(watched):
            if number == 3:
                other = threading.Thread(target=watched.abort)
                other.start()
                other.join()
    assert watched.outcome.reason is Reason.ABORTED
    assert source.closed
    assert source.read <= 5


def test_an_exception_of_the_body_closes_the_source_and_is_raised():
    source = Source(TextDelta("a"), TextDelta("b"))
    watch = monitor.watch(source)
    with pytest.raises(KeyError), watch as watched:
        raise KeyError(next(watched))
    assert source.closed
    assert watched.outcome.reason is Reason.ERROR
    assert isinstance(watched.outcome.error, KeyError)


def test_an_interrupt_of_the_program_closes_the_source_and_is_raised():
    source = Source(TextDelta("a"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), monitor.watch(source) as watched:
        consumed(watched)
    assert source.closed
    assert watched.outcome.reason is Reason.CANCELLED


def test_a_source_without_close_is_reported_as_left_open():
    class Bare:
        def __iter__(self) -> Bare:
            return self

        def __next__(self) -> TextDelta:
            return TextDelta(SENTENCE)

    with monitor.watch(Bare()) as watched:
        consumed(watched)
    assert watched.outcome.reason is Reason.LOOP_DETECTED
    assert not watched.outcome.closed


@pytest.mark.parametrize("wrong", [7, object(), [1, 2]])
def test_what_is_no_stream_is_refused(wrong: Any):
    with pytest.raises(ConfigError), monitor.watch(wrong) as watched:
        consumed(watched)


def test_an_asynchronous_stream_is_refused_in_a_plain_with():
    async def stream() -> Any:
        yield "a"

    with pytest.raises(ConfigError, match="async with"), monitor.watch(stream()) as watched:
        consumed(watched)


def test_a_turn_is_unknown_while_the_stream_runs():
    with monitor.watch(Source("a", "b")) as watched:
        next(watched)
        with pytest.raises(ConfigError, match="when the stream is over"):
            _ = watched.turn


# --- a loop


def test_a_guard_sees_a_loop_of_calls_over_several_synchronous_streams():
    memory, turns = MemorySink(), 0
    with monitor.Guard(sinks=[memory], stop_when=monitor.MaxTurns(50)) as guard:
        for number in range(60):
            with guard.watch(Source(ToolCall(f"c{number}", "look", {"at": 1}), TurnFinished(FinishReason.DONE))) as one:
                consumed(one)
            turns += 1
            for call in one.turn.tool_calls:
                guard.tool_result(call, "nothing")
            if isinstance(guard.check(), monitor.Stop):
                break
    assert guard.outcome.reason is Reason.LOOP_DETECTED
    assert turns < 20
    assert [type(event).__name__ for event in memory.events].count("RunTerminated") == 1


def test_a_guard_in_a_plain_loop_reaches_its_goal():
    with monitor.Guard() as guard:
        with guard.watch(Source("the answer")) as watched:
            consumed(watched)
        assert not isinstance(guard.check(), monitor.Stop)
        guard.finish()
    assert guard.outcome.ok
    assert guard.outcome.text == "the answer"


def test_a_failed_stream_is_tried_again_as_the_same_turn():
    with monitor.Guard() as guard:
        with guard.watch(Source("half", ConnectionError("gone"))) as watched:
            consumed(watched)
        assert watched.turn.stopped is not None
        with guard.watch(Source("whole")) as watched:
            consumed(watched)
        guard.finish()
    assert guard.outcome.ok
    assert guard.outcome.turns == 1


def test_a_judge_needs_an_event_loop():
    judge = monitor.LoopJudge(ScriptedModel("{}"))
    with pytest.raises(ConfigError, match="async with"), monitor.Guard(judge=judge, task="t"):
        pass


def test_a_stream_beside_another_is_that_of_another_agent_of_the_run():
    with monitor.Guard() as guard, guard.watch(Source("a")) as one:
        with guard.watch(Source("b")) as two:
            assert list(two) == ["b"]
        assert list(one) == ["a"]
    assert (one.turn.text, two.turn.text) == ("a", "b")
    assert guard.outcome.turns == 2


# --- what the caller's own loop needs


CALL = ToolCall("c1", "look", {"at": 1})


def test_the_message_of_a_turn_goes_into_the_callers_history():
    with monitor.watch(Source(TextDelta("I look. "), CALL, TurnFinished(FinishReason.DONE))) as watched:
        consumed(watched)
    (message,) = watched.to_form("openai-chat")
    assert message["role"] == "assistant"
    assert message["content"] == "I look. "
    assert [made["id"] for made in message["tool_calls"]] == ["c1"]
    assert message["tool_calls"][0]["function"]["name"] == "look"


def test_a_loop_is_left_out_of_the_message():
    with monitor.watch(Source("First I think. ", *[SENTENCE] * 60)) as watched:
        consumed(watched)
    (message,) = watched.to_form("openai-chat")
    assert message["content"].startswith("First I think.")
    assert message["content"].count(SENTENCE) <= 1


def test_a_turn_without_words_and_calls_has_no_message():
    with monitor.watch(Source(TurnFinished(FinishReason.DONE))) as watched:
        consumed(watched)
    assert watched.to_form("openai-chat") == []


def test_a_form_that_needs_more_than_a_turn_keeps_is_refused():
    with monitor.watch(Source("a")) as watched:
        consumed(watched)
    forms: list[Any] = ["gemini", "anthropic", "openai-responses"]
    for form in forms:
        with pytest.raises(ConfigError, match="openai-chat"):
            watched.to_form(form)


def test_a_cut_text_makes_no_message():
    with monitor.watch(Source("a long text"), keep_text_chars=3) as watched:
        consumed(watched)
    with pytest.raises(ConfigError, match="keep_text_chars"):
        watched.to_form("openai-chat")


@each_sdk
def test_with_reraise_the_sdks_own_exception_reaches_the_callers_except(sdk: str):
    opened, _, _ = SDKS[sdk]
    steps: Any = {"openai": openai_steps, "anthropic": anthropic_steps, "google": gemini_steps}[sdk]
    with opened(steps.rate_limited()) as (_server, ask):
        watch = monitor.watch(ask, reraise=True)
        with pytest.raises(Exception, match="429") as raised, watch as watched:
            consumed(watched)
    assert type(raised.value).__module__.split(".")[0] in {"openai", "anthropic", "google"}
    assert watched.outcome.reason is Reason.RATE_LIMITED


def test_with_reraise_an_exception_of_the_body_stays_the_one_that_is_raised():
    watch = monitor.watch(Source("a", ConnectionError("gone")), reraise=True)
    with pytest.raises(KeyError), watch as watched:
        raise KeyError(consumed(watched)[0])


@pytest.mark.anyio
async def test_reraise_holds_for_asynchronous_streams_too():
    async def stream() -> Any:
        yield "a"
        raise ConnectionError("gone")

    watch = monitor.watch(stream(), reraise=True)

    async def read() -> None:
        async with watch:
            async for _ in watch:
                pass

    with pytest.raises(ConnectionError, match="gone"):
        await read()
    assert not watch.outcome.ok


def test_a_supervised_run_needs_no_event_loop_of_the_caller():
    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    supervisor = monitor.Supervisor(ScriptedModel(CALL, "done"), tools=[look])
    outcome = supervisor.run_sync("go")
    assert outcome.ok
    assert outcome.text == "done"


@pytest.mark.anyio
async def test_run_sync_is_refused_inside_an_event_loop():
    with pytest.raises(ConfigError, match="await"):
        monitor.Supervisor(ScriptedModel("x")).run_sync("go")
