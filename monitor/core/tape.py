"""The inputs of a core, in order. From its tape another core decides the same again (law 2).

A core decides by its inputs alone: chunks, results, times, and answers of the parts that it asks.
`TapedCore` notes all of them, and `monitor.core.again` gives them to another core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from monitor._util.arguments import GoalAnswer
from monitor._util.codec import Codec, error_to_plain, to_plain
from monitor.calls import ApprovalRequest, request_codec
from monitor.chunks import Chunk, TextDelta, ToolCall, chunk_codec
from monitor.core.described import described, members_of
from monitor.core.past import Past
from monitor.core.run import RunCore
from monitor.errors import AdapterError, describe
from monitor.events import Event
from monitor.goal.goal import Goal
from monitor.judges.judge import Judge, JudgeInput
from monitor.messages import Message
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn
from monitor.reasons import TerminateReason
from monitor.usage import AskCost, Usage
from monitor.verdicts import Detection, Judgement, LastTurn, Stop, Verdict


@dataclass(slots=True, frozen=True)
class Input:
    """An input of a core other than a chunk, or a note about the input before it."""

    what: str
    at: float
    """The reading of the run's clock."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON data."""


Entry: TypeAlias = Input | tuple[float, Chunk]
"""One input: a chunk with the reading of the clock, or any other."""

EVENT = "event"
STATE = "state"
LIFE = "life"
"""How often the run had begun before, in other processes."""
ABORT = "abort"
NOTES = frozenset({EVENT, STATE, ABORT, LIFE, "above", "answer", "asked", "busy", "counted", "key"})
"""Notes: they are made while the core takes an input, and belong to it."""

facts_codec: Codec[Any] = Codec(Stop, ModelError, Detection, Judgement, AskCost, Usage)
"""JSON form of the objects among the inputs."""


def plain(value: Any) -> Any:
    """JSON form of an object among the inputs, or of `None`."""
    return None if value is None else facts_codec.to_dict(value)


def error_plain(error: BaseException | None) -> Any:
    """JSON form of an exception, or of `None`."""
    return None if error is None else error_to_plain(error)


Chunks: TypeAlias = tuple[tuple[float, Chunk], ...]
"""Chunks, each with the reading of the clock at which it came."""


def split(entries: Iterable[Entry]) -> tuple[Chunks, tuple[dict[str, Any], ...]]:
    """The chunks, and all else as JSON data, each with the number of the chunks before it."""
    chunks: list[tuple[float, Chunk]] = []
    others: list[dict[str, Any]] = []
    for entry in entries:
        if isinstance(entry, Input):
            others.append({"behind": len(chunks), "what": entry.what, "at": entry.at, "facts": dict(entry.facts)})
        else:
            chunks.append(entry)
    return tuple(chunks), tuple(others)


