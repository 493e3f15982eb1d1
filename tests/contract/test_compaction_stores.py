"""What holds for every store of compactions. A new one needs a line in `MAKERS` and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

import monitor
from monitor.context.compaction.hooks import CompactionRecord, CompactionStore, compaction_codec, shown
from monitor.errors import CompactionFailure, CompactionReason
from monitor.messages import Text, UserMessage
from tests.runs.context.test_run_context_compaction import CEILING, driven, reads

pytestmark = pytest.mark.feature("AC-10", "OC-16")

MAKERS: dict[str, Callable[[], CompactionStore]] = {"memory": monitor.context.InMemoryCompactions}


@pytest.fixture(params=list(MAKERS.values()), ids=list(MAKERS))
def store(request: pytest.FixtureRequest) -> CompactionStore:
    made: CompactionStore = request.param()
    return made


def record(number: int) -> CompactionRecord:
    says = UserMessage((Text(f"Summary {number}."),), synthetic=True)
    return CompactionRecord(
        summary=f"Summary {number}.", shown=(says,), first_kept=number + 1, tokens_before=100, tokens_after=10
    )


class Full:
    """A store whose disk is full."""

    def __init__(self, store: CompactionStore) -> None:
        self._store = store

    def add(self, record: CompactionRecord) -> None:
        raise monitor.errors.StoreError("the disk is full")

    def records(self) -> Sequence[CompactionRecord]:
        return self._store.records()


def test_it_begins_empty_and_keeps_what_comes_in_its_order(store: CompactionStore):
    assert list(store.records()) == []
    for number in range(5):
        store.add(record(number))
        assert list(store.records()) == [record(one) for one in range(number + 1)]


def test_what_it_answered_is_not_changed_by_what_comes_later(store: CompactionStore):
    store.add(record(0))
    before = store.records()
    store.add(record(1))
    assert list(before) == [record(0)]


@pytest.mark.parametrize("wrong", [None, "a summary", {"summary": "x"}, object()])
def test_only_records_are_kept(store: CompactionStore, wrong: Any):
    with pytest.raises(monitor.errors.StoreError):
        store.add(wrong)
    assert list(store.records()) == []


@pytest.mark.anyio
async def test_a_run_s_history_can_be_made_again_from_its_originals_and_the_records_also_of_json(
    store: CompactionStore,
):
    d = driven(
        *CEILING, *reads(24_000, 24_000, 24_000, 10), "done", compaction=monitor.Compaction(steps=(), store=store)
    )
    seen = 0
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            seen += 1
            assert shown(run.originals, store.records()) == run.history
    assert d.outcome.ok
    assert seen > 10
    records = store.records()
    assert [one.reason for one in records] == [CompactionReason.CEILING] * 2
    assert len(d.of(monitor.events.CompactionFinished)) == 2
    again = [compaction_codec.loads(compaction_codec.dumps(one)) for one in records]
    assert again == list(records)
    assert shown(run.originals, again) == run.history


@pytest.mark.anyio
async def test_what_cannot_be_recorded_is_not_done(store: CompactionStore):
    d = driven(*CEILING, "done", compaction=monitor.Compaction(steps=(), store=Full(store)))
    await d.go()
    assert d.outcome.ok
    (failed,) = d.of(monitor.events.CompactionFailed)
    assert (failed.failure, failed.retryable) == (CompactionFailure.CRASHED, False)
    assert "the disk is full" in failed.detail
    assert not d.of(monitor.events.CompactionFinished)
    assert d.run.history == d.run.originals
    assert list(store.records()) == []


@pytest.mark.anyio
async def test_nothing_is_recorded_of_one_that_failed(store: CompactionStore):
    answers = [*reads(20_000, 20_000, 20_000, 18_000, 8_000, 10), "done"]
    d = driven(*answers, summaries="No.", compaction=monitor.Compaction(steps=(), store=store))
    await d.go()
    assert d.of(monitor.events.CompactionFailed)
    assert list(store.records()) == []


@pytest.mark.anyio
@pytest.mark.parametrize("window", [32_000, 1_000_000])
async def test_runs_that_share_a_store_do_not_mix(store: CompactionStore, window: int):
    """Also where the second one needs no compaction: what the first one left says nothing of it."""
    compaction = monitor.Compaction(steps=(), store=store, summarizer=monitor.context.Extractive())
    runs = []
    for size in (32_000, window):
        d = driven(*reads(*[6_000] * 8), "done", window=size, compaction=compaction)
        await d.go()
        runs.append(d)
        assert d.outcome.ok
        assert len(store.records()) == len(d.of(monitor.events.CompactionFinished))
        assert shown(d.run.originals, store.records()) == d.run.history
    assert runs[0].of(monitor.events.CompactionFinished)


@pytest.mark.anyio
async def test_of_runs_at_the_same_time_each_has_its_own():
    store = monitor.context.InMemoryCompactions()
    compaction = monitor.Compaction(steps=(), store=store, summarizer=monitor.context.Extractive())
    first, second = (driven(*reads(*[6_000] * many), "done", window=32_000, compaction=compaction) for many in (8, 11))
    async with anyio.create_task_group() as group:
        group.start_soon(first.go)
        group.start_soon(second.go)
    of_first, of_second = store.runs()
    assert shown(first.run.originals, of_first) == first.run.history
    assert shown(second.run.originals, of_second) == second.run.history
    assert len(of_first) < len(of_second)
    assert store.records() == of_second


def test_a_store_whose_part_for_a_run_is_none_is_refused():
    class Wrong(monitor.context.InMemoryCompactions):
        def for_run(self) -> Any:
            return "a store"

    with pytest.raises(monitor.ConfigError, match="for_run"):
        monitor.Supervisor(monitor.testing.ScriptedModel("done"), compaction=monitor.Compaction(store=Wrong())).stream(
            "go"
        )
