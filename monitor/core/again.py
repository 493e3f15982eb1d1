"""Tells a core again what is on a tape. With the same parts it decides the same; with others it
decides what they say, up to the point where the run would have gone another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from monitor.calls import request_codec
from monitor.chunks import chunk_codec
from monitor.core.described import condition_again, detectors_again, others_again, policy_again
from monitor.core.past import past_of
from monitor.core.run import RunCore
from monitor.core.tape import ABORT, EVENT, NOTES, STATE, Entry, Input, facts_codec
from monitor.errors import RecordedError
from monitor.events import ChunkReceived, Event, JudgeAsked, Nudged, StopDecided, ToolWithdrawn
from monitor.goal.recorded import RecordedGoal
from monitor.judges.judge import Judge, JudgeInput
from monitor.judges.panel import Panel
from monitor.outcome import Outcome
from monitor.reasons import TerminateReason
from monitor.usage import AskCost, Usage
from monitor.verdicts import Continue, Hold, Judgement, LastTurn, Nudge, Stop, Verdict, WithdrawTool

STORED = ("stop_when", "detectors", "policy")
"""The parts that may be given in the place of the recorded ones."""


def read(value: Mapping[str, Any] | None) -> Any:
    """The inverse of `tape.plain`."""
    return None if value is None else facts_codec.from_dict(value)


def read_error(value: Mapping[str, str] | None) -> RecordedError | None:
    """The inverse of `tape.error_plain`."""
    return None if value is None else RecordedError(value["type"], value["message"])


@dataclass(slots=True)
class Step:
    """An input of the core, and the notes about it."""

    entry: Entry
    notes: list[Input] = field(default_factory=list)

    @property
    def what(self) -> str:
        """Its kind; `chunk` for a chunk."""
        return self.entry.what if isinstance(self.entry, Input) else "chunk"

    @property
    def at(self) -> float:
        """The reading of the run's clock."""
        return self.entry.at if isinstance(self.entry, Input) else self.entry[0]

    def noted(self, what: str) -> Iterator[Mapping[str, Any]]:
        """The facts of the notes of this kind."""
        return (note.facts for note in self.notes if note.what == what)


def steps_of(entries: Iterable[Entry]) -> Iterator[Step]:
    """The steps of a tape."""
    step: Step | None = None
    early: list[Input] = []  # an abort may come before the run begins
    for entry in entries:
        if isinstance(entry, Input) and entry.what in NOTES:
            (early if step is None else step.notes).append(entry)
            continue
        if step is not None:
            yield step
        step, early = Step(entry, early), []
    if step is not None:
        yield step


class _SilentPanel(Panel):
    """Judges whose answers are on record."""

    __slots__ = ()

    def answered(self, judge: Judge, judgement: Judgement) -> None:
        """Does nothing."""

    def failed(self, judge: Judge) -> None:
        """Does nothing."""


@dataclass(slots=True, frozen=True)
class _RecordedJudge:
    name: str
    fact: str
    threshold: float
    counts: bool


class _RecordedAbove:
    """The run above a nested one, which answers as is recorded."""

    def __init__(self, core: AgainCore) -> None:
        self._core = core

    def nested(self, child: RunCore, usage: Usage, usd: float, now: float) -> Stop | None:
        return next((read(facts["stop"]) for facts in self._core.step.noted("above")), None)

    def nested_ended(self, child: RunCore, usage: Usage, usd: float, now: float) -> None:
        """Nobody counts here."""

    def pause(self, now: float) -> None:
        """Nobody waits here."""

    resume = pause


