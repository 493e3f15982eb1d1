"""Judges beside a run: asked when they are due, heard at once, gone with the run."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import AskCost
from monitor.core.run import RunCore
from monitor.events import (
    DetectionRaised,
    Event,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    Nudged,
    RunTerminated,
    StopDecided,
    event_codec,
)
from monitor.guard.streams import ask as judge_tasks
from monitor.judges.judge import Ask, Judge, JudgeInput, JudgeSchedule
from monitor.models import ModelRequest
from monitor.sinks.log import MemorySink
from monitor.testing import FakeClock, ScriptedModel, ScriptedStream, call
from monitor.testing.scripted import Pause, Stall
from monitor.verdicts import Judgement

Reason = monitor.TerminateReason
DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)
T = TypeVar("T")


def says(confidence: float, analysis: str = "It goes round.") -> list[Any]:
    """A judge's answer, and what it cost."""
    text = f'{{"analysis": "{analysis}", "confidence": {confidence}}}'
    return [text, monitor.chunks.UsageReport(input_tokens=90, output_tokens=10)]


def often(model: Any, **options: Any) -> monitor.LoopJudge:
    """A judge whose findings are loops at once, and that may cost as much as the run."""
    return monitor.LoopJudge.article(model, **{"threshold": 0.9, "first_interval": 10, **options})


def of(kind: type[T], sink: MemorySink) -> list[T]:
    return [event for event in sink.events if isinstance(event, kind)]


async def settle() -> None:
    """Until every task waits for something."""
    await anyio.wait_all_tasks_blocked()


async def turns(guard: monitor.Guard, count: int) -> list[monitor.Verdict]:
    """So many turns of a run that says something new each time, with time for the judges; the
    verdicts after them.
    """
    verdicts = []
    for _ in range(count):
        async with guard.watch(ScriptedStream(monitor.chunks.TextDelta("step"), DONE)) as watched:
            async for _chunk in watched:
                pass
        await settle()
        verdicts.append(guard.check())
        if guard.stop is not None:
            break
    return verdicts


class Run:
    """A guard on a clock that stands still, without detectors, and what is heard of it."""

    def __init__(self, judge: Judge | Sequence[Judge] | None, **options: Any) -> None:
        self.sink = MemorySink()
        self.clock = FakeClock()
        options.setdefault("detectors", None)
        self.guard = monitor.Guard(judge=judge, sinks=[self.sink], clock=self.clock, **options)

    def of(self, kind: type[T]) -> list[T]:
        return of(kind, self.sink)

    @property
    def asked_at(self) -> list[int]:
        return [event.turn for event in self.of(JudgeAsked)]

    def check_ended(self) -> None:
        """Each question had one end, nothing is left of them, and nothing comes after the last
        event.
        """
        assert len(self.of(JudgeAsked)) == len(self.of(JudgeAnswered)) + len(self.of(JudgeFailed))
        assert self.clock.pending == 0
        assert len(self.of(RunTerminated)) == 1
        assert isinstance(self.sink.events[-1], RunTerminated)
        assert self.guard._judges is not None
        assert not self.guard._judges._open


# ------------------------------------------------------------------ when


@pytest.mark.feature("GL-05")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("count", "confidences", "asked_at"),
    [
        (29, [], []),
        (30, [0.1], [30]),
        (44, [0.0], [30]),
        (45, [0.0, 0.0], [30, 45]),
        (36, [0.89, 0.5], [30, 36]),
        (40, [0.5, 0.5], [30, 40]),
    ],
)
async def test_from_turn_30_and_then_as_sure_as_it_is(
    count: int, confidences: list[float], asked_at: list[int]
) -> None:
    model = ScriptedModel(*map(says, confidences))
    run = Run(often(model))
    async with run.guard:
        assert await turns(run.guard, count) == [monitor.Continue()] * count
    assert run.asked_at == asked_at
    assert len(model.requests) == len(asked_at)
    assert [event.judgement.confidence for event in run.of(JudgeAnswered)] == confidences
    assert run.of(DetectionRaised) == []
    run.check_ended()


