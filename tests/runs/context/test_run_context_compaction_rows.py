"""Rows of OpenClaw's and pi's own tests of refusals (R) and timeouts (X), restated for a run of a
supervisor.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.context.compaction.summarizer import Summary
from monitor.context.reduce import ClipResults, propose_edit
from monitor.errors import CompactionFailure, CompactionReason
from monitor.testing import Stall, call
from monitor.testing.scripted import Do
from tests.runs.context.test_run_context_compaction import (
    CEILING,
    FULL,
    PROMPT_TOO_LONG,
    REFUSED,
    SUMMARY,
    TooLong,
    begins_with_summary,
    driven,
    first_result,
    reads,
    sizes,
    text_of,
    until_asked,
)
from tests.runs.driving import Reason

pytestmark = [pytest.mark.anyio, pytest.mark.feature("CL-06", "CL-07")]

AT_ONCE = monitor.Retries(1, first_delay_s=0.0)


async def test_r5_a_summary_that_is_refused_for_its_size_is_not_recovered_by_another_compaction():
    d = driven(*CEILING, "done", summaries=[TooLong(PROMPT_TOO_LONG)] * 3)
    await d.go()
    assert d.outcome.ok
    assert [event.reason for event in d.of(monitor.events.CompactionStarted)] == [CompactionReason.CEILING]
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == "extractive"
    assert any("too long" in warning for warning in finished.warnings)
    assert not d.of(monitor.events.RetryScheduled)


async def test_r8_what_was_cut_while_the_request_was_under_way_is_the_answer_to_its_refusal():
    def cut() -> None:
        history = d.run._history
        reduction = propose_edit(history, ClipResults(1_000))
        assert reduction is not None
        history.commit(reduction.edit)

    d = driven(*FULL, [Do(cut), REFUSED], "done")
    await d.go()
    assert d.outcome.ok
    assert (len(d.model.work), len(d.model.summaries)) == (6, 0)
    assert sizes(d.model.work[5]) < sizes(d.model.work[4]) // 2
    assert [event.attempt for event in d.of(monitor.events.RetryScheduled)] == [2]


@pytest.mark.parametrize("finds", ["half an answer", "nothing"])
async def test_r14_a_run_that_runs_out_of_time_says_so_and_half_an_answer_is_none(finds: str):
    stall = Stall()
    d = driven(
        *reads(10),
        ["half of the", stall] if finds == "half an answer" else [stall],
        stop_when=monitor.Timeout(60),
        last_turn=None,
    )
    await until_asked(d, stall, lambda: d.clock.advance(60))
    assert (d.outcome.reason, d.outcome.source, d.outcome.ok) == (Reason.TIMEOUT, "timeout", False)
    assert d.outcome.output is None


async def test_r17_a_short_request_is_sent_as_it_is():
    d = driven(*reads(10), "done", compaction=monitor.Compaction())
    await d.go()
    assert d.run.history == d.run.originals
    assert not d.of(monitor.events.CompactionStarted)
    assert not d.of(monitor.events.HistoryReduced)


async def test_r18_a_long_talk_without_results_is_summarised_and_nothing_is_cut():
    talk = [
        monitor.UserMessage((monitor.messages.Text("word" * 4_000),)),
        monitor.AssistantMessage((monitor.messages.Text("word" * 600),)),
    ] * 21
    d = driven("done", history=talk, compaction=monitor.Compaction())
    await d.go()
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == "scripted:model"
    kept = d.model.work[0].messages[-finished.kept_messages :]
    assert kept == d.run.originals[: len(talk) + 1][-finished.kept_messages :]


async def test_r20_results_that_are_cut_but_not_by_enough_are_summarised_as_well():
    """Three results of 40,000 of which each may have 30,000 of the window, behind a talk that is
    itself too long.
    """
    talk = [
        monitor.UserMessage((monitor.messages.Text("word" * 3_000),)),
        monitor.AssistantMessage((monitor.messages.Text("word" * 600),)),
    ] * 17
    d = driven([*reads(40_000)], "done", history=talk)
    await d.go()
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == "scripted:model"
    assert begins_with_summary(d.model.work[1])
    kept = [result for one in d.run.history for result in getattr(one, "results", ())]
    assert all(len(result.text) < 4 * 40_000 for result in kept)
    assert len(first_result(d.run.originals).text) == 4 * 40_000


class Settled(Stall):
    """A step that takes as long as what goes on beside it."""

    async def perform(self) -> None:
        await anyio.wait_all_tasks_blocked()


async def test_r21_a_network_that_fails_once_is_told_once_and_one_that_goes_on_failing_ends_it():
    d = driven(*FULL, ConnectionError("gone"), "done", requests=monitor.runs.Requests(retries=AT_ONCE))
    await d.go()
    assert d.outcome.ok
    assert len(d.of(monitor.events.RetryScheduled)) == 1
    d = driven(*FULL, ConnectionError("gone"), ConnectionError("gone"), requests=monitor.runs.Requests(retries=AT_ONCE))
    await d.go()
    assert d.outcome.reason is Reason.ERROR
    assert len(d.of(monitor.events.RetryScheduled)) == 1
    assert not d.of(monitor.events.CompactionStarted)


async def test_r21_so_it_is_with_a_summary():
    d = driven(*CEILING, "done", summaries=[ConnectionError("gone"), SUMMARY])
    await d.go()
    assert d.of(monitor.events.CompactionFinished)[0].summarised_by == "scripted:model"
    at_the_mark = [*reads(20_000, 20_000, 20_000, 18_000, 8_000, 10), [Settled(), "done"]]
    d = driven(*at_the_mark, summaries=[ConnectionError("gone")] * 2)
    await d.go()
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert (failed.failure, failed.retryable) == (CompactionFailure.PROVIDER, True)


async def test_a_summary_that_is_refused_for_another_reason_is_not_worth_another_try():
    d = driven(
        *reads(20_000, 20_000, 20_000, 18_000, 8_000, 10), "done", summaries=[RuntimeError("this key is not valid")]
    )
    await d.go()
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert (failed.failure, failed.retryable) == (CompactionFailure.PROVIDER, False)


@pytest.mark.parametrize(("takes_s", "by"), [(179, "scripted:model"), (181, "extractive")], ids=["x1", "x2"])
async def test_x1_x2_a_summary_within_its_time_and_one_that_is_late(takes_s: int, by: str):
    d = driven(*CEILING, "done", summaries=[[Do(lambda: d.clock.advance(takes_s)), SUMMARY]])
    await d.go()
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == by
    assert any("180 s" in warning for warning in finished.warnings) == (by == "extractive")


class Slow:
    """A summariser that takes its time, or fails."""

    name = "slow"

    def __init__(self, does: Any) -> None:
        self.does = does

    async def summarize(self, task: Any, ask: Any, *, progress: Any, checkpoint: Any = None) -> Summary:
        if isinstance(self.does, Exception):
            raise self.does
        if self.does is not None:
            await self.does.perform()
        return Summary(text=SUMMARY, by=self.name)


@pytest.mark.parametrize(
    ("row", "failure"),
    [("late", CompactionFailure.TIMEOUT), ("early", None), ("rejects", CompactionFailure.CRASHED)],
    ids=str,
)
async def test_x7_who_waits_for_a_compaction_is_told_when_it_is_late_done_or_broken(
    row: str, failure: CompactionFailure | None
):
    stall = Stall()
    does = {"late": stall, "early": None, "rejects": RuntimeError("broken")}[row]
    told: list[Any] = []

    async def compact(context: monitor.ToolContext) -> str:
        """Make the history smaller."""
        assert isinstance(context.run, monitor.Run)
        try:
            told.append(await context.run.compact())
        except monitor.context.CompactionError as error:
            told.append(error)
        return "ok"

    def read(n: int) -> str:
        """Read something of n tokens."""
        return "word" * n

    compaction = monitor.Compaction(steps=(), summarizer=Slow(does))
    d = driven(*reads(9_000, 9_000), call("compact"), "done", tools=[read, compact], compaction=compaction)
    if row == "late":
        await until_asked(d, stall, lambda: d.clock.advance(185))
    else:
        await d.go()
    assert d.outcome.ok
    assert getattr(told[0], "failure", None) is failure
    if failure is not None:
        assert d.run.history == d.run.originals


@pytest.mark.parametrize("refusals", [1, 2])
async def test_r9_whatever_is_refused_each_tool_is_carried_out_once(refusals: int):
    ran: list[int] = []

    def read(n: int) -> str:
        """Read something of n tokens."""
        ran.append(n)
        return "word" * n

    d = driven(*FULL, *[REFUSED] * refusals, *reads(7), "done", tools=[read])
    await d.go()
    assert d.outcome.ok
    assert len(d.of(monitor.events.CompactionFinished)) == refusals
    assert ran == [20_000, 20_000, 20_000, 18_000, 7]


async def test_the_newest_request_goes_out_once_more_and_not_twice():
    talk = [
        monitor.UserMessage((monitor.messages.Text("word" * 3_000),)),
        monitor.AssistantMessage((monitor.messages.Text("word" * 600),)),
    ] * 20
    d = driven(REFUSED, "done", history=talk, task="and the newest request")
    await d.go()
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.replayed == len(d.model.work[1].messages) - 1
    for messages in (d.model.work[1].messages, d.run.history, d.run.originals):
        assert [text_of(one) for one in messages].count("and the newest request") == 1