def joined(chunks: Chunks, others: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """The inverse of `split`."""
    done = 0
    for other in others:
        yield from chunks[done : other["behind"]]
        done = other["behind"]
        yield Input(other["what"], other["at"], other["facts"])
    yield from chunks[done:]


class Tape:
    """The tape of one run."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._depth = 0
        self._emitted = 0
        self._from_core = False
        self._stored = 0

    def take(self) -> list[Entry]:
        """Return the entries since the last `take`, and forget them."""
        taken, self._entries = self._entries, []
        return taken

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Undo a `take`."""
        self._entries = [*entries, *self._entries]

    @property
    def outermost(self) -> bool:
        """The core takes no input at the moment, so it did not call itself."""
        return self._depth == 0

    @contextmanager
    def hearing(self, chunk: Chunk, at: float) -> Iterator[None]:
        """The core takes a chunk. One that it cannot read is not kept: the run ends by it."""
        self._emitted = 0
        place = len(self._entries)
        self._entries.append((at, chunk))
        try:
            with self.inside():
                yield
        except Exception:
            del self._entries[place]
            raise

    @contextmanager
    def taking(self, what: str, at: float, facts: Mapping[str, Any]) -> Iterator[None]:
        """The core takes an input, unless it calls itself."""
        if self._depth == 0:
            self._emitted = 0
            self._entries.append(Input(what, at, facts))
        with self.inside():
            yield

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The core works."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def note(self, what: str, **facts: Any) -> None:
        """Note something about the present input, or the last one."""
        self._entries.append(Input(what, 0.0, facts))

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
        """An event is about to be stored. One of the harness stands at this place of the tape."""
        if not self._from_core:
            self.note(EVENT, number=self._stored, behind=self._emitted)
        self._stored += 1


class TapedGoal(Goal):
    """A goal that notes its answers on a tape: only a program has the types of the outputs."""

    __slots__ = ("_tape",)

    def __init__(self, tape: Tape, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self._tape = tape

    def answer(self, call: ToolCall) -> GoalAnswer | None:
        answer = super().answer(call)
        if answer is None:
            return None
        if self._tape.outermost:
            with self._tape.taking("recall", 0.0, {"call": chunk_codec.to_dict(call)}):
                self._note(answer)
        else:
            self._note(answer)
        return answer

    def _note(self, answer: GoalAnswer) -> None:
        facts: dict[str, Any] = {"text": answer.text, "is_error": answer.is_error}
        if self.outputs is not None and not answer.is_error:
            facts["emitted"] = to_plain(self.outputs.emitted)
            facts["output"] = to_plain(self.outputs.output)
            facts["last"] = to_plain(self.outputs.last)
        self._tape.note("answer", **facts)


class TapedCore(RunCore):
    """A core that keeps a tape of its inputs."""

    def __init__(self, tape: Tape, **options: Any) -> None:
        """`options`: see `RunCore`."""
        self._tape = tape
        self._options = options
        self._members = members_of(options.get("budgets", ()))
        self._seen: list[list[Any]] = self._spending()
        self._nested_runs: dict[int, int] = {}
        self._numbers = itertools.count()
        options = {**options, "emit": tape.emitting(options["emit"])}
        if (loop_key := options.get("loop_key")) is not None:
            options["loop_key"] = self._noting_key(loop_key)
        if (parent := options.get("parent")) is not None:
            options["parent"] = _Above(parent, tape)
        super().__init__(**options)

    def _noting_key(self, loop_key: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
        def noting(name: str, arguments: Any) -> Any:
            if (key := loop_key(name, arguments)) is not None:
                self._tape.note("key", key=to_plain(key))
            return key

        return noting

    # ------------------------------------------------------------------ how it is noted

    def _spending(self) -> list[list[Any]]:
        return [one.state() for one in self._members]

    @contextmanager
    def _noted(self, what: str, now: float, **facts: Any) -> Iterator[None]:
        if not self._tape.outermost:
            with self._tape.inside():
                yield
            return
        before = self._before()
        with self._tape.taking(what, now, facts):
            try:
                yield
            finally:
                self._after(before)

    def _before(self) -> tuple[bool, bool]:
        """Note what others have spent from the budgets, and what stores have granted. Answers what
        is decided.
        """
        if self._members and (spent := self._spending()) != self._seen:
            with self._tape.taking("spent", 0.0, {"spent": spent}):
                self._seen = spent
        return self.stop is not None, self.ends_stream

    def _after(self, before: tuple[bool, bool]) -> None:
        if self._members:
            self._seen = self._spending()
        if (now := (self.stop is not None, self.ends_stream)) != before:
            self._tape.note(STATE, stop=now[0], ends_stream=now[1])

    # ------------------------------------------------------------------ chunks

    def feed(self, chunk: Chunk, now: float) -> None:
        before = self._before()
        with self._tape.hearing(chunk, now):
            super().feed(chunk, now)
        self._after(before)

    def feed_text(self, text: str, now: float) -> bool:
        if not self._tape.outermost:
            return super().feed_text(text, now)
        before = self._before()
        with self._tape.hearing(TextDelta(text), now):
            left = super().feed_text(text, now)
        self._after(before)
        return left

    def catch_up(self, now: float) -> None:
        with self._noted("catch_up", now):
            super().catch_up(now)

    # ------------------------------------------------------------------ the run and its turns

    def begin(self, now: float) -> None:
        with self._noted("begin", now, parts=described(self._options)):
            super().begin(now)

    def take_up(self, past: Past, run: str, now: float, *, in_calls: bool = False) -> None:
        nested = [[plain(usage), usd] for usage, usd in past.nested]
        with self._noted("take_up", now, run=run, nested=nested, in_calls=in_calls):
            super().take_up(past, run, now, in_calls=in_calls)
            self._tape.note("counted", spent=self._spending())

    def begin_turn(self, now: float) -> bool:
        with self._noted("begin_turn", now):
            return super().begin_turn(now)

    def begin_last_turn(self, last: LastTurn, now: float) -> None:
        with self._noted("begin_last_turn", now):
            super().begin_last_turn(last, now)

    def first_chunk(self, now: float) -> None:
        with self._noted("first_chunk", now):
            super().first_chunk(now)

    def continued(self, now: float) -> None:
        with self._noted("continued", now):
            super().continued(now)

    def broke_off(self) -> None:
        with self._noted("broke_off", 0.0):
            super().broke_off()

    def tool_result(
        self,
        call: str | None,
        text: str,
        now: float,
        *,
        is_error: bool = False,
        vetoed: bool = False,
        progress: float | None = None,
    ) -> None:
        with self._noted(
            "tool_result", now, call=call, text=text, is_error=is_error, vetoed=vetoed, progress=to_plain(progress)
        ):
            super().tool_result(call, text, now, is_error=is_error, vetoed=vetoed, progress=progress)

    def end_turn(
        self,
        now: float,
        *,
        finished: bool,
        must_finish: bool = False,
        error: BaseException | None = None,
        model_error: ModelError | None = None,
        gave: tuple[str, ...] = (),
    ) -> Turn:
        facts = {"finished": finished, "must_finish": must_finish, "gave": list(gave)}
        facts |= {"error": error_plain(error), "model_error": plain(model_error)}
        with self._noted("end_turn", now, **facts):
            return super().end_turn(
                now, finished=finished, must_finish=must_finish, error=error, model_error=model_error, gave=gave
            )

    def source_closed(self, now: float, *, since: float, closed: bool, chunks_dropped: int, note: str | None) -> None:
        with self._noted("source_closed", now, since=since, closed=closed, chunks_dropped=chunks_dropped, note=note):
            super().source_closed(now, since=since, closed=closed, chunks_dropped=chunks_dropped, note=note)

    def answer(self, call: ToolCall, now: float) -> Any:
        with self._noted("answer_call", now, call=chunk_codec.to_dict(call)):
            return super().answer(call, now)

    def retract(self) -> None:
        with self._noted("retract", 0.0):
            super().retract()

    def will_retry(self, delay_s: float) -> None:
        with self._noted("will_retry", 0.0, delay_s=delay_s):
            super().will_retry(delay_s)

    def check(self, now: float) -> Verdict:
        with self._noted("check", now):
            return super().check(now)

    # ------------------------------------------------------------------ time

    def must_stop(self, now: float) -> bool:
        with self._noted("must_stop", now, waiting_since=self.waiting_since):
            return super().must_stop(now)

    def refresh(self, now: float) -> float:
        with self._noted("refresh", now, waiting_since=self.waiting_since):
            return super().refresh(now)

    def pause(self, now: float) -> None:
        with self._noted("pause", now):
            super().pause(now)

    def resume(self, now: float) -> None:
        with self._noted("resume", now):
            super().resume(now)

    # ------------------------------------------------------------------ what is beside the run

    def judges_due(self, now: float) -> list[tuple[Judge, JudgeInput]]:
        due = super().judges_due(now)
        if due:
            self._tape.note("asked", judges=[[judge.name, told.turn] for judge, told in due])
        return due

    def judge_answer(self, judge: Judge, told: JudgeInput, judgement: Judgement, now: float, *, cost: AskCost) -> None:
        facts = {"judge": _judge(judge), "turn": told.turn, "judgement": plain(judgement), "cost": plain(cost)}
        with self._noted("judge_answer", now, **facts):
            super().judge_answer(judge, told, judgement, now, cost=cost)

    def judge_failed(self, judge: Judge, told: JudgeInput, why: str, now: float, *, cost: AskCost) -> None:
        with self._noted("judge_failed", now, judge=_judge(judge), turn=told.turn, why=why, cost=plain(cost)):
            super().judge_failed(judge, told, why, now, cost=cost)

    def charge_compaction(self, cost: AskCost, now: float) -> None:
        with self._noted("charge_compaction", now, cost=plain(cost)):
            super().charge_compaction(cost, now)

    def found(self, detection: Detection, now: float) -> None:
        with self._noted("found", now, detection=plain(detection)):
            super().found(detection, now)

    def nested(self, child: RunCore, usage: Usage, usd: float, now: float) -> Stop | None:
        with self._noted("nested", now, child=self._number_of(child), usage=plain(usage), usd=usd):
            return super().nested(child, usage, usd, now)

    def nested_ended(self, child: RunCore, usage: Usage, usd: float, now: float) -> None:
        with self._noted("nested_ended", now, child=self._number_of(child), usage=plain(usage), usd=usd):
            super().nested_ended(child, usage, usd, now)
        del self._nested_runs[id(child)]  # another object may get this id

    def _number_of(self, child: RunCore) -> int:
        if id(child) not in self._nested_runs:
            self._nested_runs[id(child)] = next(self._numbers)
        return self._nested_runs[id(child)]

    def _busy(self) -> list[str]:
        if busy := super()._busy():
            self._tape.note("busy", work=busy)
        return busy

    # ------------------------------------------------------------------ the end

    def abort(self, why: str) -> None:
        self._tape.note(ABORT, why=why)  # perhaps from another thread, while the core works
        super().abort(why)

    def finish(self, detail: str) -> None:
        with self._noted("finish", 0.0, detail=detail):
            super().finish(detail)

    def fail(self, error: BaseException, source: str, now: float) -> None:
        reason = TerminateReason.INVALID_STREAM if isinstance(error, AdapterError) else TerminateReason.ERROR
        stop = Stop(reason, f"{source} raised {describe(error)}", source)
        with self._noted("leave", now, ending=plain(stop), error=error_plain(error)):
            super().fail(error, source, now)

    def leave(self, ending: Stop, error: BaseException | None, now: float) -> None:
        with self._noted("leave", now, ending=plain(ending), error=error_plain(error)):
            super().leave(ending, error, now)

    def terminate(
        self,
        now: float,
        fallback: Stop | None = None,
        error: BaseException | None = None,
        *,
        history: tuple[Message, ...] = (),
    ) -> Outcome:
        facts = {"fallback": plain(fallback), "error": error_plain(error), "pending": _requests(self.pending)}
        with self._noted("terminate", now, **facts):
            return super().terminate(now, fallback, error, history=history)


def _judge(judge: Judge) -> dict[str, Any]:
    return {"name": judge.name, "fact": judge.fact, "threshold": judge.threshold, "counts": judge.counts}


def _requests(pending: Sequence[ApprovalRequest]) -> list[dict[str, Any]]:
    return [request_codec.to_dict(one) for one in pending]


class _Above:
    """The run above, which notes what it answers to a nested run."""

    def __init__(self, parent: RunCore, tape: Tape) -> None:
        self._parent = parent
        self._tape = tape

    def nested(self, child: RunCore, usage: Usage, usd: float, now: float) -> Stop | None:
        stop = self._parent.nested(child, usage, usd, now)
        if stop is not None:
            self._tape.note("above", stop=plain(stop))
        return stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parent, name)