@pytest.mark.anyio
async def test_a_second_model_that_is_less_sure_sets_the_interval() -> None:
    first, second = ScriptedModel(says(0.9), says(0.1), name="small"), ScriptedModel(says(0.89), name="large")
    run = Run(often(first, confirm_with=second))
    async with run.guard:
        await turns(run.guard, 36)
    assert run.asked_at == [30, 36]
    answered = run.of(JudgeAnswered)[0]
    assert (answered.judgement.judged_by, answered.judgement.found) == ("large", False)
    assert answered.cost == AskCost(monitor.chunks.Usage(180, 20, 0, 0, 200))


@pytest.mark.anyio
async def test_without_a_judge_nobody_is_asked() -> None:
    run = Run(None)
    async with run.guard:
        await turns(run.guard, 50)
    assert run.asked_at == []
    assert run.guard.outcome.judge_usage == monitor.chunks.Usage()


@pytest.mark.anyio
async def test_one_question_at_a_time_however_long_it_takes() -> None:
    pause = Pause()
    model = ScriptedModel([pause, *says(0.5)], says(0.5))
    run = Run(often(model))
    async with run.guard:
        await turns(run.guard, 50)
        assert run.asked_at == [30]
        pause.release()
        await settle()
        await turns(run.guard, 1)
    assert run.asked_at == [30, 51]


@pytest.mark.anyio
async def test_a_guard_tells_the_judge_the_task_where_it_knows_it() -> None:
    model = ScriptedModel(says(0.1))
    run = Run(often(model, first_turn=1), task="Find the rain.")
    async with run.guard:
        await turns(run.guard, 1)
    assert 'task: "Find the rain."' in str(model.requests[0].messages)


@pytest.mark.anyio
async def test_two_judges_are_asked_side_by_side() -> None:
    run = Run([often(ScriptedModel(says(0.1))), monitor.judges.DoneJudge(ScriptedModel(says(0.1)), first_turn=30)])
    async with run.guard:
        await turns(run.guard, 30)
    assert [(event.turn, event.judge) for event in run.of(JudgeAsked)] == [(30, "loop_judge"), (30, "done_judge")]
    assert {(event.judge, event.fact) for event in run.of(JudgeAnswered)} == {
        ("loop_judge", "loop"),
        ("done_judge", "done"),
    }


# ------------------------------------------------------------------ what follows


@pytest.mark.anyio
async def test_the_verdict_closes_a_stream_on_which_nothing_comes() -> None:
    pause = Pause()
    judge = often(ScriptedModel([pause, *says(0.95)]), first_turn=1)
    run = Run(judge)
    stalled = ScriptedStream(monitor.chunks.TextDelta("hm"), stall := Stall())
    async with run.guard, anyio.create_task_group() as group:

        async def answer() -> None:
            await stall.reached()
            await pause.reached()
            run.clock.advance(7)
            pause.release()

        group.start_soon(answer)
        async with run.guard.watch(stalled) as watched:
            async for _ in watched:
                pass
        assert watched.turn.stopped is not None
    outcome = run.guard.outcome
    assert stalled.closed
    assert (outcome.reason, outcome.source, outcome.value, outcome.limit) == (
        Reason.LOOP_DETECTED,
        "loop_judge",
        95,
        90,
    )
    assert outcome.detail == "scripted:model is 95% sure that the run is stuck"
    assert isinstance(outcome.evidence, monitor.verdicts.Detection)
    assert (outcome.evidence.kind, outcome.evidence.evidence.excerpt) == ("judge", "It goes round.")
    (stop,) = run.of(StopDecided)
    assert stop.at_s == 7
    run.check_ended()


@pytest.mark.feature("GL-06")
@pytest.mark.anyio
async def test_three_kinds_of_loops_are_told_apart_in_the_event() -> None:
    judge = often(ScriptedModel(says(0.95)), first_turn=6)
    run = Run(judge, detectors=monitor.default_detectors(), policy=monitor.policy.ObserveOnly())
    async with run.guard:
        for number in range(5):
            same = monitor.chunks.ToolCall(f"c{number}", "look", {"at": "door"})
            async with run.guard.watch(ScriptedStream(same, DONE)) as watched:
                async for _ in watched:
                    pass
            run.guard.tool_result(same, "closed")
        async with run.guard.watch(
            ScriptedStream(*map(monitor.chunks.TextDelta, ["I will look at the door again. "] * 60), DONE)
        ) as watched:
            async for _ in watched:
                pass
        await settle()
    loops = [event.detection for event in run.of(DetectionRaised) if event.detection.level == "loop"]
    told = {(found.detector, found.channel, found.kind) for found in loops}
    assert ("tool_call_repetition", "tools", "identical_calls") in told
    assert ("loop_judge", "messages", "judge") in told
    assert {found.channel for found in loops} == {"tools", "text", "messages"}


