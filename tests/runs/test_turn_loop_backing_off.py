"""What a run does not do again and again, such as weighing what cannot be compacted; and a window
that nobody knows.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.context.compaction.attempts import Pause, Sizes
from monitor.context.compaction.preset import PRESETS
from monitor.errors import CompactionFailure, CompactionReason
from tests.runs.context.test_run_context_compaction import driven, reads
from tests.runs.driving import Drive

pytestmark = pytest.mark.anyio


def preset_of(name: str, **options: Any) -> monitor.Compaction:
    made: monitor.Compaction = getattr(monitor.Compaction, name)(
        **{"summarizer": monitor.context.Extractive(), **options}
    )
    return made


# --- nothing to compact


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is counted is arithmetic
@pytest.mark.parametrize("name", PRESETS)
async def test_one_task_is_weighed_at_most_twice_for_each_compaction(name: str, monkeypatch: pytest.MonkeyPatch):
    """Each user turn of Gemini CLI stays whole, and a run of one task has only one."""
    weighed = 0
    weigh = Sizes.weigh

    async def counted(self: Sizes, pause: Pause) -> None:
        nonlocal weighed
        weighed += 1
        await weigh(self, pause)

    monkeypatch.setattr(Sizes, "weigh", counted)
    d = driven(
        *reads(*[500] * 300),
        "done",
        window=32_000,
        compaction=preset_of(name, background=False),
        stop_when=monitor.MaxTurns(400),
    )
    await d.go()
    assert d.outcome.ok
    compactions = len(d.of(monitor.events.CompactionFinished))
    assert compactions >= 5
    assert len(d.of(monitor.events.CompactionSkipped)) <= compactions + 1
    assert weighed <= 2 * compactions + 1


async def test_after_a_word_of_the_user_it_is_looked_at_again():
    """There the history can be cut."""
    compaction = monitor.Compaction.gemini_cli(steps=(), summarizer=monitor.context.Extractive())
    d: Drive = driven(*reads(*[4_000] * 17, *[1_000] * 6), "done", compaction=compaction)
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.CompactionSkipped) and len(d.of(monitor.events.CompactionSkipped)) == 1:
                run._loop.say("Now the other half.")
    assert d.outcome.ok
    assert [event.why for event in d.of(monitor.events.CompactionSkipped)] == [CompactionFailure.NOTHING_TO_COMPACT]
    (started, *_) = d.of(monitor.events.CompactionStarted)
    assert started.reason is CompactionReason.HIGH_WATER


async def test_results_that_leave_no_room_at_the_mark_are_compacted_when_they_have_been_read():
    compaction = monitor.Compaction(steps=(), background=False, summarizer=monitor.context.Extractive())
    d = driven(*reads(12_000, 12_000, 12_000, 24_000, 24_900, 100, 100), "done", compaction=compaction)
    await d.go()
    assert d.outcome.ok
    skipped = d.of(monitor.events.CompactionSkipped)
    assert len(skipped) <= 1


# --- a window that nobody knows


@pytest.mark.parametrize("name", PRESETS)
async def test_a_compaction_that_was_asked_for_in_a_window_nobody_knows_says_once_that_nothing_will_be_compacted(
    name: str,
):
    d = driven(*reads(10, 10, 10), "done", window=None, compaction=preset_of(name))
    await d.go()
    (warning,) = d.of(monitor.events.WindowWarning)
    assert warning.tokens is None
    assert "give window=" in warning.detail


@pytest.mark.parametrize(
    "options", [{"window": None, "compaction": None}, {"window": 100_000, "compaction": monitor.Compaction()}]
)
async def test_where_none_was_asked_for_or_the_window_is_known_nothing_is_said(options: dict[str, Any]):
    d = driven(*reads(10, 10, 10), "done", **options)
    await d.go()
    assert not d.of(monitor.events.WindowWarning)


async def test_by_default_nothing_is_said_either():
    model = monitor.testing.ScriptedModel("done")
    d = Drive(model=model)
    await d.go()
    assert not d.of(monitor.events.WindowWarning)
