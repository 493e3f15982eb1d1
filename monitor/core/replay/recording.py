"""The inputs of a core, logged in order. From its log another core decides the same again (law 2).

A core decides by its inputs alone: chunks, results, times, and answers of the parts that it asks.
`RecordingCore` notes all of them, and `monitor.core.replay.replayed` gives them to another core.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from monitor._util.arguments import GoalAnswer
from monitor._util.codec import to_plain
from monitor.chunks import Chunk, TextDelta, ToolCall, Usage
from monitor.core.replay import inputs
from monitor.core.replay.inputs import CoreInput, InputNote, LoggedInput
from monitor.core.replay.recorded_parts import members_of, parts_to_json, recorded_judge
from monitor.core.run import RunCore
from monitor.events import Event
from monitor.goal.goal import Goal
from monitor.judges.judge import Judge, JudgeInput
from monitor.verdicts import Stop


class InputLog:
    """The inputs of one run, in their order."""

    def __init__(self) -> None:
        self._entries: list[LoggedInput] = []
        self._depth = 0
        self._emitted = 0
        self._from_core = False
        self._stored = 0

    def take(self) -> list[LoggedInput]:
        """Return the entries since the last `take`, and forget them."""
        taken, self._entries = self._entries, []
        return taken

    def put_back(self, entries: Sequence[LoggedInput]) -> None:
        """Undo a `take`: the entries come first again."""
        self._entries = [*entries, *self._entries]

    @property
    def outermost(self) -> bool:
        """The core takes no input at the moment, so it did not call itself."""
        return self._depth == 0

    @contextmanager
    def taking(self, taken: Chunk | CoreInput, at: float) -> Iterator[None]:
        """The core takes an input. A chunk that it cannot read is not kept: the run ends by it."""
        self._emitted = 0
        place = len(self._entries)
        self._entries.append((at, taken))
        self._depth += 1
        try:
            yield
        except Exception:
            if not isinstance(taken, CoreInput):
                del self._entries[place]
            raise
        finally:
            self._depth -= 1

    def note(self, note: InputNote) -> None:
        """Note something about the present input, or the last one."""
        self._entries.append((0.0, note))

    def emitting(self, emit: Callable[[Event], None]) -> Callable[[Event], None]:
        """`emit` for the core, which marks its events: the others are those of the harness."""

        def by_core(event: Event) -> None:
            self._emitted += 1
            self._from_core = True
            try:
                emit(event)
            finally:
                self._from_core = False

        return by_core

    def stores(self) -> None:
        """An event is about to be stored. One of the harness stands at this place of the log."""
        if not self._from_core:
            self.note(inputs.EventNote(self._stored, self._emitted))
        self._stored += 1


class RecordingGoal(Goal):
    """A goal that logs its answers: only a program has the types of the outputs."""

    __slots__ = ("_log",)

    def __init__(self, log: InputLog, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self._log = log

    def answer(self, call: ToolCall) -> GoalAnswer | None:
        answer = super().answer(call)
        if answer is None:
            return None
        if self._log.outermost:
            with self._log.taking(inputs.RecallInput(call), 0.0):
                self._note(answer)
        else:
            self._note(answer)
        return answer

    def _note(self, answer: GoalAnswer) -> None:
        values: dict[str, Any] = {}
        if self.outputs is not None and not answer.is_error:
            values = {name: to_plain(getattr(self.outputs, name)) for name in ("emitted", "output", "last")}
        self._log.note(inputs.AnswerNote(answer.text, answer.is_error, **values))


class RecordingCore(RunCore):
    """A core that logs its inputs. Its methods that take inputs are added below."""

    def __init__(self, log: InputLog, **options: Any) -> None:
        """`options`: see `RunCore`."""
        self._log = log
        self._options = options
        self._members = members_of(options.get("budgets", ()))
        self._seen: list[list[Any]] = self._spending()
        self._nested_runs: dict[int, int] = {}
        self._numbers = itertools.count()
        options = {**options, "emit": log.emitting(options["emit"])}
        if (loop_key := options.get("loop_key")) is not None:
            options["loop_key"] = self._noting_key(loop_key)
        if (parent := options.get("parent")) is not None:
            options["parent"] = _RecordedParent(parent, log)
        super().__init__(**options)

    def _noting_key(self, loop_key: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
        def noting(name: str, arguments: Any) -> Any:
            if (key := loop_key(name, arguments)) is not None:
                self._log.note(inputs.KeyNote(to_plain(key)))
            return key

        return noting

    def _spending(self) -> list[list[Any]]:
        return [one.state() for one in self._members]

    @contextmanager
    def _logged(self, taken: Chunk | CoreInput, now: float) -> Iterator[None]:
        """The core takes an input. What others have spent from the budgets, and what stores have
        granted, is logged before it; what it has decided is noted behind it.
        """
        if self._members and (spent := self._spending()) != self._seen:
            with self._log.taking(inputs.SpentInput(spent), 0.0):
                self._seen = spent
        before = self.stop is not None, self.ends_stream
        with self._log.taking(taken, now):
            try:
                yield
            finally:
                if isinstance(taken, inputs.TakeUpInput):
                    self._log.note(inputs.CountedNote(self._spending()))
                if self._members:
                    self._seen = self._spending()
                if (after := (self.stop is not None, self.ends_stream)) != before:
                    self._log.note(inputs.StateNote(*after))

    def feed(self, chunk: Chunk, now: float) -> None:
        with self._logged(chunk, now):
            super().feed(chunk, now)

    def feed_text(self, text: str, now: float) -> bool:
        if not self._log.outermost:
            return super().feed_text(text, now)
        with self._logged(TextDelta(text), now):
            return super().feed_text(text, now)

    def judges_due(self, now: float) -> list[tuple[Judge, JudgeInput]]:
        if due := super().judges_due(now):
            self._log.note(inputs.AskedNote(tuple((judge.name, told.turn) for judge, told in due)))
        return due

    def _busy(self) -> list[str]:
        if busy := super()._busy():
            self._log.note(inputs.BusyNote(tuple(busy)))
        return busy

    def abort(self, why: str) -> None:
        self._log.note(inputs.AbortNote(why))  # perhaps from another thread, while the core works
        super().abort(why)

    def _number_of(self, child: RunCore, *, forget: bool) -> int:
        """The number of a nested run. `forget`: the run has ended, and another object may get its
        identity.
        """
        if id(child) not in self._nested_runs:
            self._nested_runs[id(child)] = next(self._numbers)
        return self._nested_runs.pop(id(child)) if forget else self._nested_runs[id(child)]

    def _field(self, kind: type[CoreInput], name: str, told: Mapping[str, Any]) -> Any:
        """A field of an input: an argument of the method, or what follows from the arguments."""
        match name:
            case "parts":
                return parts_to_json(self._options)
            case "nested":
                return tuple(told["past"].nested)
            case "judge":
                return recorded_judge(told["judge"])
            case "turn":
                return told["told"].turn
            case "child":
                return self._number_of(told["child"], forget=kind is inputs.NestedEndedInput)
            case "pending" | "waiting_since":
                return getattr(self, name)
            case "compaction_cost":
                return told["past"].compaction_cost
        return told[name]


def _logging(kind: type[CoreInput]) -> Callable[..., Any]:
    """The method of a `RunCore` that takes inputs of this kind, and logs them."""
    method = getattr(RunCore, kind.what)
    signature = inspect.signature(method)

    @wraps(method)
    def logging(self: RecordingCore, *args: Any, **options: Any) -> Any:
        if not self._log.outermost:
            return method(self, *args, **options)
        bound = signature.bind(self, *args, **options)
        bound.apply_defaults()
        told = bound.arguments
        taken = kind(**{name: self._field(kind, name, told) for name in kind.names})
        with self._logged(taken, told.get("now", 0.0)):
            return method(self, *args, **options)

    return logging


for _kind in CoreInput.kinds.values():
    if hasattr(RunCore, _kind.what) and not issubclass(_kind, InputNote):
        setattr(RecordingCore, _kind.what, _logging(_kind))


class _RecordedParent:
    """The run above, which notes what it answers to a nested run."""

    def __init__(self, parent: RunCore, log: InputLog) -> None:
        self._parent = parent
        self._log = log

    def nested(self, child: RunCore, usage: Usage, usd: float | None, now: float) -> Stop | None:
        stop = self._parent.nested(child, usage, usd, now)
        if stop is not None:
            self._log.note(inputs.AboveNote(stop))
        return stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parent, name)
