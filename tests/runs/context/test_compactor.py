"""One run's compactions: one at a time, all of it or nothing, and thrown away where they come too
late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import monitor
from monitor.chunks import AskCost
from monitor.context.compaction.hooks import CompactionError, CompactionResult
from monitor.context.compaction.pinned import ACKNOWLEDGEMENT
from monitor.context.compaction.templates import CHECKPOINT
from monitor.context.cut import KeepTokens
from monitor.context.history import History, HistoryEdit
from monitor.context.tokens import ContextMeter
from monitor.context.window import Window
from monitor.errors import CompactionFailure, CompactionReason
from monitor.messages import AssistantMessage, Message
from monitor.runs.context.compaction_job import LATE_S, RunServices
from monitor.runs.context.compactor import Compactor
from monitor.testing import FakeClock, Pause, ScriptedModel, Stall
from tests.context.talk import ran, tokens, user, words

pytestmark = pytest.mark.anyio

SUMMARY = CHECKPOINT.skeleton({"Goal": "Find out."})
HIGH, MANUAL, OVERFLOW = CompactionReason.HIGH_WATER, CompactionReason.MANUAL, CompactionReason.OVERFLOW
TALK = (user("find out"), ran(tokens(9_000)), user("and more"), ran(tokens(9_000)), user("and this"))


class Bench:
    """A compactor with everything around it."""

    def __init__(
        self, *answers: Any, messages: tuple[Message, ...] = TALK, driven: bool = True, **options: Any
    ) -> None:
        self.history = History(messages)
        self.clock = FakeClock()
        self.model = ScriptedModel(*(answers or (SUMMARY,)))
        self.events: list[monitor.events.Event] = []
        self.cost = AskCost()
        self.compactor = Compactor(
            monitor.Compaction(**{"steps": (), "keep": KeepTokens(1_000), **options}),
            self.history,
            model=self.model,
            window=Window(100_000),
            meter=ContextMeter(self.history),
            run=RunServices(
                clock=self.clock,
                emit=self.events.append,
                close_grace_s=2.0,
                at=float,
                turns=lambda: 3,
                charge=self.charge,
            ),
            driven=driven,
        )

    def charge(self, cost: AskCost) -> None:
        self.cost += cost

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__.removeprefix("Compaction") for event in self.events]

    async def done(self, reason: CompactionReason = MANUAL, *, meanwhile: Callable[[], object] = lambda: None) -> Any:
        """The outcome of one, of which something comes in between."""
        job = self.compactor.start(reason)
        assert job is not None
        meanwhile()
        return await self.compactor.outcome(job)


async def test_one_at_a_time_and_who_comes_later_gets_the_one_under_way():
    pause = Pause()
    bench = Bench([pause, SUMMARY])
    first = bench.compactor.start(HIGH, waited_for=False)
    second = bench.compactor.start(OVERFLOW)
    assert first is second is bench.compactor.job
    assert first is not None
    pause.release()
    assert isinstance(await bench.compactor.outcome(first), CompactionResult)
    assert len(bench.model.requests) == 1
    assert bench.kinds == ["Started", "Progressed", "Finished"]
    assert bench.compactor.job is None


async def test_what_was_said_meanwhile_stays_behind_the_summary():
    pause = Pause()
    bench = Bench([pause, SUMMARY])
    job = bench.compactor.start(HIGH, waited_for=False)
    assert job is not None
    await pause.reached()
    late = ran("late")
    bench.history.append(late)
    pause.release()
    result = await bench.compactor.outcome(job)
    assert isinstance(result, CompactionResult)
    assert result.messages == bench.history.messages
    assert bench.history.messages[-1] is late
    assert bench.history.originals == (*TALK, late)


async def test_one_whose_messages_have_been_changed_is_stale_kept_and_retryable():
    pause = Pause()
    bench = Bench([pause, SUMMARY])
    job = bench.compactor.start(HIGH, waited_for=False)
    assert job is not None
    await pause.reached()
    bench.history.commit(HistoryEdit(bench.history.version, 1, 2, (ran("cut"),), "prune"))
    before = bench.history.messages
    pause.release()
    error = await bench.compactor.outcome(job)
    assert isinstance(error, CompactionError)
    assert (error.failure, error.retryable) == (CompactionFailure.STALE, True)
    assert bench.history.messages is before
    (stale,) = bench.compactor.stale
    assert "Find out." in words(stale.messages)[0]


async def test_one_that_is_cancelled_before_it_began_was_skipped():
    bench = Bench()
    job = bench.compactor.start(MANUAL)
    assert job is not None
    await bench.compactor.close()
    assert bench.kinds == ["Skipped"]
    assert isinstance(await bench.compactor.outcome(job), CompactionError)
    assert bench.model.requests == []
    assert bench.clock.pending == 0


async def test_a_run_s_last_turn_gets_one_without_a_model_and_none_at_the_mark():
    bench = Bench()
    bench.compactor.cancel()
    assert bench.compactor.start(OVERFLOW) is None
    bench.compactor.last_turn()
    result = await bench.done(OVERFLOW)
    assert isinstance(result, CompactionResult)
    assert result.summarised_by == "extractive"
    assert bench.model.requests == []
    assert bench.compactor.when.due(90_000) is None
    assert bench.compactor.when.due(99_000) is CompactionReason.CEILING


async def test_a_hook_that_does_not_return_is_given_up_and_the_history_is_as_before():
    stall = Stall()
    bench = Bench(hooks=(monitor.context.CompactionHook(before=lambda _: stall.perform()),))
    job = bench.compactor.start(MANUAL)
    assert job is not None
    await stall.reached()
    bench.clock.advance(180 + LATE_S)
    error = await bench.compactor.outcome(job)
    assert isinstance(error, CompactionError)
    assert error.failure is CompactionFailure.TIMEOUT
    assert bench.history.messages == TALK
    assert bench.clock.pending == 0


async def test_a_hook_after_it_that_does_not_return_takes_nothing_back():
    stall = Stall()
    bench = Bench(hooks=(monitor.context.CompactionHook(after=lambda _: stall.perform()),))
    job = bench.compactor.start(MANUAL)
    assert job is not None
    await stall.reached()
    bench.clock.advance(2 * 180 + LATE_S)  # progress was worth as much time again
    assert isinstance(await bench.compactor.outcome(job), CompactionResult)
    assert bench.kinds[-1] == "Finished"
    assert bench.compactor.job is None


async def test_a_pressing_need_is_there_until_something_has_been_tried():
    pause = Pause()
    bench = Bench([pause, "No."], *["No."] * 5, SUMMARY)
    assert bench.compactor.due() is None
    job = bench.compactor.start(HIGH, waited_for=False)
    assert job is not None
    bench.compactor.when.pressed = CompactionReason.SILENT_OVERFLOW
    assert bench.compactor.due() is CompactionReason.SILENT_OVERFLOW
    assert bench.compactor.start(CompactionReason.SILENT_OVERFLOW) is job
    pause.release()
    assert isinstance(await bench.compactor.outcome(job), CompactionError)
    assert bench.compactor.due() is CompactionReason.SILENT_OVERFLOW
    await bench.done(CompactionReason.SILENT_OVERFLOW)
    assert bench.compactor.due() is None


@pytest.mark.feature("GZ-08")
async def test_nothing_stands_between_a_summary_and_the_answer_that_comes_next():
    """Where the caller speaks next, an acknowledgement does."""
    everything = (user("find out"), ran(tokens(60_000)))
    for driven in (True, False):
        bench = Bench(messages=everything, driven=driven, continues="never")
        result = await bench.done(MANUAL)
        assert isinstance(result, CompactionResult)
        acknowledged = [
            one for one in result.messages if isinstance(one, AssistantMessage) and words((one,)) == [ACKNOWLEDGEMENT]
        ]
        if result.kept_messages:
            continue
        assert bool(acknowledged) is not driven
        assert result.record is not None
        assert result.record.shown == result.messages


async def test_a_compaction_that_comes_beside_the_run_counts_no_estimate_of_nothing():
    """A provider that reports no usage says nothing of how full the context is; nor does it forget
    what failed.
    """
    bench = Bench("No.", "No.", "No.")
    bench.compactor.stream_finished(0)
    assert bench.compactor.job is None
    await bench.done(HIGH)
    held = dict(bench.compactor.when._held)
    assert held
    bench.compactor.stream_finished(0)
    assert bench.compactor.when._held == held


async def test_the_result_says_how_many_requests_it_took():
    bench = Bench("", SUMMARY)  # an empty answer is asked for once more
    result = await bench.done(MANUAL)
    assert isinstance(result, CompactionResult)
    assert result.model_calls == len(bench.model.requests) == 2
    bench = Bench(summarizer=monitor.context.Extractive())
    result = await bench.done(MANUAL)
    assert isinstance(result, CompactionResult)
    assert result.model_calls == 0


async def test_what_a_model_has_read_is_estimated_where_its_provider_does_not_say():
    bench = Bench()
    result = await bench.done(MANUAL)
    assert isinstance(result, CompactionResult)
    assert result.cost.estimated
    assert 1_000 < result.cost.usage.input_tokens < 3_000  # long results are cut before they are read
    assert result.cost.usage.total_tokens == result.cost.usage.input_tokens + result.cost.usage.output_tokens
    bench = Bench([SUMMARY, monitor.chunks.UsageReport(7_000, 30)])
    result = await bench.done(MANUAL)
    assert isinstance(result, CompactionResult)
    assert (result.cost.estimated, result.cost.usage.input_tokens) == (False, 7_000)


async def test_one_that_runs_out_of_time_as_its_run_ends_is_not_made_in_another_way():
    stall = Stall()
    bench = Bench([stall])
    job = bench.compactor.start(OVERFLOW)
    assert job is not None
    await stall.reached()
    bench.clock.advance(180 + LATE_S)
    await bench.compactor.close()
    assert isinstance(await bench.compactor.outcome(job), CompactionError)
    assert bench.compactor.job is None
    assert bench.kinds == ["Started", "Failed"]
    assert bench.history.messages == TALK
    assert bench.clock.pending == 0


async def test_after_a_summary_that_was_no_good_the_next_is_made_from_the_beginning():
    bench = Bench(*["no sections"] * 6, SUMMARY)
    refused = await bench.done()
    assert isinstance(refused, CompactionError)
    assert refused.failure is CompactionFailure.REJECTED
    assert isinstance(await bench.done(), CompactionResult)
    again = bench.model.requests[-1]
    assert "no sections" not in words(again.messages)[0]
    assert "find out" in words(again.messages)[0]