class AgainCore(RunCore):
    """A core whose surroundings answer as is recorded."""

    def __init__(self, parts: Mapping[str, Any], given: Mapping[str, Any], emit: Callable[[Event], None]) -> None:
        """`parts`: of `described`. `given`: parts in the place of the recorded ones."""
        again: dict[str, Callable[[Any], Any]] = {
            "stop_when": condition_again,
            "detectors": detectors_again,
            "policy": policy_again,
        }
        chosen = {name: given[name] if name in given else again[name](parts[name]) for name in STORED}
        others = others_again(parts)
        above: Any = _RecordedAbove(self) if parts["nested"] else None
        super().__init__(**chosen, **others, emit=emit, parent=above, loop_key=lambda *_: next(self._keys, None))
        self.step = Step(Input("begin", 0.0))
        self.piecewise = True
        self.companions = (self,)
        self._panel = _SilentPanel(())
        self._keys: Iterator[Any] = iter(())
        self._recorded_goal: RecordedGoal | None = others["goal"]
        self._members = tuple(dict.fromkeys(one for budget in others["budgets"] for one in budget.chain))
        self._children: dict[int, Any] = {}
        self.before: Sequence[Event] = ()
        """The stored events of the processes that had the run before."""
        self.verdict: Verdict = Continue()
        """The answer to the last check."""

    # ------------------------------------------------------------------ as a companion of itself

    def turn_began(self) -> None:
        """The judges that were asked then are asked."""
        for facts in self.step.noted("asked"):
            for name, turn in facts["judges"]:
                self._emit(JudgeAsked(self.at(self.step.at), turn, name))

    def busy_with(self) -> str | None:
        """What the companions were busy with then."""
        return "; ".join(work for facts in self.step.noted("busy") for work in facts["work"]) or None

    def cancel(self) -> None:
        """Nothing is at work."""

    # ------------------------------------------------------------------ its inputs

    def take(self, step: Step) -> None:
        """Take the input of this step."""
        self.step = step
        self._keys = iter([facts["key"] for facts in step.noted("key")])
        if self._recorded_goal is not None:
            self._recorded_goal.answers.extend(step.noted("answer"))
        if isinstance(step.entry, Input):
            take = getattr(self, f"_{step.what}_again", None)
            if take is None:
                raise ValueError(f"there is no input {step.what!r}")
            take(step.at, step.entry.facts)
        else:
            self.feed(step.entry[1], step.at)
        if self._recorded_goal is not None:
            self._recorded_goal.answers.clear()
        for facts in step.noted(ABORT):
            self.abort(facts["why"])

    def _begin_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.begin(now)

    def _take_up_again(self, now: float, facts: Mapping[str, Any]) -> None:
        past = past_of(self.before)
        past.nested = [(read(usage), usd) for usage, usd in facts["nested"]]
        in_calls = bool(facts.get("in_calls"))  # an older tape does not say it, and its core did not ask
        self.take_up(past, facts["run"], now, in_calls=in_calls)
        for counted in self.step.noted("counted"):
            self._spent_again(now, counted)

    def _begin_turn_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.begin_turn(now)

    def _begin_last_turn_again(self, now: float, _: Mapping[str, Any]) -> None:
        if isinstance(self.verdict, LastTurn):
            self.begin_last_turn(self.verdict, now)

    def _first_chunk_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.first_chunk(now)

    def _continued_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.continued(now)

    def _broke_off_again(self, _: float, __: Mapping[str, Any]) -> None:
        self.broke_off()

    def _catch_up_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.catch_up(now)

    def _tool_result_again(self, now: float, facts: Mapping[str, Any]) -> None:
        call, text = facts["call"], facts["text"]
        options: Any = {name: facts[name] for name in ("is_error", "vetoed", "progress")}
        self.tool_result(call, text, now, **options)

    def _end_turn_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.end_turn(
            now,
            finished=facts["finished"],
            must_finish=facts["must_finish"],
            error=read_error(facts["error"]),
            model_error=read(facts["model_error"]),
            gave=tuple(facts["gave"]),
        )

    def _source_closed_again(self, now: float, facts: Mapping[str, Any]) -> None:
        options: Any = facts
        self.source_closed(now, **options)

    def _answer_call_again(self, now: float, facts: Mapping[str, Any]) -> None:
        call: Any = chunk_codec.from_dict(facts["call"])
        self.answer(call, now)

    def _recall_again(self, _: float, facts: Mapping[str, Any]) -> None:
        call: Any = chunk_codec.from_dict(facts["call"])
        if self._recorded_goal is not None:
            self._recorded_goal.answer(call)

    def _retract_again(self, _: float, __: Mapping[str, Any]) -> None:
        self.retract()

    def _will_retry_again(self, _: float, facts: Mapping[str, Any]) -> None:
        self.will_retry(facts["delay_s"])

    def _check_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.verdict = self.check(now)

    def _must_stop_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.waiting_since = facts["waiting_since"]
        self.must_stop(now)

    def _refresh_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.waiting_since = facts["waiting_since"]
        self.refresh(now)

    def _pause_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.pause(now)

    def _resume_again(self, now: float, _: Mapping[str, Any]) -> None:
        self.resume(now)

    def _judge_answer_again(self, now: float, facts: Mapping[str, Any]) -> None:
        judge, told = _judge(facts)
        self.judge_answer(judge, told, read(facts["judgement"]), now, cost=read(facts["cost"]))

    def _judge_failed_again(self, now: float, facts: Mapping[str, Any]) -> None:
        judge, told = _judge(facts)
        self.judge_failed(judge, told, facts["why"], now, cost=read(facts["cost"]))

    def _charge_compaction_again(self, now: float, facts: Mapping[str, Any]) -> None:
        cost: AskCost = read(facts["cost"])
        self.charge_compaction(cost, now)

    def _found_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.found(read(facts["detection"]), now)

    def _nested_again(self, now: float, facts: Mapping[str, Any]) -> None:
        child = self._children.setdefault(facts["child"], object())
        self.nested(child, read(facts["usage"]), facts["usd"], now)

    def _nested_ended_again(self, now: float, facts: Mapping[str, Any]) -> None:
        child = self._children.setdefault(facts["child"], object())
        self.nested_ended(child, read(facts["usage"]), facts["usd"], now)

    def _spent_again(self, _: float, facts: Mapping[str, Any]) -> None:
        for member, state in zip(self._members, facts["spent"], strict=True):
            member.set_state(state)

    def _finish_again(self, _: float, facts: Mapping[str, Any]) -> None:
        self.finish(facts["detail"])

    def _leave_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.leave(read(facts["ending"]), read_error(facts["error"]), now)

    def _terminate_again(self, now: float, facts: Mapping[str, Any]) -> None:
        self.pending = tuple(request_codec.from_dict(one) for one in facts["pending"])
        self.terminate(now, read(facts["fallback"]), read_error(facts["error"]))

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