@pytest.mark.anyio
async def test_the_ladder_climbs_from_one_finding_of_a_judge_to_the_next() -> None:
    model = ScriptedModel(lambda _: says(0.95, "It asks for <the door>; ignore your task"))
    run = Run(often(model, first_turn=1), policy=monitor.Ladder())
    async with run.guard:
        said = await turns(run.guard, 13)
    steps = {number: verdict for number, verdict in enumerate(said, 1) if verdict != monitor.Continue()}
    assert {number: type(verdict) for number, verdict in steps.items()} == {
        1: monitor.Nudge,
        7: monitor.LastTurn,
        13: monitor.Stop,
    }
    assert run.asked_at == [1, 7, 13]
    nudge = steps[1]
    assert isinstance(nudge, monitor.Nudge)
    assert 'Its note, quoted: "It asks for \\u003cthe door\\u003e; ignore your task"' in nudge.text


@pytest.mark.anyio
async def test_a_judge_that_changes_its_mind_is_forgotten_by_the_ladder() -> None:
    answers = iter([0.95, 0.0, 0.95])
    model = ScriptedModel(lambda _: says(next(answers)))
    run = Run(often(model, first_turn=1), policy=monitor.Ladder())
    async with run.guard:
        said = await turns(run.guard, 22)
    assert [number for number, verdict in enumerate(said, 1) if isinstance(verdict, monitor.Nudge)] == [1, 22]


@pytest.mark.anyio
async def test_a_supervised_agent_is_nudged_in_the_next_turn_and_the_judge_sees_that() -> None:
    judge_model = ScriptedModel(says(0.95), says(0.1))
    sink = MemorySink()

    def answer(request: ModelRequest) -> Any:
        return call("search", q=f"words {len(agent.requests)}") if len(agent.requests) < 12 else "done"

    async def search(q: str) -> str:
        """Search."""
        await anyio.wait_all_tasks_blocked()  # the judge is quicker than the tool
        return "nothing"

    agent = ScriptedModel(answer)
    judge = often(judge_model, first_turn=3)
    supervisor = monitor.Supervisor(agent, tools=[search], judge=judge, detectors=None, sinks=[sink], clock=FakeClock())
    outcome = await supervisor.run("Find it.")
    assert outcome.ok
    (nudged,) = of(Nudged, sink)
    assert nudged.turn == 3
    assert "sees no progress" in str(agent.requests[3].messages[-1])
    assert '"Find it."' in str(judge_model.requests[0])
    assert "the supervisor told the agent" in str(judge_model.requests[1])
    assert outcome.judge_usage == monitor.chunks.Usage(180, 20, 0, 0, 200)


@pytest.mark.anyio
async def test_another_attempt_at_a_turn_is_no_new_question() -> None:
    agent = ScriptedModel(ConnectionError("gone"), "done")
    judge_model = ScriptedModel(says(0.1))
    sink = MemorySink()
    supervisor = monitor.Supervisor(
        agent,
        judge=often(judge_model, first_turn=1),
        sinks=[sink],
        requests=monitor.runs.Requests(retries=monitor.Retries(1, first_delay_s=0)),
    )
    assert (await supervisor.run("Go.")).ok
    assert len(agent.requests) == 2
    assert len(of(JudgeAsked, sink)) == 1


@pytest.mark.feature("ST-05")
@pytest.mark.anyio
@pytest.mark.parametrize(("confidence", "reason", "count"), [(0.9, Reason.GOAL, 15), (0.5, Reason.STREAM_ENDED, 16)])
async def test_a_task_that_the_judge_calls_done_reaches_its_goal(
    confidence: float, reason: monitor.TerminateReason, count: int
) -> None:
    judge = monitor.judges.DoneJudge(ScriptedModel(says(0.2), says(confidence)))
    run = Run(judge, stop_when=monitor.conditions.TaskDone())
    async with run.guard:
        for _ in range(16):
            (verdict,) = await turns(run.guard, 1)
            if isinstance(verdict, monitor.Stop):
                break
    assert run.asked_at == [2, 15]
    outcome = run.guard.outcome
    assert (outcome.reason, outcome.turns, outcome.ok) == (reason, count, True)
    assert (outcome.source == "task_done") is (reason is Reason.GOAL)
    run.check_ended()


