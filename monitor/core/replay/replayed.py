"""A core that takes the inputs of a log. With the same parts it decides the same; with others it
decides what they say, up to the point where the run would have gone another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import pairwise
from typing import Any, TypeVar

from monitor.chunks import Chunk, Usage
from monitor.core.replay import inputs
from monitor.core.replay.inputs import CoreInput, InputNote, LoggedInput
from monitor.core.replay.recorded_parts import (
    condition_from_json,
    detectors_from_json,
    members_of,
    others_from_json,
    policy_from_json,
)
from monitor.core.replay.resumed import resumed_run
from monitor.core.run import RunCore
from monitor.errors import TerminateReason
from monitor.events import ChunkReceived, Event, JudgeAsked, Nudged, StopDecided, ToolWithdrawn
from monitor.goal.goal import RecordedGoal
from monitor.judges.judge import JudgeInput
from monitor.outcome import Outcome
from monitor.verdicts import Continue, Hold, LastTurn, Nudge, RefuseCall, Stop, Verdict, WithdrawTool

T = TypeVar("T", bound=InputNote)

STORED = ("stop_when", "detectors", "policy")
"""The parts that may be given in the place of the recorded ones."""


@dataclass(slots=True)
class ReplayStep:
    """An input of the core, and the notes about it."""

    at: float
    """The reading of the run's clock."""
    taken: Chunk | CoreInput
    notes: list[InputNote] = field(default_factory=list)

    def noted(self, kind: type[T]) -> Iterator[T]:
        """The notes of this kind, in their order."""
        return (note for note in self.notes if isinstance(note, kind))


def steps_of(entries: Iterable[LoggedInput]) -> Iterator[ReplayStep]:
    """The steps of a log, each with its notes."""
    step: ReplayStep | None = None
    early: list[InputNote] = []  # an abort may come before the run begins
    for at, one in entries:
        if isinstance(one, InputNote):
            (early if step is None else step.notes).append(one)
            continue
        if step is not None:
            yield step
        step, early = ReplayStep(at, one, early), []
    if step is not None:
        yield step


class _ReplayedParent:
    """The run above a nested one, which answers as is recorded."""

    def __init__(self, core: ReplayedCore) -> None:
        self._core = core

    def nested(self, child: RunCore, usage: Usage, usd: float | None, now: float) -> Stop | None:
        return next((note.stop for note in self._core.step.noted(inputs.AboveNote)), None)

    def nested_ended(self, child: RunCore, usage: Usage, usd: float | None, now: float) -> None:
        """A replay counts no nested spending."""

    def pause(self, now: float) -> None:
        """A replay waits for nobody."""

    resume = pause


