"""Parts of a compaction that are the caller's, and that raise or answer with nonsense: no run ends
for it where a cut helps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

import monitor
from monitor.context.compaction.hooks import CompactionHook
from monitor.context.compaction.summarizer import Summary
from monitor.context.cut import CutPoint
from monitor.errors import CompactionFailure
from monitor.messages import AssistantMessage, Message
from tests.context.talk import ran
from tests.examples import every_second
from tests.runs.context.test_run_context_compaction import PROMPT_TOO_LONG, Failure, TooLong, driven, reads

pytestmark = pytest.mark.anyio


class Broken(Exception):
    """Raised on purpose."""


def raising(error: BaseException) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise error

    return raises


ERRORS: dict[str, BaseException] = {
    "own": Broken("no"),
    "config": monitor.ConfigError("no"),
    "stop": StopIteration(),
    "timeout": TimeoutError("slow"),
    "group": ExceptionGroup("many", [Broken("one"), Broken("two")]),
    "cancelled": asyncio.CancelledError(),
}


class Keep:
    """A rule for what is kept."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.cut = answer


class Step:
    """A reducer."""

    name = "step"

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.reduce = answer


class Nameless(Step):
    """One whose name raises."""

    @property
    def name(self) -> str:  # type: ignore[override]
        raise Broken("no name")


class Summarises:
    """A summariser."""

    name = "own"

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer

    async def summarize(self, *given: Any, **options: Any) -> Summary:
        summary: Summary = self._answer(*given, **options)
        return summary


def orphaned(messages: Sequence[Message], **_: object) -> Any:
    """Results without their calls: no message takes that, so the calls stay and the results go."""
    return tuple(AssistantMessage(one.content) if isinstance(one, AssistantMessage) else one for one in messages)


NONSENSE: dict[str, dict[str, Any]] = {
    "keep: a word": {"keep": Keep(lambda *_, **__: "all")},
    "keep: behind the end": {"keep": Keep(lambda *_, **__: CutPoint(10_000, None, 5))},
    "keep: before the beginning": {"keep": Keep(lambda *_, **__: CutPoint(-3, None, 5))},
    "keep: everything": {"keep": Keep(lambda *_, **__: CutPoint(0, None, 5))},
    "keep: no size": {"keep": Keep(lambda *_, **__: CutPoint(2, None, None))},  # type: ignore[arg-type]
    "step: nothing": {"steps": (Step(lambda *_, **__: None),)},
    "step: words": {"steps": (Step(lambda *_, **__: ("a", "b")),)},
    "step: no messages left": {"steps": (Step(lambda *_, **__: ()),)},
    "step: more": {"steps": (Step(lambda messages, **_: (*messages, *messages)),)},
    "step: no results": {"steps": (Step(orphaned),)},
    "step: others": {"steps": (Step(lambda *_, **__: (ran("other"),)),)},
    "summariser: nothing": {"summarizer": Summarises(lambda *_, **__: None)},
    "summariser: a number": {"summarizer": Summarises(lambda *_, **__: Summary(text=7, by="own"))},  # type: ignore[arg-type]
    "summariser: without a name": {"summarizer": Summarises(lambda *_, **__: Summary(text="", by=""))},
    "hook: a word": {"hooks": [CompactionHook(before=lambda _: "yes", autocontinue=lambda _: "yes")]},  # type: ignore[arg-type,return-value]
    "hook: nothing to summarise": {
        "hooks": [CompactionHook(before=lambda _: monitor.context.BeforeCompaction(messages=[]))]
    },
    "hook: words to summarise": {
        "hooks": [
            CompactionHook(before=lambda _: monitor.context.BeforeCompaction(messages=["a"])),  # type: ignore[list-item]
        ]
    },
    "after a turn: words": {"after_turn": (Step(lambda *_, **__: ("a", "b")),)},
    "after a turn: nothing": {"after_turn": (Step(lambda *_, **__: ()),)},
}

RAISES: dict[str, Callable[[Callable[..., Any]], dict[str, Any]]] = {
    "keep": lambda raises: {"keep": Keep(raises)},
    "step": lambda raises: {"steps": (Step(raises),)},
    "step's name": lambda raises: {"steps": (Nameless(raises),)},
    "summariser": lambda raises: {"summarizer": Summarises(raises)},
    "hook before": lambda raises: {"hooks": [CompactionHook(before=raises)]},
    "hook after": lambda raises: {"hooks": [CompactionHook(after=raises)]},
    "hook that is asked whether to go on": lambda raises: {
        "hooks": [CompactionHook(autocontinue=raises)],
        "continues": "always",
    },
    "after a turn": lambda raises: {"after_turn": (Step(raises),)},
}
LEAVES_CANCELLATIONS = {"after a turn"}
"""Runs in a task of its own, which such an error ends; nobody waits for it."""

