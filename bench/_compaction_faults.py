"""Runs that are struck while they are being compacted: is the history as before or as after, never
between, and is nothing left behind?

A run begins with a history that has to be made smaller: it has come to the mark or to the ceiling,
the provider refuses the request, or somebody asks. So many turns of the event loop after the
compaction has begun, as chance has it, something happens: an abort, a cancellation (by a scope or
of the task), the caller leaves, the run's time is up, the compaction's time is up; or the model, a
hook or the store raises at one of its steps. Some models take no notice of their cancellation and
finish their summary late. In every turn of the event loop the history is looked at: it must be what
was said; or what the last finished compaction left, and what was said since.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel

import monitor
from bench._compaction_runs import PRESETS, WINDOW
from bench._compaction_script import BUILDERS, TooLongError, stand_in
from bench._compaction_script import Model as _StandIn
from bench._soak_run import Backend, open_tasks
from monitor.chunks import TextDelta, ToolResult, TurnFinished, UsageReport
from monitor.context import ClipResults, validate
from monitor.context.compaction.pinned import head_of_messages
from monitor.errors import FinishReason, TerminateReason
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import FakeClock, call
from monitor.testing.scripted import ScriptedStream, Stall

FAULTS: Final = (
    "abort",
    "cancel scope",
    "task.cancel()",
    "the caller leaves",
    "the run's timeout",
    "the compaction's timeout",
    "the model raises",
    "a hook raises",
    "the store raises",
)
TIMED: Final = FAULTS[:6]
"""They strike at an instant; the others at a step of the model, the hook, the store."""
BEGUN_BY: Final = ("mark", "ceiling", "overflow", "hand")
LIMIT_S: Final = 10_000.0
TIMEOUT_S: Final = 100.0
MOST_PASSES: Final = 60
"""Turns of the event loop until it strikes: about twice as many as a compaction takes."""
SETTLE_PASSES: Final = 100
HANG_S: Final = 20.0
"""Real seconds after which a run hangs."""
TURNS: Final = 6
_FILLING: Final = {"mark": 0.87, "ceiling": 0.97, "overflow": 0.75, "hand": 0.6}
"""Of the preset's mark, or, for the ceiling, of the window: how full the history is at the
beginning.
"""


class SoakError(Exception):
    """What is raised on purpose."""


@dataclass(frozen=True)
class Result:
    """What became of one run."""

    number: int
    backend: Backend
    fault: str
    begun_by: str
    struck: bool
    """It came about; else the compaction, or the run, was over before."""
    during: bool
    """A compaction was at work when it struck."""
    ended: str
    """The history at the end: `before`, `after`, or `between`."""
    reason: str
    violations: tuple[str, ...]


class _Late(Stall):
    """A step of a model that takes no notice of a cancellation for some turns of the event loop."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self._passes = passes

    async def perform(self) -> None:
        """Then it goes on as if nothing had been."""
        with anyio.CancelScope(shield=True):
            for _ in range(self._passes):
                try:
                    await anyio.lowlevel.checkpoint()
                except asyncio.CancelledError:
                    continue


