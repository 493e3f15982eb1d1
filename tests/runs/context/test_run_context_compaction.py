"""A run that is kept inside its model's window: when, by what, what the model is then shown, and
how the run ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.adapters.parts import ChunkAdapter
from monitor.context.compaction.hooks import CompactionAsked
from monitor.context.compaction.templates import CHECKPOINT
from monitor.context.reduce import Messages, PruneResults, Reducer
from monitor.errors import CompactionFailure, CompactionReason
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import ErrorKind, ModelError, ModelRequest
from monitor.testing import FakeClock, Pause, ScriptedModel, Stall, call
from monitor.testing.scripted import Do
from tests.runs.driving import Drive, Reason

pytestmark = pytest.mark.anyio

Report = monitor.chunks.UsageReport
Failure = CompactionFailure

SUMMARY = CHECKPOINT.skeleton({"Goal": "Read all of it.", "Next Steps": "Read the rest."})
WINDOW = 100_000
"""85,000 may be used; from 92,500 on the run waits. A result is cut above 30,000."""
EVENTS = (
    monitor.events.ContextNearlyFull,
    monitor.events.ContextFull,
    monitor.events.CompactionStarted,
    monitor.events.CompactionFinished,
    monitor.events.CompactionSkipped,
    monitor.events.CompactionFailed,
    monitor.events.StopDecided,
    monitor.events.RunTerminated,
)


class Counting:
    """A reducer that says how often it was asked."""

    def __init__(self, reducer: Reducer) -> None:
        self.name = reducer.name
        self.looks = 0
        self._reducer = reducer

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        self.looks += 1
        return self._reducer.reduce(messages, head=head)


def read(n: int) -> str:
    """Read something of n tokens."""
    return "word" * n


def reads(*sizes: int) -> list[monitor.chunks.ToolCall]:
    return [call("read", n=size) for size in sizes]


class TooLong(RuntimeError):
    """The provider refuses the request."""


PROMPT_TOO_LONG = "prompt is too long: 120000 tokens > 100000 maximum"


class Refusing(ChunkAdapter):
    def classify(self, error: BaseException) -> ModelError:
        if isinstance(error, TooLong):
            return ModelError(ErrorKind.OVERFLOW, str(error), status=400)
        if isinstance(error, ConnectionError):
            return ModelError(ErrorKind.NETWORK, str(error))
        return super().classify(error)


class Agent(ScriptedModel):
    """Answers its own requests in order, and each request for a summary, which has no tools, with
    the next of `summaries`.
    """

    adapter: type[Refusing] = Refusing

    def __init__(self, *answers: Any, summaries: Any = SUMMARY) -> None:
        super().__init__(self._answer)
        self.summaries: list[ModelRequest] = []
        self.work: list[ModelRequest] = []
        self._script = list(answers)
        self._summaries = summaries if isinstance(summaries, list) else [summaries] * 100

    def _answer(self, request: ModelRequest) -> Any:
        if request.tools:
            self.work.append(request)
            answer = self._script[len(self.work) - 1]
        else:
            self.summaries.append(request)
            answer = self._summaries[len(self.summaries) - 1]
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer


def driven(*answers: Any, summaries: Any = SUMMARY, compaction: Any = ..., **options: Any) -> Drive:
    """A run of an `Agent` with the tool `read` in a window of 100,000; by default nothing is taken
    out before it is summarised.
    """
    if compaction is ...:
        compaction = monitor.Compaction(steps=())
    options = {
        "tools": [read],
        "results": monitor.runs.Results(bound=None),
        "window": WINDOW,
        "task": "read it all",
        "detectors": [],
        "policy": monitor.policy.ObserveOnly(),
        **options,
    }
    return Drive(model=Agent(*answers, summaries=summaries), compaction=compaction, **options)


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, Text))


def begins_with_summary(request: ModelRequest) -> bool:
    first = request.messages[0]
    return isinstance(first, UserMessage) and first.synthetic and "Read all of it." in text_of(first)


def roles_alternate(messages: tuple[Message, ...]) -> bool:
    """Behind a message with results either may speak: the tools' answer goes out as the user's,
    with what a user says behind it.
    """
    return all(
        type(one) is not type(two) or (isinstance(one, AssistantMessage) and one.results)
        for one, two in pairwise(messages)
    )


def first_result(messages: tuple[Message, ...]) -> monitor.chunks.ToolResult:
    return next(result for one in messages if isinstance(one, AssistantMessage) for result in one.results)


def sizes(request: ModelRequest) -> int:
    return (
        sum(len(text_of(one)) + sum(len(r.text) for r in getattr(one, "results", ())) for one in request.messages) // 4
    )


# --- when


@pytest.mark.feature("CC-06")
async def test_at_the_mark_the_summary_is_made_beside_the_run_after_a_warning():
    pause = Pause()
    answers = [*reads(20_000, 20_000, 20_000, 18_000, 8_000), [Do(pause.release), *reads(100)], *reads(100), "done"]
    d = driven(*answers, summaries=[[pause, SUMMARY]])
    await d.go()
    assert d.outcome.ok
    assert d.kinds(*EVENTS) == [
        "ContextNearlyFull", "ContextFull", "CompactionStarted", "CompactionFinished", "StopDecided", "RunTerminated",
    ]  # fmt: skip
    (near,), (started,), (finished,) = (
        d.of(monitor.events.ContextNearlyFull),
        d.of(monitor.events.CompactionStarted),
        d.of(monitor.events.CompactionFinished),
    )
    assert near.tokens < near.limit_tokens == 85_000 <= started.tokens
    assert (started.reason, started.background, started.preset, started.refill) == (
        CompactionReason.HIGH_WATER,
        True,
        "default",
        None,
    )
    assert finished.tokens_after < 51_000
    assert finished.tokens_before >= 85_000
    assert finished.summarised_by == "scripted:model"
    assert [begins_with_summary(request) for request in d.model.work] == [False] * 6 + [True] * 2
    assert all(roles_alternate(request.messages) for request in d.model.work)


async def test_when_a_stream_has_finished_while_its_tools_run():
    order: list[str] = []
    pause = Pause()

    async def slow() -> str:
        """Work for a while."""
        order.append("tool")
        await pause.reached()
        order.append("summary asked for")
        return "ok"

    d = driven(
        *reads(20_000, 20_000, 20_000, 18_000),
        [call("slow"), Report(86_000, 10)],
        [Do(pause.release), *reads(10)],
        "done",
        summaries=[[pause, SUMMARY]],
        tools=[read, slow],
    )
    await d.go()
    assert d.outcome.ok
    assert order == ["tool", "summary asked for"]
    (started,) = d.of(monitor.events.CompactionStarted)
    assert (started.reason, started.background, started.tokens) == (CompactionReason.HIGH_WATER, True, 86_010)
    assert len(d.of(monitor.events.CompactionFinished)) == 1


async def test_not_for_an_answer_that_ends_the_run():
    d = driven(*reads(20_000, 20_000, 20_000), ["done", Report(90_000, 10)])
    await d.go()
    assert d.outcome.ok
    assert d.model.summaries == []


async def test_at_the_ceiling_the_run_waits():
    d = driven(*reads(24_000, 24_000, 24_000, 24_000), "done")
    await d.go()
    assert d.outcome.ok
    (started,) = d.of(monitor.events.CompactionStarted)
    assert (started.reason, started.background) == (CompactionReason.CEILING, False)
    assert [begins_with_summary(request) for request in d.model.work] == [False, False, False, False, True]


async def test_one_result_larger_than_the_window_is_cut_and_the_run_goes_on():
    d = driven(*reads(250_000), *reads(10), "done", compaction=monitor.Compaction())
    await d.go()
    assert d.outcome.ok
    assert len(d.model.work) == 3
    assert all(sizes(request) < WINDOW for request in d.model.work)
    assert d.model.summaries == []
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert "truncate" in finished.summarised_by
    assert len(d.results(0)[0].text) < len(read(250_000)) == len(first_result(d.run.originals).text)


@pytest.mark.parametrize("preset", ["default", "gemini_cli", "claude_code", "opencode", "openclaw", "pi"])
async def test_no_request_is_ever_over_the_window_whatever_the_preset(preset: str):
    compaction = getattr(monitor.Compaction, preset)()
    summary = compaction.template.skeleton(dict.fromkeys(compaction.template.sections[:1], "Something."))
    sent = iter([*reads(*[7_000, 23_000, 1_000, 40_000] * 8), "done"])
    work: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        if not request.tools or request.tool_choice == "none":
            return summary
        work.append(request)
        return next(sent)

    d = Drive(answer, compaction=compaction, tools=[read], window=WINDOW, detectors=[], task="read it all")
    await d.go()
    assert d.outcome.ok, d.outcome
    assert all(sizes(request) < WINDOW for request in d.requests)
    assert all(roles_alternate(request.messages) for request in work)
    assert {event.preset for event in d.of(monitor.events.CompactionStarted)} == {preset}
    assert d.of(monitor.events.CompactionFinished)


@pytest.mark.feature("CL-13")
async def test_openclaw_asks_on_top_of_the_run_s_own_request_with_calls_refused():
    summaries: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        if request.tool_choice == "none":
            summaries.append(request)
            return SUMMARY
        number = len(d.requests) - len(summaries)
        return reads(5_000)[0] if number < 18 else "done"

    options: dict[str, Any] = {
        "tools": [read],
        "window": WINDOW,
        "detectors": [],
        "instructions": "You read.",
        "task": "read it all",
    }
    d = Drive(answer, compaction=monitor.Compaction.openclaw(), **options)
    await d.go()
    assert d.outcome.ok
    (asked,) = summaries
    at = d.requests.index(asked)
    before, after = d.requests[at - 1], d.requests[at + 1]
    assert (asked.instructions, asked.tools) == (before.instructions, before.tools)
    assert asked.messages[: len(asked.messages) - 1] == before.messages[: len(asked.messages) - 1]
    assert begins_with_summary(after)

    plain = driven(*reads(24_000, 24_000, 24_000, 24_000), "done")
    await plain.go()
    assert plain.model.summaries[0].tools == ()
    assert plain.model.summaries[0].instructions != plain.model.work[0].instructions


@pytest.mark.feature("CC-06")
async def test_off_is_off():
    d = driven(*reads(24_000, 24_000, 24_000, 24_000), TooLong(PROMPT_TOO_LONG), compaction=None)
    async with d.run as run:
        with pytest.raises(monitor.ConfigError, match="compaction=None"):
            await run.compact()
        async for event in run:
            d.events.append(event)
    assert d.outcome.reason is Reason.PROMPT_TOO_LONG
    assert len(d.model.work) == 5
    assert d.model.summaries == []
    assert not d.of(monitor.events.CompactionStarted)


async def test_an_unknown_window_is_compacted_when_the_provider_refuses_and_known_from_then_on():
    d = driven(
        *reads(24_000, 24_000, 24_000, 24_000), TooLong(PROMPT_TOO_LONG), *reads(24_000, 24_000), "done", window=None
    )
    await d.go()
    assert d.outcome.ok
    assert [event.reason for event in d.of(monitor.events.CompactionStarted)] == [CompactionReason.OVERFLOW]
    assert len(d.model.work) == 8
    context = d.run._context
    assert context._fullness.window.tokens == context.when.marks.window.tokens == WINDOW


# --- by hand


@pytest.mark.feature("CC-06", "GZ-04")
async def test_by_hand_from_the_caller_s_block():
    d = driven(*reads(5_000, 5_000), "done")
    results: list[monitor.context.CompactionResult] = []
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.TurnEnded) and event.turn.number == 2:
                results.append(await run.compact())
    (result,) = results
    assert d.outcome.ok
    assert result.tokens_after < result.tokens_before
    assert [event.reason for event in d.of(monitor.events.CompactionStarted)] == [CompactionReason.MANUAL]
    assert begins_with_summary(d.model.work[2])
    assert roles_alternate(d.model.work[2].messages)
    assert "continue" not in text_of(d.model.work[2].messages[-1]).lower()  # none after a manual one


@pytest.mark.feature("CC-06")
async def test_by_hand_from_a_tool():
    async def compact(context: monitor.ToolContext) -> str:
        """Make the history smaller."""
        assert isinstance(context.run, monitor.Run)
        result = await context.run.compact()
        return f"{result.tokens_before} to {result.tokens_after}"

    d = driven(*reads(9_000, 9_000), call("compact"), "done", tools=[read, compact])
    await d.go()
    assert d.outcome.ok
    assert begins_with_summary(d.model.work[3])
    assert roles_alternate(d.model.work[3].messages)
    assert " to " in d.results(-2)[0].text


@pytest.mark.feature("CC-06")
async def test_by_hand_from_another_task_while_the_driver_streams():
    pause = Pause()
    d = driven(*reads(9_000, 9_000), [pause, *reads(10)], "done")
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        result = await d.run.compact()
        pause.release()
    assert d.outcome.ok
    assert result.record is not None
    assert not begins_with_summary(d.model.work[2])
    assert begins_with_summary(d.model.work[3])
    assert roles_alternate(d.model.work[3].messages)


async def test_two_who_ask_at_once_get_the_same():
    pause = Pause()
    d = driven(*reads(9_000, 9_000), [pause, "done"])
    got: list[monitor.context.CompactionResult] = []

    async def ask() -> None:
        got.append(await d.run.compact())

    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        async with anyio.create_task_group() as askers:
            askers.start_soon(ask)
            askers.start_soon(ask)
        pause.release()
    assert got[0] is got[1]
    assert len(d.model.summaries) == 1


@pytest.mark.feature("GZ-04")
async def test_where_there_is_nothing_to_compact_it_is_skipped_and_nothing_is_asked():
    d = driven("done")
    async with d.run as run:
        with pytest.raises(monitor.context.CompactionError) as caught:
            await run.compact()
        async for event in run:
            d.events.append(event)
    assert caught.value.failure is Failure.NOTHING_TO_COMPACT
    assert [event.why for event in d.of(monitor.events.CompactionSkipped)] == [Failure.NOTHING_TO_COMPACT]
    assert not d.of(monitor.events.CompactionStarted)
    assert d.model.summaries == []
    with pytest.raises(monitor.ConfigError, match="finished"):
        await run.compact()


# --- a refusal


FULL = reads(20_000, 20_000, 20_000, 18_000)
"""Then 78,000 tokens are there by the estimate, and the run would go on."""
REFUSED = TooLong("prompt is too long: 101000 tokens > 100000 maximum")


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize("row", ["R1"])
async def test_one_refusal_one_compaction_and_the_same_transcript_goes_out_again(row: str):
    d = driven(*FULL, REFUSED, "done")
    await d.go()
    assert d.outcome.ok
    assert (len(d.model.work), len(d.model.summaries)) == (6, 1)
    assert [event.reason for event in d.of(monitor.events.CompactionStarted)] == [CompactionReason.OVERFLOW]
    assert begins_with_summary(d.model.work[5])
    assert len(d.of(monitor.events.ToolStarted)) == 4  # R9: no tool is run twice
    calls = [part.id for one in d.run.originals for part in one.content if isinstance(part, monitor.chunks.ToolCall)]
    assert len(calls) == len(set(calls)) == 4
    assert len([one for one in d.run.originals if text_of(one) == "read it all"]) == 1  # and nothing is stored twice
    (retry,) = d.of(monitor.events.RetryScheduled)
    assert (retry.attempt, retry.after_s) == (2, 0.0)


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize("row", ["R2"])
async def test_where_nothing_is_there_to_compact_one_attempt_and_what_to_do(row: str):
    d = driven(REFUSED)
    await d.go()
    assert (d.outcome.reason, d.outcome.source) == (Reason.PROMPT_TOO_LONG, "compaction")
    assert (len(d.model.work), len(d.model.summaries)) == (1, 0)
    assert "101,000 tokens, and the model takes 100,000" in d.outcome.detail
    assert "use a model with a larger window" in d.outcome.detail
    assert d.outcome.error is REFUSED


@pytest.mark.feature("CL-07", "AC-08")
@pytest.mark.parametrize("row", ["R3"])
async def test_refused_every_time_three_compactions_four_attempts_and_an_error(row: str):
    d = driven(*reads(*[2_000] * 40), *[REFUSED] * 4)
    await d.go()
    assert d.outcome.reason is Reason.PROMPT_TOO_LONG
    assert len(d.model.work) == 40 + 4
    assert len(d.of(monitor.events.CompactionFinished)) == 3
    assert "3 compactions" in d.outcome.detail
    assert d.outcome.error is REFUSED
    sent = [sizes(request) for request in d.model.work[40:]]
    assert sent == sorted(sent, reverse=True)
    assert len(set(sent)) == 4  # each time less


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize("row", ["R6"])
async def test_where_compaction_fails_oversized_results_are_truncated_once(row: str):
    d = driven(
        *reads(26_000, 26_000, 26_000),
        TooLong("prompt is too long: 78000 tokens > 32000 maximum"),
        "done",
        compaction=monitor.Compaction(
            steps=(),
            hooks=(monitor.context.CompactionHook(before=lambda _: monitor.context.BeforeCompaction(cancel="no")),),
        ),
    )
    await d.go()
    assert d.outcome.ok
    assert (len(d.model.work), len(d.model.summaries)) == (5, 0)
    assert [event.why for event in d.of(monitor.events.CompactionSkipped)] == [Failure.CANCELLED]
    assert [event.kind for event in d.of(monitor.events.HistoryReduced)] == ["truncate"]
    assert sizes(d.model.work[4]) < 32_000


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize("row", ["R12"])
async def test_a_transport_error_is_no_matter_of_size_whatever_came_before(row: str):
    d = driven(
        *FULL,
        REFUSED,
        *reads(10),
        ConnectionError("gone"),
        "done",
        requests=monitor.runs.Requests(retries=monitor.Retries(1, first_delay_s=0.0)),
    )
    await d.go()
    assert d.outcome.ok
    assert len(d.of(monitor.events.CompactionStarted)) == 1
    assert len(d.model.work) == 8


@pytest.mark.feature("CL-07")
async def test_a_recovery_uses_up_no_retry_of_the_network():
    d = driven(
        *FULL,
        REFUSED,
        ConnectionError("gone"),
        "done",
        requests=monitor.runs.Requests(retries=monitor.Retries(1, first_delay_s=0.0)),
    )
    await d.go()
    assert d.outcome.ok
    assert [(event.turn, event.attempt) for event in d.of(monitor.events.RetryScheduled)] == [(5, 2), (5, 3)]


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize("row", ["R15"])
async def test_pi_compacts_once_for_a_refusal(row: str):
    d = driven(*FULL, REFUSED, REFUSED, compaction=monitor.Compaction.pi(headroom=monitor.context.Headroom()))
    await d.go()
    assert d.outcome.reason is Reason.PROMPT_TOO_LONG
    assert (len(d.model.work), len(d.of(monitor.events.CompactionFinished))) == (6, 1)
    assert "1 compaction." in d.outcome.detail


@pytest.mark.feature("CL-07")
async def test_an_answer_in_between_makes_the_next_refusal_another_matter():
    d = driven(
        *FULL, REFUSED, *reads(20_000, 20_000), REFUSED, "done", compaction=monitor.Compaction(steps=(), attempts=1)
    )
    await d.go()
    assert d.outcome.ok
    assert len(d.of(monitor.events.CompactionFinished)) == 2


@pytest.mark.feature("CL-07")
async def test_a_limit_per_minute_that_one_request_exceeds_is_hopeless_and_never_compacted():
    groq = (
        "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 60000, please reduce your"
        " message size"
    )
    d = driven(*FULL, TooLong(groq))
    await d.go()
    assert d.outcome.reason is Reason.PROMPT_TOO_LONG
    assert (len(d.model.work), len(d.model.summaries)) == (5, 0)
    assert "60,000 tokens, and the account may use 6,000 in a minute" in d.outcome.detail
    assert not d.of(monitor.events.CompactionStarted)


@pytest.mark.feature("CL-07")
async def test_a_compaction_beside_the_run_that_was_done_meanwhile_counts_as_the_answer():
    pause = Pause()
    done = Pause()
    d = driven(
        *reads(20_000, 20_000, 20_000, 18_000, 8_000),
        [pause, REFUSED],
        "done",
        summaries=[[SUMMARY, done]],
    )
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        await done.reached()
        done.release()
        await anyio.wait_all_tasks_blocked()
        pause.release()
    assert d.outcome.ok
    assert (len(d.model.work), len(d.model.summaries)) == (7, 1)
    assert [event.reason for event in d.of(monitor.events.CompactionFinished)] == [CompactionReason.HIGH_WATER]


@pytest.mark.feature("CL-07")
async def test_a_compaction_beside_the_run_that_is_under_way_is_waited_for():
    pause = Pause()
    d = driven(*reads(20_000, 20_000, 20_000, 18_000, 8_000), REFUSED, "done", summaries=[[pause, SUMMARY]])
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        await anyio.wait_all_tasks_blocked()
        assert len(d.model.work) == 6
        pause.release()
    assert d.outcome.ok
    assert (len(d.model.work), len(d.model.summaries)) == (7, 1)


@pytest.mark.parametrize(
    "answer",
    [
        [*reads(10), Report(100_500, 20)],
        ["I read", Report(99_990, 9), monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)],
        [Report(100_000, 0), monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)],
        ["I read", monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH, "model_context_window_exceeded")],
    ],
    ids=["more than the window", "no room for the answer", "no room at all", "the provider's word"],
)
@pytest.mark.parametrize("window", [WINDOW, None])
@pytest.mark.feature("CL-07")
async def test_an_overflow_that_nobody_speaks_of_is_compacted_before_the_next_request(
    answer: list[Any], window: int | None
):
    if window is None and "exceeded" not in str(answer):
        return  # nobody knows that it is one
    d = driven(*FULL, answer, "done", window=window)
    await d.go()
    assert d.outcome.ok
    assert [event.reason for event in d.of(monitor.events.CompactionStarted)] == [CompactionReason.SILENT_OVERFLOW]
    assert (len(d.model.work), len(d.model.summaries)) == (6, 1)
    assert begins_with_summary(d.model.work[5])


async def test_a_request_that_surely_does_not_fit_is_not_sent():
    d = driven(task="word" * 180_000)
    await d.go()
    assert (d.outcome.reason, d.outcome.source, d.outcome.limit) == (
        Reason.COMPACTION_INEFFECTIVE,
        "compaction",
        WINDOW,
    )
    assert "the window has 100,000; compaction did not help" in d.outcome.detail
    assert "Shorten the task" in d.outcome.detail
    assert d.requests == []


# --- in flight, and the end


class Reached(Protocol):
    """A step that says when it has come."""

    async def reached(self) -> None: ...


def summary_never() -> tuple[Stall, list[Any]]:
    stall = Stall()
    return stall, [stall]


async def until_asked(d: Drive, stall: Reached, then: Callable[[], object]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await stall.reached()
        await anyio.wait_all_tasks_blocked()
        then()


CEILING = reads(24_000, 24_000, 24_000, 24_000)


@pytest.mark.feature("CL-06")
async def test_its_own_time_runs_out_and_a_pressing_one_does_without_a_model():
    stall, never = summary_never()
    d = driven(*CEILING, "done", summaries=[never])
    await until_asked(d, stall, lambda: d.clock.advance(180))
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == "extractive"
    assert finished.after_s == 180
    assert any("180 s" in warning for warning in finished.warnings)
    assert all(stream.exhausted for stream in d.model.streams)


@pytest.mark.feature("CL-06")
async def test_its_own_time_runs_out_beside_the_run_and_the_history_is_as_before():
    stall, never = summary_never()
    pause = Pause()
    d = driven(*reads(20_000, 20_000, 20_000, 18_000, 8_000), [pause, *reads(10)], "done", summaries=[never])

    def later() -> None:
        d.clock.advance(180)
        pause.release()

    await until_asked(d, stall, later)
    assert d.outcome.ok
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert (failed.failure, failed.retryable) == (Failure.TIMEOUT, True)
    assert d.run.history == d.run.originals
    assert d.model.work[-1].messages == d.run.originals[:-1]


@pytest.mark.feature("CL-06")
@pytest.mark.parametrize("row", ["X4", "X5"])
async def test_the_run_s_time_runs_out_while_it_waits_for_a_summary(row: str):
    stall, never = summary_never()
    d = driven(*CEILING, summaries=[never], stop_when=monitor.Timeout(60), last_turn=None)
    await until_asked(d, stall, lambda: d.clock.advance(60))
    assert (d.outcome.reason, d.outcome.source) == (Reason.TIMEOUT, "timeout")
    assert d.outcome.detail.endswith("; a compaction was at work")
    assert d.kinds(monitor.events.StopDecided, monitor.events.CompactionFailed, monitor.events.RunTerminated)[-2:] == [
        "CompactionFailed",
        "RunTerminated",
    ]
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert failed.failure is Failure.ABORTED
    assert d.run.history == d.run.originals
    assert all(stream.exhausted for stream in d.model.streams)


@pytest.mark.parametrize("row", ["X4"])
@pytest.mark.feature("CL-06")
async def test_what_is_no_timeout_or_has_no_compaction_is_not_said_to_have_had_one(row: str):
    stall, never = summary_never()
    d = driven(*CEILING, summaries=[never])
    await until_asked(d, stall, d.run.abort)
    assert "compaction" not in d.outcome.detail
    stall = Stall()
    d = driven([stall], stop_when=monitor.Timeout(60), last_turn=None)
    await until_asked(d, stall, lambda: d.clock.advance(60))
    assert d.outcome.reason is Reason.TIMEOUT
    assert "compaction" not in d.outcome.detail


@pytest.mark.feature("CL-06")
async def test_a_last_turn_after_that_gets_a_context_that_fits_without_a_model():
    stall, never = summary_never()
    seen: list[ModelRequest] = []

    def last(request: ModelRequest) -> Any:
        seen.append(request)
        return call("emit_value", name="answer", value="x")

    d = driven(*CEILING, last, summaries=[never], stop_when=monitor.Timeout(60), outputs={"answer": str})
    await until_asked(d, stall, lambda: d.clock.advance(60))
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.GOAL, Reason.TIMEOUT)
    assert [event.failure for event in d.of(monitor.events.CompactionFailed)] == [Failure.ABORTED]
    assert [event.summarised_by for event in d.of(monitor.events.CompactionFinished)] == ["extractive"]
    assert sizes(seen[0]) < 85_000
    assert len(d.model.summaries) == 1


@pytest.mark.feature("CL-06")
async def test_progress_is_worth_as_much_time_again_once():
    """The summariser's window is small, so the summary is made in parts; each takes 100 of the 180
    seconds.
    """
    clock = FakeClock()
    slow = [Do(lambda: clock.advance(100)), SUMMARY]
    small = monitor.Window(40_000)
    talk = [UserMessage((Text("word" * 4_000),)), AssistantMessage((Text("word" * 400),))] * 22
    too_slow = [Do(lambda: clock.advance(61)), SUMMARY]
    d = driven(
        "done",
        summaries=[slow, slow, slow, too_slow],
        compaction=monitor.Compaction(steps=(), window=small),
        clock=clock,
        history=talk,
    )
    await d.go()
    assert d.outcome.ok
    assert len(d.of(monitor.events.CompactionProgressed)) >= 2
    (finished,) = d.of(monitor.events.CompactionFinished)
    kinds = d.kinds(
        monitor.events.CompactionStarted, monitor.events.CompactionProgressed, monitor.events.CompactionFinished
    )
    assert (kinds[0], kinds[-1]) == ("CompactionStarted", "CompactionFinished")
    assert finished.after_s == 361
    assert finished.summarised_by == "extractive"
    assert len(d.model.summaries) == 4


@pytest.mark.feature("ST-11")
@pytest.mark.parametrize("how", ["task", "thread"])
async def test_an_abort_ends_a_compaction_that_is_waited_for_at_once(how: str):
    stall, never = summary_never()
    d = driven(*CEILING, summaries=[never])

    def abort() -> None:
        if how == "thread":
            thread = threading.Thread(target=d.run.abort, args=("enough",))
            thread.start()
            thread.join()
        else:
            d.run.abort("enough")

    await until_asked(d, stall, abort)
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "enough")
    assert [event.failure for event in d.of(monitor.events.CompactionFailed)] == [Failure.ABORTED]
    assert d.run.history == d.run.originals
    assert all(stream.exhausted for stream in d.model.streams)


@pytest.mark.feature("ST-11", "CL-05")
async def test_an_abort_ends_one_that_the_caller_waits_for_in_the_block():
    stall, never = summary_never()
    d = driven(*reads(9_000, 9_000), "never", summaries=[never])
    caught: list[monitor.context.CompactionError] = []

    async def drive() -> None:
        async with d.run as run:
            async for event in run:
                d.events.append(event)
                if isinstance(event, monitor.events.TurnEnded) and event.turn.number == 2:
                    with pytest.raises(monitor.context.CompactionError) as error:
                        await run.compact()
                    caught.append(error.value)

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        await stall.reached()
        await anyio.wait_all_tasks_blocked()
        d.run.abort("enough")
    assert [error.failure for error in caught] == [Failure.ABORTED]
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "enough")
    assert [type(event).__name__ for event in d.events[-3:]] == ["StopDecided", "CompactionFailed", "RunTerminated"]
    assert len(d.model.work) == 2


@pytest.mark.feature("CL-05")
async def test_a_run_is_not_finished_while_a_compaction_is_at_work_and_who_waits_for_it_is_told():
    stall, never = summary_never()
    pause = Pause()
    d = driven(*reads(9_000, 9_000), [pause, "done"], summaries=[never])
    caught: list[monitor.context.CompactionError] = []

    async def ask() -> None:
        with pytest.raises(monitor.context.CompactionError) as error:
            await d.run.compact()
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        group.start_soon(ask)
        await stall.reached()
        pause.release()
    assert d.outcome.ok
    assert [error.failure for error in caught] == [Failure.ABORTED]
    assert [type(event).__name__ for event in d.events[-2:]] == ["CompactionFailed", "RunTerminated"]
    assert all(stream.exhausted for stream in d.model.streams)


@pytest.mark.feature("CL-05", "ST-11")
async def test_a_caller_who_breaks_leaves_nothing_running():
    stall, never = summary_never()
    sink = monitor.sinks.MemorySink()
    pause = Pause()
    d = driven(*reads(20_000, 20_000, 20_000, 18_000, 8_000), [pause, *reads(10)], summaries=[never], sinks=[sink])
    pause.release()
    async with d.run as run:
        async for _ in run:
            if d.model.summaries:
                await stall.reached()
                break
    assert d.outcome.reason is Reason.CLOSED_BY_CALLER
    assert [type(event).__name__ for event in sink.events[-2:]] == ["CompactionFailed", "RunTerminated"]
    assert all(stream.exhausted for stream in d.model.streams)
    assert d.clock.pending == 0


@pytest.mark.feature("CL-05")
async def test_a_run_that_never_went_leaves_nothing_running_either():
    stall, never = summary_never()
    history = [UserMessage((Text("a"),)), AssistantMessage((Text("word" * 9_000),)), UserMessage((Text("b"),))]
    d = driven(summaries=[never], history=[*history, AssistantMessage((Text("word" * 9_000),))])
    caught: list[monitor.context.CompactionError] = []

    async def ask() -> None:
        with pytest.raises(monitor.context.CompactionError) as error:
            await d.run.compact()
        caught.append(error.value)

    async with anyio.create_task_group() as group, d.run:
        group.start_soon(ask)
        await stall.reached()
    assert [error.failure for error in caught] == [Failure.ABORTED]
    assert all(stream.exhausted for stream in d.model.streams)
    assert d.clock.pending == 0


@pytest.mark.feature("ST-11")
async def test_the_caller_s_own_cancellation_goes_on():
    stall, never = summary_never()
    d = driven(*CEILING, summaries=[never])
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await stall.reached()
                scope.cancel()

            group.start_soon(cancel)
            await d.go()
    assert scope.cancelled_caught
    assert d.outcome.reason is Reason.CANCELLED
    assert all(stream.exhausted for stream in d.model.streams)
    assert d.clock.pending == 0


# --- when it does not work


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.kept: list[monitor.context.CompactionRecord] = []
        self.fails = False

    def add(self, record: monitor.context.CompactionRecord) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.kept.append(record)

    def records(self) -> list[monitor.context.CompactionRecord]:
        return self.kept


BAD = "No."


async def test_two_that_did_not_help_are_the_last_by_themselves_and_by_hand_it_may_be_tried_all_the_same():
    """Instructions alone are more than what a compaction must get below, and no summary is so short
    that it could help.
    """
    options = {
        "window": 400_000,
        "instructions": "word" * 250_000,
        "compaction": monitor.Compaction(steps=(), background=False),
    }
    d = driven(*reads(30_000, 30_000, 29_000, *[2_500] * 11), "done", **options)
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.TurnEnded) and event.turn.number == 14:
                assert len(d.of(monitor.events.CompactionFailed)) == 2
                assert (await run.compact()).record is not None
    assert d.outcome.ok
    started = [event.reason for event in d.of(monitor.events.CompactionStarted)]
    assert started == [CompactionReason.HIGH_WATER, CompactionReason.HIGH_WATER, CompactionReason.MANUAL]
    assert {event.failure for event in d.of(monitor.events.CompactionFailed)} == {Failure.INEFFECTIVE}
    assert "Instructions and tools alone have 250," in d.of(monitor.events.CompactionFailed)[0].detail
    assert len(d.model.summaries) == 1  # nobody was asked for what could not help


async def test_a_model_that_always_fails_is_asked_now_and_then_only():
    d = driven(*reads(*[15_000] * 60), "done", summaries=BAD)
    await d.go()
    assert d.outcome.ok
    finished = d.of(monitor.events.CompactionFinished)
    assert {event.summarised_by for event in finished} == {"extractive"}
    asked = [event.cost.usage.output_tokens > 0 for event in finished]
    assert len(asked) >= 8
    assert asked.count(True) < asked.count(False)
    assert any(asked[5:])
    assert all(sizes(request) < WINDOW for request in d.model.work)


async def test_a_summariser_without_a_model_is_none_that_has_to_do_instead():
    d = driven(
        *reads(*[6_000] * 80),
        "done",
        compaction=monitor.Compaction(steps=(), summarizer=monitor.context.Extractive()),
    )
    await d.go()
    assert d.outcome.ok
    reasons = [event.reason for event in d.of(monitor.events.CompactionStarted)]
    assert len(reasons) > 5
    assert set(reasons) == {CompactionReason.HIGH_WATER}


async def test_who_filled_the_context_again_so_soon_is_said():
    d = driven(*CEILING, *reads(24_000, 24_000, 24_000), "done")
    await d.go()
    first, second = d.of(monitor.events.CompactionStarted)[:2]
    assert first.refill is None
    assert second.refill is not None
    assert second.refill.startswith("results of read: ")


# --- what else is to be made of it


def same(n: int) -> str:
    """The same each time."""
    return "word" * n


async def test_what_was_done_before_and_is_done_again_right_after_it_is_a_loop_that_the_policy_acts_on():
    looked = [monitor.chunks.ToolCall(f"same{n}", "same", {"n": 7}) for n in range(10)]
    d = driven(looked[0], *CEILING, *looked[1:4], "never", tools=[read, same], policy=monitor.StopAtFirstLoop())
    await d.go()
    assert d.outcome.reason is Reason.LOOP_DETECTED
    (found,) = d.of(monitor.events.DetectionRaised)
    assert (found.detection.kind, found.detection.count) == ("compaction_loop", 3)
    assert len(d.of(monitor.events.CompactionFinished)) == 1


async def test_what_was_seen_before_a_compaction_is_still_counted_after_it():
    counts = []
    for compacts in (False, True):
        calls = [monitor.chunks.ToolCall(f"same{n}", "same", {"n": 7_000}) for n in range(40)]
        d = driven(*calls, tools=[same], policy=monitor.StopAtFirstLoop(), detectors=[monitor.ToolCallRepetition()])
        async with d.run as run:
            async for event in run:
                d.events.append(event)
                if compacts and isinstance(event, monitor.events.TurnEnded) and event.turn.number == 3:
                    await run.compact()
        assert (d.outcome.reason, d.outcome.source) == (Reason.LOOP_DETECTED, "tool_call_repetition")
        assert len(d.of(monitor.events.CompactionFinished)) == compacts
        counts.append(d.outcome.turns)
    assert counts[0] == counts[1] > 3


@pytest.mark.feature("OC-15")
async def test_old_results_go_in_the_background_after_a_turn():
    prune = Counting(PruneResults(protect_tokens=2_000, more_than_tokens=1_000, protect_turns=0))

    async def slow() -> str:
        """Wait until nothing else goes on."""
        await pruned(d)
        return "ok"

    answers = [*reads(9_000, 9_000), *[call("slow") for _ in range(6)], "done"]
    d = driven(*answers, tools=[read, slow], compaction=monitor.Compaction(after_turn=(prune,)))
    await d.go()
    assert d.outcome.ok
    reduced = d.of(monitor.events.HistoryReduced)
    assert {event.kind for event in reduced} == {"prune"}
    assert len(first_result(d.run.originals).text) == 36_000
    # the next one that is made when it is done: what was read last is not taken away unread
    assert sizes(d.model.work[4]) < 10_000
    assert not d.of(monitor.events.CompactionStarted)
    assert prune.looks <= 2  # of nine turns: not before 5,000 tokens more have come


@pytest.mark.feature("OC-15")
async def test_what_a_preset_of_opencode_takes_out_after_a_turn():
    old: list[Message] = []
    for number in range(6):
        asked = monitor.chunks.ToolCall(f"old{number}", "read", {})
        old += [
            UserMessage((Text("and?"),)),
            AssistantMessage((asked,), (monitor.chunks.ToolResult(asked.id, "read", read(20_000)),)),
        ]
    compaction = monitor.Compaction.opencode(after_turn=(PruneResults(),))
    d = driven(*reads(10, 10), "done", window=400_000, compaction=compaction, history=old)
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            await pruned(d)
    assert d.outcome.ok
    (reduced,) = d.of(monitor.events.HistoryReduced)
    assert reduced.saved_tokens >= 20_000
    assert sizes(d.model.work[2]) < sizes(d.model.work[0]) - 20_000
    assert run.originals[: len(old)] == tuple(old)


async def pruned(d: Drive) -> None:
    """Return when nobody is looking for what may go."""
    pruning = d.run._context._pruning
    if pruning.task is not None:
        await pruning.task.wait()


@pytest.mark.feature("OC-11", "OC-12")
@pytest.mark.parametrize(("veto", "told"), [(False, True), (True, False)])
async def test_opencode_tells_the_model_to_go_on_unless_a_hook_vetoes_it(veto: bool, told: bool):
    heard: list[str] = []

    def before(asked: CompactionAsked) -> monitor.context.BeforeCompaction:
        heard.append(f"before {asked.reason}")
        return monitor.context.BeforeCompaction(context="Mind the gap.")

    hook = monitor.context.CompactionHook(
        before=before,
        after=lambda _: heard.append("after"),
        autocontinue=lambda _: not veto,
    )
    window = monitor.Window(WINDOW, max_output_tokens=10_000)
    summary = monitor.Compaction.opencode().template.skeleton({"Goal": "Read all of it."})
    d = driven(
        *CEILING, "done", summaries=summary, compaction=monitor.Compaction.opencode(hooks=(hook,)), window=window
    )
    await d.go()
    assert d.outcome.ok
    assert heard == ["before ceiling", "after"]
    assert "Mind the gap." in (d.model.summaries[0].instructions or "")
    last = d.model.work[-1].messages[-1]
    assert (isinstance(last, UserMessage) and last.synthetic and "Go on with the next step" in text_of(last)) == told
    assert roles_alternate(d.model.work[-1].messages)


@pytest.mark.feature("OC-16")
async def test_a_hook_that_cancels_leaves_everything_as_it_was():
    hook = monitor.context.CompactionHook(before=lambda _: monitor.context.BeforeCompaction(cancel="not now"))
    d = driven(*CEILING, "done", compaction=monitor.Compaction(steps=(), hooks=(hook,)))
    await d.go()
    assert d.outcome.ok
    assert [event.why for event in d.of(monitor.events.CompactionSkipped)] == [Failure.CANCELLED]
    assert d.run.history == d.run.originals
    assert d.model.summaries == []


# --- money, and runs inside of runs


async def test_a_summary_counts_and_a_budget_that_it_exhausts_ends_the_run_with_that_reason():
    answer = [SUMMARY, Report(50_000, 500)]
    d = driven(*CEILING, "done", summaries=[answer])
    await d.go()
    assert d.outcome.compaction_usage.total_tokens == 50_500
    assert d.outcome.usage.total_tokens > 50_500
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.cost.usage.total_tokens == 50_500

    d = driven(*CEILING, "never", summaries=[answer], budget=monitor.Budget(tokens=20_000), last_turn=None)
    await d.go()
    assert (d.outcome.reason, d.outcome.source) == (Reason.TOKEN_LIMIT, "Budget")
    assert [event.failure for event in d.of(monitor.events.CompactionFailed)] == [Failure.ABORTED]
    assert len(d.model.work) == 4


async def test_a_run_that_is_a_tool_compacts_its_own_history_at_the_caller_s_expense():
    child = Agent(*CEILING, "found it", summaries=[[SUMMARY, Report(50_000, 500)]])
    sink = monitor.sinks.MemorySink()
    supervisor = monitor.Supervisor(
        child,
        tools=[read],
        results=monitor.runs.Results(bound=None),
        window=WINDOW,
        detectors=[],
        compaction=monitor.Compaction(steps=()),
        sinks=[sink],
    )
    tool = supervisor.as_tool(name="research", description="Find something out.")
    d = driven(call("research", task="find it"), "done", tools=[tool])
    await d.go()
    assert d.outcome.ok
    assert d.results(0)[0].text == "found it"
    assert d.outcome.usage.total_tokens >= 50_500
    assert not d.of(monitor.events.CompactionStarted)
    assert any(isinstance(event, monitor.events.CompactionFinished) for event in sink.events)

    child = Agent(*CEILING, "never", summaries=[[SUMMARY, Report(50_000, 500)]])
    supervisor = monitor.Supervisor(
        child,
        tools=[read],
        results=monitor.runs.Results(bound=None),
        window=WINDOW,
        detectors=[],
        compaction=monitor.Compaction(steps=()),
    )
    tool = supervisor.as_tool(name="research", description="Find something out.")
    d = driven(
        call("research", task="find it"), "never", tools=[tool], budget=monitor.Budget(tokens=20_000), last_turn=None
    )
    await d.go()
    assert (d.outcome.reason, d.outcome.source) == (Reason.TOKEN_LIMIT, "Budget")
    assert len(child.work) == 4


async def test_a_judge_and_a_summary_at_the_same_time():
    stall, never = summary_never()
    judged = Stall()
    judge = monitor.LoopJudge(ScriptedModel([judged], name="judge:model"), first_turn=2)
    d = driven(*CEILING, summaries=[never], judge=judge)
    await until_asked(d, stall, lambda: d.run.abort("enough"))
    assert d.outcome.reason is Reason.ABORTED
    assert len(d.of(monitor.events.JudgeFailed)) == len(d.of(monitor.events.CompactionFailed)) == 1


# --- records


@pytest.mark.feature("AC-02", "AC-10", "OC-16")
async def test_what_the_model_is_shown_can_be_made_again_from_the_originals_and_the_records():
    store = Kept()
    d = driven(
        *CEILING, *reads(24_000, 24_000, 24_000, 10), "done", compaction=monitor.Compaction(steps=(), store=store)
    )
    shown: list[bool] = []
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            shown.append(monitor.context.shown(run.originals, store.records()) == run.history)
    assert d.outcome.ok
    assert all(shown)
    assert len(store.kept) == len(d.of(monitor.events.CompactionFinished)) == 2
    assert [record.reason for record in store.kept] == [CompactionReason.CEILING] * 2


@pytest.mark.feature("AC-10", "OC-16")
async def test_nothing_is_recorded_of_one_that_failed_and_nothing_changed_that_could_not_be_recorded():
    store = Kept()
    d = driven(
        *reads(20_000, 20_000, 20_000, 18_000, 8_000, 10),
        "done",
        summaries=BAD,
        compaction=monitor.Compaction(steps=(), store=store),
    )
    await d.go()
    assert d.of(monitor.events.CompactionFailed)
    assert store.kept == []
    assert d.run.history == d.run.originals
    store.fails = True
    d = driven(*CEILING, "done", compaction=monitor.Compaction(steps=(), store=store))
    await d.go()
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert (failed.failure, failed.detail) == (Failure.CRASHED, "OSError: the disk is full")
    assert d.run.history == d.run.originals


async def test_one_that_came_too_late_is_kept_for_inspection():
    d: Drive
    pause = Pause()

    def changed_meanwhile(_: ModelRequest) -> list[Any]:
        history = d.run._history
        history.commit(monitor.context.HistoryEdit(history.version, 1, 2, history.messages[1:2], "mine"))
        return [pause, SUMMARY]

    answers = [*reads(20_000, 20_000, 20_000, 18_000, 8_000), [Do(pause.release), *reads(100)], *reads(100), "done"]
    d = driven(*answers, summaries=[changed_meanwhile, *[SUMMARY] * 9])
    await d.go()
    assert [one.failure for one in d.of(monitor.events.CompactionFailed)] == [Failure.STALE]
    assert len(d.of(monitor.events.CompactionFinished)) == 1  # it was due again at once
    (stale,) = d.run.stale_compactions
    assert stale.record is not None
    assert "Read all of it." in stale.record.summary