class ReplayedCore(RunCore):
    """A core for which everything beside it answers as is recorded."""

    def __init__(self, parts: Mapping[str, Any], given: Mapping[str, Any], emit: Callable[[Event], None]) -> None:
        """`parts`: of `parts_to_json`. `given`: parts in the place of the recorded ones."""
        readers: dict[str, Callable[[Any], Any]] = {
            "stop_when": condition_from_json,
            "detectors": detectors_from_json,
            "policy": policy_from_json,
        }
        chosen = {name: given[name] if name in given else readers[name](parts[name]) for name in STORED}
        others = others_from_json(parts)
        above: Any = _ReplayedParent(self) if parts["nested"] else None
        super().__init__(**chosen, **others, emit=emit, parent=above, loop_key=lambda *_: next(self._keys, None))
        self.step = ReplayStep(0.0, inputs.BeginInput(parts))
        self.piecewise = True
        self.background_work = (self,)
        self._keys: Iterator[Any] = iter(())
        self._recorded_goal: RecordedGoal | None = others["goal"]
        self._members = members_of(others["budgets"])
        self._children: dict[int, Any] = {}
        self.before: Sequence[Event] = ()
        """The stored events of the processes that had the run before."""
        self.verdict: Verdict = Continue()
        """The core's answer to the last check."""

    # ------------------------------------------------------------------ as the work beside itself

    def turn_began(self) -> None:
        """The judges that were asked then are asked."""
        for note in self.step.noted(inputs.AskedNote):
            for name, turn in note.judges:
                self._emit(JudgeAsked(self.at(self.step.at), turn, name))
                self._observers.judges.asked(name, turn)

    def busy_with(self) -> str | None:
        """The work at that time."""
        return "; ".join(work for note in self.step.noted(inputs.BusyNote) for work in note.work) or None

    def cancel(self) -> None:
        """A replay has no work that could be cancelled."""

    # ------------------------------------------------------------------ its inputs

    def take(self, step: ReplayStep) -> None:
        """Take the input of this step, with its notes."""
        self.step = step
        self._keys = (note.key for note in step.noted(inputs.KeyNote))
        if self._recorded_goal is not None:
            self._recorded_goal.answers.extend(step.noted(inputs.AnswerNote))
        if isinstance(step.taken, CoreInput):
            self._take_input(step.taken, step.at)
        else:
            self.feed(step.taken, step.at)
        if self._recorded_goal is not None:
            self._recorded_goal.answers.clear()
        for note in step.noted(inputs.AbortNote):
            self.abort(note.why)

    def _take_input(self, taken: CoreInput, now: float) -> None:
        """Make the call that was recorded as `taken`."""
        match taken:
            case inputs.BeginInput():
                self.begin(now)
            case inputs.TakeUpInput():
                past = resumed_run(self.before)
                past.nested = taken.nested
                past.compaction_cost = taken.compaction_cost or past.compaction_cost
                self.take_up(past, taken.run, now, decides=taken.decides, lost=taken.lost)
                for counted in self.step.noted(inputs.CountedNote):
                    self._set_spent(counted.spent)
            case inputs.BeginLastTurnInput():
                if isinstance(self.verdict, LastTurn):
                    self.begin_last_turn(self.verdict, now)
            case inputs.CheckInput():
                self.verdict = self.check(now)
            case inputs.RecallInput(call):
                if self._recorded_goal is not None:
                    self._recorded_goal.answer(call)
            case inputs.SpentInput(spent):
                self._set_spent(spent)
            case _:
                self._call_method(taken, now)

    def _call_method(self, taken: CoreInput, now: float) -> None:
        """Call the method that the input is named after. Its arguments are the fields of the input,
        or follow from them.
        """
        method = getattr(self, taken.what)
        told: dict[str, Any] = {name: getattr(taken, name) for name in taken.names}
        if "now" in signature(method).parameters:
            told["now"] = now
        for name in {"pending", "waiting_since"} & told.keys():
            setattr(self, name, told.pop(name))
        if "turn" in told:
            told["told"] = JudgeInput(None, "", told.pop("turn"))
        if "child" in told:
            told["child"] = self._children.setdefault(told["child"], object())
        method(**told)

    def _set_spent(self, spent: Sequence[Any]) -> None:
        for member, state in zip(self._members, spent, strict=True):
            member.set_state(state)

    # ------------------------------------------------------------------ its end

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended. `None`: it has not."""
        return self._outcome

    def end_here(self, now: float, why: Stop) -> None:
        """End the run in the middle of its record."""
        if self._counters.phase == "streaming":
            self.end_turn(now, finished=False)
        self.terminate(now, why)


SOURCE = "replay"
"""The source of an end that is only the end of the record."""


class ReplayedRun:
    """A run decided again from its log. Iterate over it once."""

    def __init__(
        self,
        entries: Iterable[LoggedInput],
        stored: Sequence[Event],
        given: Mapping[str, Any],
        *,
        before: Sequence[Event] = (),
        pieces: bool = False,
    ) -> None:
        """`stored`: the events of the run, which has those of the harness. `before`: the stored
        events of the processes that had the run before. `given`: parts in the
        place of the recorded ones. `pieces`: chunks are events too, each behind its
        findings. Raises `NotRecorded` if a part can be made only by a program.
        """
        self._pieces = pieces
        self._steps = list(steps_of(entries))
        begin = self._steps[0].taken if self._steps else None
        if not isinstance(begin, inputs.BeginInput):
            raise ValueError("a log begins with the parts of its run")
        self._stored = stored
        self._decided: list[Event] = []
        self.core: ReplayedCore = ReplayedCore(begin.parts, given, self._decided.append)
        self.core.before = before
        self._stop_recorded = self._end_recorded = False
        self.departed: str | None = None
        """Why the run goes another way from here on than the recorded one. `None`: it does not."""

    def __iter__(self) -> Iterator[Event]:
        for step, after in pairwise([*self._steps, None]):
            if step is None:
                return
            yield from self._noted(step)
            if self.core.outcome is None and (why := self._leaves_the_record(step, after)) is not None:
                self.departed = why.detail
                self.core.end_here(step.at, why)
                yield from self._taken()
            if self.core.outcome is not None:
                return

    def _taken(self) -> list[Event]:
        taken, self._decided[:] = [*self._decided], []
        return taken

    def _noted(self, step: ReplayStep) -> list[Event]:
        if isinstance(step.taken, inputs.TerminateInput) and self._stop_recorded and self.core.stop is None:
            self.core.leave(self._end_of_record(), None, step.at)
        self.core.take(step)
        for state in step.noted(inputs.StateNote):
            self._stop_recorded, self._end_recorded = state.stop, state.ends_stream
        woven = self._woven(step, self._taken())
        if self._pieces and not isinstance(step.taken, CoreInput):
            woven.append(ChunkReceived(self.core.at(step.at), self.core.turns, step.taken))
        return woven

    def _end_of_record(self) -> Stop:
        stops = [event.stop for event in self._stored if isinstance(event, StopDecided)]
        why = f": {stops[-1].reason.value}, {stops[-1].detail}" if stops else ""
        self.departed = f"the recorded run was ended here{why}"
        return Stop(TerminateReason.CLOSED_BY_CALLER, self.departed, SOURCE)

    def _woven(self, step: ReplayStep, decided: Sequence[Event]) -> list[Event]:
        """The events of the core, and those of the harness at their places among them."""
        woven: list[Event] = []
        done = 0
        for note in step.noted(inputs.EventNote):
            done, before = max(done, note.behind), done
            woven += decided[before:done]
            if note.number < len(self._stored):
                event = self._stored[note.number]
                if isinstance(note, inputs.FactNote) or self._holds(event):
                    woven.append(event)
        woven += decided[done:]
        said = self._said(step.at) if isinstance(step.taken, inputs.CheckInput) else None
        return woven if said is None or any(map(self._holds_as_reaction, woven)) else [*woven, said]

    def _holds(self, event: Event) -> bool:
        """Whether an event of the harness is true here. A reaction is only to the same verdict."""
        return not isinstance(event, Nudged | ToolWithdrawn) or self._holds_as_reaction(event)

    def _holds_as_reaction(self, event: Event) -> bool:
        match event, self.core.verdict:
            case Nudged(), Hold():
                return True
            case Nudged(text=text), Nudge(text=said) | RefuseCall(text=said):
                return text == said
            case ToolWithdrawn(text=text), WithdrawTool(text=said):
                return text == said
            case Nudged(text=text), WithdrawTool(otherwise=said):  # the tool was the only one
                return text == said
        return False

    def _said(self, now: float) -> Event | None:
        """The words that the harness would say to the model."""
        at_s, turns = self.core.at(now), self.core.turns
        match self.core.verdict:
            case Nudge(text) | RefuseCall(text=text):
                return Nudged(at_s, turns, text)
            case WithdrawTool(name, text):
                return ToolWithdrawn(at_s, turns, name, text)
        return None

    def _leaves_the_record(self, step: ReplayStep, after: ReplayStep | None) -> Stop | None:
        """Why nothing that is recorded after this step is true any more."""
        core = self.core
        if core.stop is not None and not self._stop_recorded:
            return core.stop
        what: str | None = None
        if core.ends_stream and not self._end_recorded:
            what = "the stream is left here, because its text loops"
        elif isinstance(step.taken, inputs.CheckInput) and isinstance(core.verdict, LastTurn):
            begins = after is not None and isinstance(after.taken, inputs.BeginLastTurnInput)
            what = None if begins else "a last turn begins here"
        if what is None:
            return None
        return Stop(TerminateReason.CLOSED_BY_CALLER, f"{what}, and the recorded run went on", SOURCE)