@dataclass
class FaultRun:
    """One run. A seed and a number make the same one again."""

    seed: int
    number: int
    fault: str = ""
    backend: Backend | None = None
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(f"compaction faults:{self.seed}:{self.number}")
        on: Backend = "trio" if chance.random() < 0.2 else "asyncio"
        self.backend = self.backend or on
        known = [fault for fault in FAULTS if self.backend == "asyncio" or fault != "task.cancel()"]
        self.fault = self.fault or chance.choice(known)
        self.begun_by = chance.choice(BEGUN_BY)
        self.late = chance.choice((0, 0, 0, chance.randint(1, 40)))
        self.strikes_at = chance.randint(0, MOST_PASSES)
        self.raises_at = chance.randint(0, 10)
        self.raises_in = chance.choice(("before", "after", "autocontinue"))
        self.clock = FakeClock()
        self.struck = self.during = self.at_work = False
        self.refuse = self.begun_by == "overflow"
        self.ended = "none"
        self.events: list[monitor.events.Event] = []
        self.base: tuple[int, tuple[Message, ...]] = (0, ())
        """What the last edit left, and how many originals there were then."""
        self.stored_late = 0
        self.late_s = 0.0
        self.turns = 0
        self.compaction = self._preset()
        self.run = self._run()

    # --- making it

    def _preset(self) -> monitor.Compaction:
        make = self.chance.choice([PRESETS[name] for name in PRESETS if name != "extractive"])
        hook = monitor.context.CompactionHook(
            before=partial(self._hooked, "before", None),
            after=partial(self._hooked, "after", None),
            autocontinue=partial(self._hooked, "autocontinue", True),  # noqa: FBT003 - what the hook answers
        )
        return make(timeout_s=TIMEOUT_S, hooks=[hook], store=self)

    async def _hooked(self, name: str, answer: object, _: object) -> Any:
        self.at_work |= name == "before"
        for _step in range(3):
            await anyio.lowlevel.checkpoint()
        if self.fault == "a hook raises" and name == self.raises_in:
            self.struck = self.during = True
            raise SoakError(name)
        return answer

    def add(self, record: monitor.context.CompactionRecord) -> None:
        """As a store of records."""
        self.stored_late += any(isinstance(event, monitor.events.RunTerminated) for event in self.events)
        if self.fault == "the store raises":
            self.struck = self.during = True
            raise SoakError(record.summarised_by)

    def records(self) -> Sequence[monitor.context.CompactionRecord]:
        """Nobody asks."""
        return ()

    def _run(self) -> monitor.Run:
        def read_file(path: str) -> str:
            """Read a file."""
            return f"{path}: nothing to be seen"

        supervisor = monitor.Supervisor(
            self,
            tools=[read_file],
            detectors=None,
            stop_when=monitor.Timeout(LIMIT_S),
            history=self._history(),
            window=WINDOW,
            compaction=self.compaction,
            sinks=[self],
            clock=self.clock,
            last_turn=None,
        )
        return supervisor.stream("Go on with the service.")

    def _history(self) -> tuple[Message, ...]:
        """About as large as what begins the compaction wants it."""
        usable = self.compaction.headroom.usable(WINDOW) or 0
        tokens = (WINDOW.tokens or 0) if self.begun_by == "ceiling" else usable
        room = int(4 * tokens * (_FILLING[self.begun_by] + (0.15 if self.begun_by == "mark" else 0)))
        messages: list[Message] = []
        while room > 0:
            number = len(messages)
            if number % 9 == 0:
                messages.append(UserMessage((Text(f"Request {number}: look at part {number} of the service."),)))
            asked = call("read_file", path=f"src/part_{number}.py")
            result = "".join(
                f"value_{self.chance.randrange(10**6)} = row.total\n" for _ in range(self.chance.randint(5, 80))
            )
            room -= len(result) + 100
            messages.append(
                AssistantMessage(
                    (Text(f"I look at part {number}."), asked), (ToolResult(asked.id, asked.name, result),)
                )
            )
        return tuple(messages)

    # --- the model

    name = "stand-in:model"
    adapter = _StandIn.adapter

    def stream(self, request: ModelRequest) -> ScriptedStream:
        """Both the agent's turns and the summaries."""
        if request.tool_choice == "none":
            return ScriptedStream(*self._summary(request), suspends=True)
        if self.refuse:
            self.refuse = False
            return ScriptedStream(
                TooLongError(
                    "This model's maximum context length is 32000 tokens. However, your messages resulted in 33000"
                    " tokens."
                ),
                suspends=True,
            )
        self.turns += 1
        if self.turns >= TURNS:
            return ScriptedStream(TextDelta("It is done."), TurnFinished(FinishReason.DONE), suspends=True)
        return ScriptedStream(
            TextDelta(f"I look at part {self.turns} once more."),
            call("read_file", path=f"src/other_{self.turns}.py"),
            UsageReport(None, 20),
            TurnFinished(FinishReason.DONE),
            suspends=True,
        )

    def _summary(self, request: ModelRequest) -> list[Any]:
        text = stand_in(request)
        step = len(text) // 10 + 1
        steps: list[Any] = [TextDelta(text[at : at + step]) for at in range(0, len(text), step)]
        if self.late:
            steps.insert(self.raises_at % len(steps), _Late(self.late))
        if self.fault == "the model raises":
            steps.insert(self.raises_at % len(steps), _Raises(self._raise))
        return [*steps, TurnFinished(FinishReason.DONE)]

    def _raise(self) -> None:
        self.struck = self.during = True
        raise SoakError("the model")

    # --- watching it

    def emit(self, event: monitor.events.Event) -> None:
        """As a sink: an edit is committed in the step that tells of it."""
        if self.events and isinstance(self.events[-1], monitor.events.RunTerminated):
            self.wrong.append(f"{type(event).__name__} after the end")
        self.events.append(event)
        if isinstance(
            event,
            monitor.events.CompactionFinished | monitor.events.CompactionFailed | monitor.events.CompactionSkipped,
        ):
            self.at_work = False
        if isinstance(event, monitor.events.CompactionFinished | monitor.events.HistoryReduced):
            self._check_edit(event)
            self.base = len(self.run._history.originals), self.run.history  # noqa: SLF001 - what was said
            self._validate("what a compaction left")

    def _check_edit(self, event: monitor.events.CompactionFinished | monitor.events.HistoryReduced) -> None:
        """What was kept stands there, and what was said since, in order; before it, what stands for
        the rest.
        """
        known, base = self.base
        run = self.run
        before = (*base, *run._history.originals[known:])  # noqa: SLF001 - what was said
        after = run.history
        # it may have been said by this compaction
        goes_on = bool(before) and before[-1].synthetic and before[-1] is after[-1]
        summarised = isinstance(event, monitor.events.CompactionFinished) and not event.summarised_by.startswith(
            ClipResults.name
        )
        if goes_on and _is_edit(event, before[:-1], after[:-1], summarised=summarised):
            return
        if not _is_edit(event, before, after, summarised=summarised):
            self.wrong.append("what a compaction left is neither before nor after: other messages than those it kept")

    def look(self) -> str:
        """The state of the history now."""
        known, base = self.base
        originals = self.run._history.originals  # noqa: SLF001 - what was said
        if self.run.history != (*base, *originals[known:]):
            return "between"
        return "after" if base else "before"

    # --- playing it

    def play(self) -> Result:
        """Run it in an event loop of its own."""
        reason = "none"
        try:
            anyio.run(self._main, backend=self.backend or "asyncio")
            reason = self.run.outcome.reason.value
        except Exception as error:  # noqa: BLE001 - whatever gets out of a run is wrong
            self.wrong.append(f"{type(error).__name__}: {error}")
        backend = self.backend or "asyncio"
        return Result(
            self.number,
            backend,
            self.fault,
            self.begun_by,
            self.struck,
            self.during,
            self.ended,
            reason,
            tuple(dict.fromkeys(self.wrong)),
        )

    async def _main(self) -> None:
        before = open_tasks()
        self.strike: Callable[[], object] = lambda: None
        with anyio.move_on_after(HANG_S) as hanging:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                await self._drive()
                group.cancel_scope.cancel()
        if hanging.cancelled_caught:
            self.wrong.append(f"it hangs: {self.events[-1:]}")
            return
        at_the_end = self.run.history
        for _ in range(SETTLE_PASSES):
            await anyio.lowlevel.checkpoint()
        if left := open_tasks() - before:
            self.wrong.append(f"tasks are left: {left}")
        if self.run.history != at_the_end or self.stored_late:
            self.wrong.append("a summary was committed after the end")
        self._check()

    async def _drive(self) -> None:
        with anyio.CancelScope() as scope:
            match self.fault:
                case "abort":
                    self.strike = self.run.abort
                case "cancel scope":
                    self.strike = scope.cancel
                case "task.cancel()":
                    task = asyncio.current_task()
                    assert task is not None
                    self.strike = task.cancel
                case "the run's timeout":
                    self.strike = lambda: self.clock.advance(LIMIT_S + 1)
                case "the compaction's timeout":
                    self.strike = self._let_time_pass
                case "the caller leaves":
                    self.leave = anyio.Event()
                    self.strike = self.leave.set
            try:
                async with self.run as run, anyio.create_task_group() as group:
                    if self.begun_by == "hand":
                        group.start_soon(self._ask)
                    async for _ in run:
                        if self.fault == "the caller leaves" and self.leave.is_set():
                            break
                    group.cancel_scope.cancel()
            except (asyncio.CancelledError, BaseExceptionGroup):
                if self.fault != "task.cancel()" or not self.struck:
                    raise
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()

    def _let_time_pass(self) -> None:
        self.clock.advance(TIMEOUT_S + 1)
        self.late_s = 1.0  # and for a second in each turn of the event loop from now on

    async def _ask(self) -> None:
        try:
            await self.run.compact()
        except monitor.context.CompactionError:
            return

    async def _watch(self) -> None:
        """In every turn of the event loop."""
        passes = -1
        timed = self.fault in TIMED
        while True:
            await anyio.lowlevel.checkpoint()
            if self.look() == "between":
                self.wrong.append("the history is between before and after")
            passes += passes >= 0 or self.at_work
            self.clock.advance(self.late_s)
            if timed and not self.struck and passes >= self.strikes_at:
                self.struck, self.during = True, self.at_work
                self.strike()

    def _check(self) -> None:
        endings = [event for event in self.events if isinstance(event, monitor.events.RunTerminated)]
        if len(endings) != 1 or endings[0] is not self.events[-1]:
            self.wrong.append(f"{len(endings)} endings")
        if self.clock.next_due is not None:
            self.wrong.append("an alarm is still set")
        begun = [event for event in self.events if isinstance(event, monitor.events.CompactionStarted)]
        over = [
            event
            for event in self.events
            if isinstance(event, monitor.events.CompactionFinished | monitor.events.CompactionFailed)
        ]
        if len(begun) != len(over):
            self.wrong.append(f"{len(begun)} compactions began, and {len(over)} ended")
        self.ended = self.look()
        self._validate("the history")
        reason, why = self.run.outcome.reason, self.run.outcome.detail
        expected = _ENDS.get(self.fault, TerminateReason.GOAL) if self.struck else TerminateReason.GOAL
        if self.fault == "the store raises" and self.begun_by == "overflow":
            expected = TerminateReason.PROMPT_TOO_LONG
        if reason not in {expected, TerminateReason.GOAL} or (
            expected is not reason and self.during and self.fault in _AT_ONCE
        ):
            self.wrong.append(f"it ended with {reason.value} ({why}), not with {expected.value}")

    def _validate(self, what: str) -> None:
        """As it would be sent with the user's next words."""
        messages = (*self.run.history, UserMessage((Text("Go on."),)))
        for form, build in BUILDERS.items():
            if problems := validate(form, build(messages)):
                self.wrong.append(f"{form} refuses {what}: {problems[0]}")