PARTS = [
    *(pytest.param(parts, id=name) for name, parts in NONSENSE.items()),
    *(
        pytest.param(make(raising(error)), id=f"{part} raises {name}")
        for part, make in RAISES.items()
        for name, error in ERRORS.items()
        if not (name == "cancelled" and part in LEAVES_CANCELLATIONS)
    ),
]


@pytest.fixture
def anyio_backend() -> str:
    """One loop for so many cases; `test_on_trio` has the ones that could differ there."""
    return "asyncio"


@pytest.mark.parametrize("parts", PARTS)
async def test_a_refused_run_goes_on(parts: dict[str, Any]):
    await refused(parts)


@pytest.mark.parametrize("part", [part for part in RAISES if part not in LEAVES_CANCELLATIONS])
@pytest.mark.parametrize("error", ["own", "cancelled"])
def test_on_trio_a_refused_run_goes_on_too(part: str, error: str):
    """An asyncio.CancelledError there is nobody's cancellation."""
    anyio.run(refused, RAISES[part](raising(ERRORS[error])), backend="trio")


async def refused(parts: dict[str, Any]) -> None:
    d = driven(
        *reads(9_000, 9_000, 9_000, 100),
        TooLong(PROMPT_TOO_LONG),
        "done",
        compaction=monitor.Compaction(**{"steps": (), **parts}),
    )
    await d.go()
    assert d.outcome.ok, d.outcome.detail
    assert d.of(monitor.events.CompactionFinished)
    assert all(event.failure in {Failure.CRASHED, Failure.INVALID} for event in d.of(monitor.events.CompactionFailed))
    assert len(d.of(monitor.events.CompactionStarted)) == len(d.of(monitor.events.CompactionFinished)) + len(
        d.of(monitor.events.CompactionFailed)
    )


@pytest.mark.parametrize("parts", every_second(PARTS))
async def test_a_run_that_has_come_to_the_ceiling_goes_on(parts: dict[str, Any]):
    d = driven(
        *reads(24_000, 24_000, 24_000, 24_000, 10), "done", compaction=monitor.Compaction(**{"steps": (), **parts})
    )
    await d.go()
    assert d.outcome.ok, d.outcome.detail
    assert d.of(monitor.events.CompactionFinished)
    assert sum(len(result.text) for one in d.run.history for result in getattr(one, "results", ())) // 4 < 100_000


@pytest.mark.parametrize("parts", every_second(PARTS, odd=True))
async def test_at_the_mark_and_by_hand_a_run_goes_on(parts: dict[str, Any]):
    d = driven(
        *reads(24_000, 24_000, 24_000, 14_000, 10, 10), "done", compaction=monitor.Compaction(**{"steps": (), **parts})
    )
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.ToolFinished) and len(d.of(monitor.events.ToolFinished)) == 5:
                with contextlib.suppress(monitor.context.CompactionError):
                    await run.compact()
    assert d.outcome.ok, d.outcome.detail
    assert {"CompactionStarted", "CompactionSkipped"} & {type(event).__name__ for event in d.events}


async def test_it_is_told_as_a_compaction_that_failed_and_what_was_done_instead_says_so():
    d = driven(
        *reads(9_000, 9_000, 100),
        TooLong(PROMPT_TOO_LONG),
        "done",
        compaction=monitor.Compaction(keep=Keep(raising(Broken("no")))),
    )
    await d.go()
    (failed,), (finished,) = d.of(monitor.events.CompactionFailed), d.of(monitor.events.CompactionFinished)
    assert (failed.failure, failed.compaction) == (CompactionFailure.CRASHED, 1)
    assert "Broken: no" in failed.detail
    assert finished.compaction == 2
    assert any("without parts of the caller" in warning for warning in finished.warnings)


class FullDisk:
    """A store that keeps nothing."""

    def add(self, record: monitor.context.CompactionRecord) -> None:
        raise monitor.errors.StoreError("the disk is full")

    def records(self) -> tuple[()]:
        return ()


async def test_what_cannot_be_recorded_is_not_done_however_pressing_it_is():
    d = driven(
        *reads(9_000, 9_000, 100), TooLong(PROMPT_TOO_LONG), "done", compaction=monitor.Compaction(store=FullDisk())
    )
    await d.go()
    assert d.outcome.reason is monitor.TerminateReason.PROMPT_TOO_LONG
    assert not d.of(monitor.events.CompactionFinished)