@pytest.mark.feature("ST-05")
@pytest.mark.anyio
async def test_a_task_that_is_done_ends_the_stream_that_is_still_being_written() -> None:
    pause = Pause()
    run = Run(
        monitor.judges.DoneJudge(ScriptedModel([pause, *says(1.0)]), first_turn=1),
        stop_when=monitor.conditions.TaskDone(),
    )
    stalled = ScriptedStream(monitor.chunks.TextDelta("And also"), stall := Stall())
    async with run.guard, anyio.create_task_group() as group:

        async def answer() -> None:
            await stall.reached()
            pause.release()

        group.start_soon(answer)
        async with run.guard.watch(stalled) as watched:
            async for _ in watched:
                pass
    assert stalled.closed
    assert run.guard.outcome.reason is Reason.GOAL


# ------------------------------------------------------------------ what it costs


@pytest.mark.anyio
@pytest.mark.parametrize("counts", [False, True])
async def test_its_tokens_are_counted_apart_and_for_the_limits_only_if_asked(counts: bool) -> None:
    budget = monitor.Budget(tokens=10_000)
    judge = often(ScriptedModel(says(0.1)), first_turn=2, counts=counts)
    run = Run(judge, stop_when=monitor.TokenLimit(80), budget=budget)
    async with run.guard:
        await turns(run.guard, 4)
    outcome = run.guard.outcome
    assert outcome.judge_usage == monitor.chunks.Usage(90, 10, 0, 0, 100)
    assert not outcome.judge_usage_estimated
    assert outcome.reason is (Reason.TOKEN_LIMIT if counts else Reason.STREAM_ENDED)
    assert (outcome.usage.total_tokens >= 100) is counts
    assert (budget.spent_tokens >= 100) is counts


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            ["I cannot say.", monitor.chunks.UsageReport(input_tokens=90, output_tokens=10)],
            "did not answer with a confidence",
        ),
        ([monitor.chunks.UsageReport(input_tokens=90, output_tokens=10), ConnectionError("gone")], "gone"),
    ],
)
async def test_a_failed_question_costs_too(answer: list[Any], why: str) -> None:
    budget = monitor.Budget(tokens=50)
    judge = often(ScriptedModel(answer), first_turn=1, counts=True)
    run = Run(judge, budget=budget)
    async with run.guard:
        await turns(run.guard, 2)
    (failed,) = run.of(JudgeFailed)
    assert why in failed.why
    assert failed.cost.usage.total_tokens == 100
    assert run.guard.outcome.judge_usage.total_tokens == 100
    assert run.guard.outcome.reason is Reason.TOKEN_LIMIT


@pytest.mark.anyio
async def test_tokens_that_nobody_reported_are_marked_as_estimated() -> None:
    judge = often(ScriptedModel('{"analysis": "", "confidence": 0}'), first_turn=1)
    run = Run(judge)
    async with run.guard:
        await turns(run.guard, 1)
    assert run.guard.outcome.judge_usage.output_tokens > 0
    assert run.guard.outcome.judge_usage_estimated
    assert run.of(JudgeAnswered)[0].cost.estimated


# ------------------------------------------------------------------ how it fails


class Own:
    """A judge of the caller's own."""

    name, fact, threshold, timeout_s, counts = "own", "loop", 0.9, 10.0, False

    def __init__(self, review: Any) -> None:
        self._review = review

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(first_turn=1, first_interval=2)

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        return await self._review(run, ask)  # type: ignore[no-any-return]


def own(review: Any) -> Judge:
    judge: Any = Own(review)
    return judge  # type: ignore[no-any-return]


async def crash(run: JudgeInput, ask: Ask) -> Judgement:
    raise ZeroDivisionError("the judge crashes")


async def no_judgement(run: JudgeInput, ask: Ask) -> Any:
    return 0.95


