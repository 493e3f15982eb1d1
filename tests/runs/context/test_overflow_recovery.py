"""A refused request, made smaller: which steps are carried out, in which order, and when it is
given up.
"""

from __future__ import annotations

import pytest

import monitor
from monitor.context.history import HistoryEdit
from monitor.context.overflow import Overflow, OverflowKind
from monitor.errors import CompactionReason
from monitor.messages import Media
from monitor.models import ErrorKind, ModelError
from monitor.runs.context.run_context import OverflowRecovery, overflow_of
from tests.context.talk import IMAGE, ran, said, tokens, user
from tests.runs.context.test_compactor import SUMMARY, TALK, Bench

pytestmark = [pytest.mark.anyio, pytest.mark.feature("CL-07")]

TOO_LONG = Overflow(OverflowKind.OVERFLOW, "any")


async def carried_out(refused: OverflowRecovery, bench: Bench, overflow: Overflow) -> str | None:
    """What comes of it where the run waits for each compaction."""
    steps = refused.make_smaller(overflow)
    while True:
        try:
            job = next(steps)
        except StopIteration as end:
            given_up: str | None = end.value
            return given_up
        await bench.compactor.outcome(job)


def rescue(bench: Bench) -> OverflowRecovery:
    made = OverflowRecovery(bench.compactor)
    made.sent()
    return made


def reasons(bench: Bench) -> list[CompactionReason]:
    return [event.reason for event in bench.events if isinstance(event, monitor.events.CompactionStarted)]


async def test_a_compaction_is_all_it_takes():
    bench = Bench()
    assert await carried_out(rescue(bench), bench, TOO_LONG) is None
    assert reasons(bench) == [CompactionReason.OVERFLOW]


async def test_an_answer_that_was_cut_off_is_named_so():
    bench = Bench()
    assert await carried_out(rescue(bench), bench, Overflow(OverflowKind.OUTPUT_TRUNCATED, "any")) is None
    assert reasons(bench) == [CompactionReason.SILENT_OVERFLOW]


async def test_hopeless_is_nothing_at_all():
    bench = Bench()
    given_up = await carried_out(rescue(bench), bench, Overflow(OverflowKind.HOPELESS, "groq", 60_000, 6_000))
    assert given_up is not None
    assert bench.events == []
    assert bench.compactor.when.marks.window.tokens == 100_000  # it says nothing of the window


async def test_a_limit_that_is_stated_is_learned():
    bench = Bench()
    await carried_out(rescue(bench), bench, Overflow(OverflowKind.OVERFLOW, "any", 60_000, 50_000))
    assert bench.compactor.when.marks.window.tokens == 50_000


async def test_too_many_bytes_are_media_first_without_a_model():
    bench = Bench(messages=(user("look", IMAGE), said("a chart"), user("and?")))
    assert await carried_out(rescue(bench), bench, Overflow(OverflowKind.BYTES, "any")) is None
    assert [event.kind for event in bench.events if isinstance(event, monitor.events.HistoryReduced)] == ["media"]
    assert not any(isinstance(part, Media) for one in bench.history.messages for part in one.content)
    assert bench.model.requests == []


async def test_media_go_last_where_tokens_are_the_matter():
    bench = Bench(messages=(user("look", IMAGE),))
    refused = rescue(bench)
    assert await carried_out(refused, bench, TOO_LONG) is None
    assert [event.kind for event in bench.events if isinstance(event, monitor.events.HistoryReduced)] == ["media"]
    refused.sent()
    assert await carried_out(refused, bench, TOO_LONG) is not None


async def test_what_has_become_shorter_since_it_was_sent_goes_out_again_as_it_is_but_not_what_has_become_longer():
    bench = Bench()
    refused = rescue(bench)
    bench.history.commit(HistoryEdit(bench.history.version, 1, 2, (ran("cut"),), "prune"))
    assert await carried_out(refused, bench, TOO_LONG) is None
    assert bench.events == []
    bench = Bench()
    refused = rescue(bench)
    bench.history.append(ran("more"))
    assert await carried_out(refused, bench, TOO_LONG) is None
    assert reasons(bench) == [CompactionReason.OVERFLOW]


async def test_when_the_run_ends_meanwhile_nothing_is_given_up():
    bench = Bench()
    steps = rescue(bench).make_smaller(TOO_LONG)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is None
    await bench.compactor.close()
    assert bench.history.messages == TALK


async def test_nothing_to_compact_but_results_too_large_are_cut_once():
    bench = Bench(messages=(user("look"), ran(tokens(40_000))), attempts=0)
    refused = rescue(bench)
    assert await carried_out(refused, bench, TOO_LONG) is None
    assert [event.kind for event in bench.events if isinstance(event, monitor.events.HistoryReduced)] == ["truncate"]
    refused.sent()
    given_up = await carried_out(refused, bench, TOO_LONG)
    assert given_up is not None
    assert "a truncation of tool results" in given_up


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError(ErrorKind.OVERFLOW, "something new"), OverflowKind.OVERFLOW),
        (ModelError(ErrorKind.REQUEST, "prompt is too long: 9 tokens > 8 maximum"), OverflowKind.OVERFLOW),
        (ModelError(ErrorKind.RATE_LIMITED, "rate limit reached", status=429), None),
        (ModelError(ErrorKind.SERVER, "overloaded"), None),
        (None, None),
    ],
)
async def test_what_a_failed_call_says_of_its_size(error: ModelError | None, kind: OverflowKind | None):
    found = overflow_of(error)
    assert (found.kind if found is not None else None) is kind


def test_the_summary_is_one() -> None:
    assert "Find out." in SUMMARY