def _is_edit(
    event: monitor.events.Event, before: Sequence[Message], after: Sequence[Message], *, summarised: bool
) -> bool:
    """Whether `after` is `before`, some of it in fewer words; behind a summary, as much of its end
    as was kept, or more.
    """
    if summarised:
        kept = len(after) - head_of_messages(after)
        if kept < getattr(event, "kept_messages", 0):
            return False
        before, after = before[len(before) - kept :], after[len(after) - kept :]
    return len(before) == len(after) and all(_name(old) == _name(new) for old, new in zip(before, after, strict=True))


def _name(message: Message) -> Sequence[str]:
    """What stays of a message that is shown in fewer words."""
    if isinstance(message, AssistantMessage):
        return [
            *(result.id for result in message.results),
            *(part.text for part in message.content if isinstance(part, Text)),
        ]
    return [part.text for part in message.content if isinstance(part, Text)]


class _Raises(Stall):
    """A step that raises."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self._function = function

    async def perform(self) -> None:
        """Now."""
        self._function()


_ENDS: Final = {
    "abort": TerminateReason.ABORTED,
    "cancel scope": TerminateReason.CANCELLED,
    "task.cancel()": TerminateReason.CANCELLED,
    "the caller leaves": TerminateReason.CLOSED_BY_CALLER,
    "the run's timeout": TerminateReason.TIMEOUT,
}
_AT_ONCE: Final = frozenset({"abort", "the run's timeout"})


@dataclass
class Soak:
    """What became of all runs."""

    seed: int
    runs: list[Result] = field(default_factory=list)

    @property
    def between(self) -> int:
        """How many histories were ever between before and after."""
        return sum(run.ended == "between" or any("between" in one for one in run.violations) for run in self.runs)

    @property
    def wrong(self) -> list[Result]:
        """Runs with anything wrong."""
        return [run for run in self.runs if run.violations]

    def rows(self) -> dict[str, Counter[str]]:
        """By fault."""
        rows = {fault: Counter[str]() for fault in FAULTS}
        for run in self.runs:
            row = rows[run.fault]
            row.update(("runs", run.ended))
            row["struck"] += run.struck
            row["during"] += run.during
            row["wrong"] += bool(run.violations)
            row["trio"] += run.backend == "trio"
        return rows

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "seed": self.seed,
            "runs": len(self.runs),
            "between": self.between,
            "faults": {fault: dict(row) for fault, row in self.rows().items()},
            "wrong": [
                {"number": run.number, "fault": run.fault, "backend": run.backend, "violations": run.violations}
                for run in self.wrong
            ],
        }


def soak(seed: int, numbers: Sequence[int]) -> Soak:
    """All runs with these numbers."""
    return Soak(seed, [FaultRun(seed, number).play() for number in numbers])