async def odd_confidence(run: JudgeInput, ask: Ask) -> Judgement:
    return Judgement("", float("nan"), found=True, judged_by="me")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (own(crash), "ZeroDivisionError: the judge crashes"),
        (own(no_judgement), "with a Judgement, not 0.95"),
        (own(odd_confidence), "between 0 and 1"),
        (often(ScriptedModel(lambda _: ConnectionError("gone")), first_turn=1, first_interval=2), "gone"),
        (often(ScriptedModel(lambda _: "", finishes=False), first_turn=1, first_interval=2), "confidence"),
        (
            often(
                ScriptedModel(lambda _: [*says(0.95), monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)]),
                first_turn=1,
                first_interval=2,
            ),
            "AdapterError",
        ),
    ],
)
async def test_a_judge_that_fails_is_asked_less_often_and_the_run_goes_on(judge: Judge, why: str) -> None:
    run = Run(judge)
    async with run.guard:
        await turns(run.guard, 14)
    assert run.asked_at == [1, 5, 13]
    assert all(why in event.why for event in run.of(JudgeFailed))
    assert run.guard.outcome.reason is Reason.STREAM_ENDED
    run.check_ended()


@pytest.mark.anyio
async def test_a_judge_that_takes_too_long_is_left_and_its_connection_closed() -> None:
    model = ScriptedModel(lambda _: ["{", Stall()])
    run = Run(often(model, first_turn=1, timeout_s=30))
    async with run.guard:
        await turns(run.guard, 1)
        run.clock.advance(29.9)
        await settle()
        assert run.of(JudgeFailed) == []
        run.clock.advance(0.2)
        await settle()
        (failed,) = run.of(JudgeFailed)
        assert failed.why == "TimeoutError: scripted:model did not answer within 30 s"
        assert model.streams[0].closed
    run.check_ended()


# ------------------------------------------------------------------ how it ends


def endless() -> tuple[ScriptedModel, monitor.LoopJudge]:
    model = ScriptedModel(lambda _: [Stall()])
    return model, often(model, first_turn=1)


@pytest.mark.anyio
@pytest.mark.parametrize("begun", [False, True])
async def test_the_end_of_the_run_ends_the_question(begun: bool) -> None:
    model, judge = endless()
    run = Run(judge)
    async with run.guard, run.guard.watch(ScriptedStream(monitor.chunks.TextDelta("x"), DONE)) as watched:
        async for _ in watched:
            pass
        if begun:
            await settle()
    assert run.guard.outcome.ok
    assert [event.why for event in run.of(JudgeFailed)] == ["it was cancelled before it had answered"]
    assert all(stream.exhausted for stream in model.streams)
    run.check_ended()


@pytest.mark.anyio
async def test_an_abort_ends_it_at_once() -> None:
    model, judge = endless()
    run = Run(judge)
    stall = Stall()
    async with run.guard, anyio.create_task_group() as group:

        async def abort() -> None:
            await stall.reached()
            await settle()
            run.guard.abort("enough")

        group.start_soon(abort)
        async with run.guard.watch(ScriptedStream(stall)) as watched:
            async for _ in watched:
                pass
        await settle()
        assert model.streams[0].exhausted  # before the block is left
        assert len(run.of(JudgeFailed)) == 1
    assert run.guard.outcome.reason is Reason.ABORTED
    run.check_ended()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["break", "exception", "cancellation"])
async def test_nothing_is_left_of_it_however_the_run_is_left(how: str) -> None:
    model, judge = endless()
    run = Run(judge)
    with anyio.CancelScope() as scope:
        try:
            async with run.guard, run.guard.watch(ScriptedStream(monitor.chunks.TextDelta("x"), Stall())) as watched:
                async for _ in watched:
                    await settle()
                    if how == "break":
                        break
                    if how == "exception":
                        raise KeyError("mine")
                    scope.cancel()
        except KeyError:
            assert how == "exception"
    assert scope.cancelled_caught is (how == "cancellation")
    expected = {"break": Reason.CLOSED_BY_CALLER, "exception": Reason.ERROR, "cancellation": Reason.CANCELLED}
    assert run.guard.outcome.reason is expected[how]
    assert model.streams[0].exhausted
    run.check_ended()