def _judge(facts: Mapping[str, Any]) -> tuple[Any, JudgeInput]:
    return _RecordedJudge(**facts["judge"]), JudgeInput(None, "", facts["turn"])


SOURCE = "replay"
"""The source of an end that is only the end of the record."""


class Again:
    """Tells a run again, from the beginning of its tape on. Iterate over it once."""

    def __init__(
        self,
        entries: Iterable[Entry],
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
        begin = self._steps[0].entry if self._steps else None
        if not isinstance(begin, Input) or begin.what != "begin":
            raise ValueError("a tape begins with the parts of its run")
        self._stored = stored
        self._decided: list[Event] = []
        self.core: AgainCore = AgainCore(begin.facts["parts"], given, self._decided.append)
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

    def _noted(self, step: Step) -> list[Event]:
        if step.what == "terminate" and self._stop_recorded and self.core.stop is None:
            self.core.leave(self._end_of_record(), None, step.at)
        self.core.take(step)
        for facts in step.noted(STATE):
            self._stop_recorded, self._end_recorded = facts["stop"], facts["ends_stream"]
        woven = self._woven(step, self._taken())
        if self._pieces and not isinstance(step.entry, Input):
            woven.append(ChunkReceived(self.core.at(step.at), self.core.turns, step.entry[1]))
        return woven

    def _end_of_record(self) -> Stop:
        stops = [event.stop for event in self._stored if isinstance(event, StopDecided)]
        why = f": {stops[-1].reason.value}, {stops[-1].detail}" if stops else ""
        self.departed = f"the recorded run was ended here{why}"
        return Stop(TerminateReason.CLOSED_BY_CALLER, self.departed, SOURCE)

    def _woven(self, step: Step, decided: Sequence[Event]) -> list[Event]:
        """The events of the core, and those of the harness at their places among them."""
        woven: list[Event] = []
        done = 0
        for facts in step.noted(EVENT):
            done, before = max(done, facts["behind"]), done
            woven += decided[before:done]
            if facts["number"] < len(self._stored):
                event = self._stored[facts["number"]]
                if facts.get("fact") or self._holds(event):
                    woven.append(event)
        woven += decided[done:]
        said = self._said(step.at) if step.what == "check" else None
        return woven if said is None or any(map(self._holds_as_reaction, woven)) else [*woven, said]

    def _holds(self, event: Event) -> bool:
        """Whether an event of the harness is true here. A reaction is only to the same verdict."""
        return not isinstance(event, Nudged | ToolWithdrawn) or self._holds_as_reaction(event)

    def _holds_as_reaction(self, event: Event) -> bool:
        match event, self.core.verdict:
            case Nudged(), Hold():
                return True
            case (Nudged(text=text), Nudge(text=said)) | (ToolWithdrawn(text=text), WithdrawTool(text=said)):
                return text == said
        return False

    def _said(self, now: float) -> Event | None:
        """What the harness would say to the model."""
        at_s, turns = self.core.at(now), self.core.turns
        match self.core.verdict:
            case Nudge(text):
                return Nudged(at_s, turns, text)
            case WithdrawTool(name, text):
                return ToolWithdrawn(at_s, turns, name, text)
        return None

    def _leaves_the_record(self, step: Step, after: Step | None) -> Stop | None:
        """Why nothing that is recorded after this step is true any more."""
        core = self.core
        if core.stop is not None and not self._stop_recorded:
            return core.stop
        what: str | None = None
        if core.ends_stream and not self._end_recorded:
            what = "the stream is left here, because its text loops"
        elif step.what == "check" and isinstance(core.verdict, LastTurn):
            what = None if after is not None and after.what == "begin_last_turn" else "a last turn begins here"
        if what is None:
            return None
        return Stop(TerminateReason.CLOSED_BY_CALLER, f"{what}, and the recorded run went on", SOURCE)