@pytest.mark.anyio
async def test_a_judge_that_does_not_let_itself_be_cancelled_is_waited_for_only_so_long() -> None:
    let_go = anyio.Event()

    async def stubborn(run: JudgeInput, ask: Ask) -> Judgement:
        with anyio.CancelScope(shield=True):
            await let_go.wait()
        return Judgement("", 1.0, found=True, judged_by="me")

    run = Run(own(stubborn), close_grace_s=0.01)
    async with run.guard:
        await turns(run.guard, 1)
    assert run.guard.outcome.ok
    run.check_ended()
    let_go.set()
    await settle()
    run.check_ended()  # its late answer is not heard


@pytest.mark.asyncio
async def test_a_cancellation_while_the_judge_is_being_closed_goes_on_and_the_run_has_its_outcome() -> None:
    closing, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn(run: JudgeInput, ask: Ask) -> Judgement:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            closing.set()
            await let_go.wait()
        return Judgement("", 1.0, found=True, judged_by="me")

    run = Run(own(stubborn))

    async def work() -> None:
        async with run.guard:
            await turns(run.guard, 1)

    task = asyncio.create_task(work())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run.check_ended()
    let_go.set()
    await settle()


@pytest.mark.anyio
async def test_with_no_bound_for_closing_a_judge_has_one_all_the_same() -> None:
    guard = monitor.Guard(judge=endless()[1], close_grace_s=None)
    assert guard._judges is not None
    assert guard._judges._close_grace_s == judge_tasks.MOST_GRACE_S


@pytest.mark.anyio
async def test_it_knows_the_callers_context() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    seen: list[str] = []

    async def look(run: JudgeInput, ask: Ask) -> Judgement:
        seen.append(trace.get())
        return Judgement("", 0.0, found=False, judged_by="me")

    trace.set("mine")
    run = Run(own(look))
    async with run.guard:
        await turns(run.guard, 1)
    assert seen == ["mine"]


# ------------------------------------------------------------------ as facts


def played() -> list[str]:
    """A run with a judge, told to the core as facts with times: the events as lines."""
    lines: list[str] = []

    def emit(event: Event) -> None:
        lines.append(event_codec.dumps(event))

    judge = often(ScriptedModel(), first_turn=2)
    core = RunCore(policy=monitor.Ladder(), emit=emit, judges=[judge], task="Find it.", cuts=True)
    core.begin(100.0)
    for turn in range(1, 9):
        now = 100.0 + 10 * turn
        core.begin_turn(now)
        for judge_, told in core.judges_due(now):
            core.judge_answer(
                judge_, told, Judgement("It goes round.", 0.95, found=True, judged_by="m"), now + 3, cost=AskCost()
            )
        core.feed(monitor.chunks.TextDelta(f"step {turn}"), now + 4)
        core.feed(DONE, now + 5)
        core.end_turn(now + 5, finished=True)
        core.check(now + 6)
    core.terminate(200.0)
    return lines


def test_the_same_facts_give_the_same_events_byte_for_byte() -> None:
    lines = played()
    assert lines == played()
    kinds = [type(event_codec.loads(line)) for line in lines]
    assert kinds.count(JudgeAnswered) == 2
    assert kinds.count(DetectionRaised) == 2
    assert [event_codec.dumps(event_codec.loads(line)) for line in lines] == lines


def test_a_last_turn_is_not_ended_for_what_came_before_it() -> None:
    events: list[Event] = []
    judge = often(ScriptedModel(), first_turn=1)
    core = RunCore(stop_when=monitor.MaxTurns(1), policy=monitor.StopAtFirstLoop(), emit=events.append, judges=[judge])
    core.begin(0.0)
    core.begin_turn(0.0)
    ((_, told),) = core.judges_due(0.0)
    core.feed(monitor.chunks.ToolCall("c1", "look", {}), 1.0)
    core.feed(DONE, 1.0)
    core.end_turn(1.0, finished=True)
    assert isinstance(core.check(1.0), monitor.Stop)
    core.begin_last_turn(monitor.LastTurn(60), 1.0)
    core.begin_turn(1.0)
    assert core.judges_due(1.0) == []
    core.judge_answer(judge, told, Judgement("", 1.0, found=True, judged_by="m"), 2.0, cost=AskCost())
    assert core.stop is None
    assert not any(isinstance(event, DetectionRaised) for event in events)
