"""The inputs of a core as data: what a core takes besides chunks, and the notes about it.

An input is written as its kind and its fields, as an event is. A recording core makes the inputs of
its calls from this table, and a replayed core makes its calls from them: a new input is one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeAlias, dataclass_transform

from monitor._util.codec import Codec, error_to_plain, tag_of, to_plain
from monitor.chunks import AskCost, Chunk, ToolCall, Usage
from monitor.goal.goal import NOT_RECORDED, RecordedAnswer
from monitor.judges.judge import JudgeLines, JudgeSchedule
from monitor.messages import ApprovalRequest, SteerMessage
from monitor.models import ModelError
from monitor.outcome import RecordableError
from monitor.verdicts import Detection, Judgement, Stop

Number: TypeAlias = int | float
"""A number that is read back as it was written: 1 is not 1.0."""


@dataclass_transform(frozen_default=True)
class CoreInput:
    """An input of a core other than a chunk. It has the name of the method of `RunCore` that takes
    it, and its fields are the arguments of that method. Every subclass is a frozen dataclass.
    """

    what: ClassVar[str]
    """The kind, as it is stored: `EndTurnInput` is `end_turn`."""
    names: ClassVar[tuple[str, ...]]
    """The names of the fields, in their order."""
    kinds: ClassVar[dict[str, type[CoreInput]]] = {}
    """All kinds of inputs and notes, by what is stored."""

    def __init_subclass__(cls) -> None:
        made: Any = dataclass(frozen=True)(cls)
        cls.names = tuple(field.name for field in fields(made))
        cls.what = tag_of(cls).rpartition("_")[0]
        cls.kinds[cls.what] = cls


class InputNote(CoreInput):
    """A note, made while the core takes an input. It belongs to that input."""


LoggedInput: TypeAlias = tuple[float, Chunk | CoreInput]
"""A chunk, another input or a note, with the reading of the run's clock."""


@dataclass(slots=True, frozen=True)
class RecordedJudge:
    """The facts that a core needs of a judge."""

    name: str
    fact: str
    threshold: Number
    counts: bool
    lines: JudgeLines | None = None

    def schedule(self) -> JudgeSchedule:
        """A new schedule, which only says what the recorded answers mean."""
        return JudgeSchedule(lines=self.lines)


# ---------------------------------------------------------------------- the run and its turns


class BeginInput(CoreInput):
    """The run starts, with these parts."""

    parts: Mapping[str, Any]
    """The parts of the core, as `parts_to_json` writes them."""


class TakeUpInput(CoreInput):
    """The run goes on in another process."""

    run: str
    nested: tuple[tuple[Usage, Number | None], ...]
    decides: bool = False
    """See `RunCore.take_up`."""
    lost: bool = False
    """See `RunCore.take_up`."""
    compaction_cost: AskCost | None = None
    """All summaries so far. `None`: those of the events."""


class BeginTurnInput(CoreInput):
    """A stream is about to be opened."""


class BeginLastTurnInput(CoreInput):
    """The run has one more turn. The check before has answered with it."""


class FirstChunkInput(CoreInput):
    """The stream delivered its first object."""


class ContinuedInput(CoreInput):
    """The SDK made another model call inside the stream."""


class BrokeOffInput(CoreInput):
    """The stream broke off inside an answer."""


class CatchUpInput(CoreInput):
    """One more piece of a huge delta is examined."""


class ToolResultInput(CoreInput):
    """A tool has answered a call of the model."""

    call: str | None
    text: str
    is_error: bool
    vetoed: bool
    progress: Number | None


class EndTurnInput(CoreInput):
    """The stream is over, well or by an error."""

    finished: bool
    must_finish: bool
    gave: tuple[str, ...]
    error: RecordableError
    model_error: ModelError | None


class SourceClosedInput(CoreInput):
    """The harness tried to close the source."""

    since: Number
    closed: bool
    chunks_dropped: int
    note: str | None


class AnswerCallInput(CoreInput):
    """The model called one of the run's own tools."""

    call: ToolCall


class RetractInput(CoreInput):
    """Nothing of the last stream counts."""


class WillRetryInput(CoreInput):
    """The failed turn will be tried again."""

    delay_s: Number


class SteerInput(CoreInput):
    """A person, or a program, has said something to the run."""

    message: SteerMessage


class DeliverInput(CoreInput):
    """The harness asks which messages enter the history now."""


class CheckInput(CoreInput):
    """The harness asks what to do now."""


# ---------------------------------------------------------------------- time


class MustStopInput(CoreInput):
    """The deadline of the core has passed."""

    waiting_since: Number


class RefreshInput(CoreInput):
    """The harness asks for the exact deadline."""

    waiting_since: Number


class PauseInput(CoreInput):
    """A person is asked, and deadlines stand still."""


class ResumeInput(CoreInput):
    """The person has answered, and deadlines go on."""


# ---------------------------------------------------------------------- what is beside the run


class JudgeAnswerInput(CoreInput):
    """A judge has answered a question about the run."""

    judge: RecordedJudge
    turn: int
    judgement: Judgement
    cost: AskCost


class JudgeFailedInput(CoreInput):
    """A judge was asked, and gave no answer."""

    judge: RecordedJudge
    turn: int
    why: str
    cost: AskCost


class ChargeCompactionInput(CoreInput):
    """A model has summarised the history."""

    cost: AskCost


class FoundInput(CoreInput):
    """The harness itself made a detection."""

    detection: Detection


class NestedInput(CoreInput):
    """A nested run has used this much so far."""

    child: int
    """The number of the nested run in this log."""
    usage: Usage
    usd: Number | None
    """The cost in US dollars. `None`: it is not known."""


class NestedEndedInput(NestedInput):
    """A nested run has ended, and used this much."""


class SpentInput(CoreInput):
    """Others have spent from the budgets, or a store has granted more. No method takes this."""

    spent: list[Any]


class RecallInput(CoreInput):
    """The goal of a run that goes on answers a call that it answered before. No method of the core
    takes this.
    """

    call: ToolCall


# ---------------------------------------------------------------------- the end


class FinishInput(CoreInput):
    """The caller says that the goal is reached."""

    detail: str


class LeaveInput(CoreInput):
    """The caller leaves the run, or a part of it crashed."""

    ending: Stop
    error: RecordableError


class TerminateInput(CoreInput):
    """The run ends, whatever was decided."""

    fallback: Stop | None
    error: RecordableError
    pending: tuple[ApprovalRequest, ...]


# ---------------------------------------------------------------------- notes


class EventNote(InputNote):
    """The harness emitted an event at this place."""

    number: int
    """The place of the event among the stored ones."""
    behind: int
    """The number of events that the core had emitted for this input by then."""


class FactNote(EventNote):
    """The event is true whatever the core decides. Such a note is never stored."""


class StateNote(InputNote):
    """The input has changed one of these two."""

    stop: bool
    ends_stream: bool


class LifeNote(InputNote):
    """The run had begun this many times before, in other processes."""

    number: int


class AbortNote(InputNote):
    """The end of the run was requested, perhaps from another thread."""

    why: str


class AboveNote(InputNote):
    """The run above ends the nested one."""

    stop: Stop


class AnswerNote(RecordedAnswer, InputNote):
    """The goal of the run answered a call."""


class AskedNote(InputNote):
    """Judges were asked, each about a turn."""

    judges: tuple[tuple[str, int], ...]


class BusyNote(InputNote):
    """The companions of the core were busy."""

    work: tuple[str, ...]


class CountedNote(InputNote):
    """The state of each budget, after a run has gone on."""

    spent: list[Any]


class KeyNote(InputNote):
    """The identity of a call for the detectors, as its tool has said."""

    key: Any


# ---------------------------------------------------------------------- as JSON data

_codec: Codec[CoreInput] = Codec(*CoreInput.kinds.values())
_TAGGED: Final = (ApprovalRequest, AskCost, Detection, Judgement, ModelError, SteerMessage, Stop, ToolCall, Usage)
"""Objects among the fields that are written with their type."""
_objects: Codec[Any] = Codec(*_TAGGED)


def facts_of(taken: CoreInput) -> dict[str, Any]:
    """The fields of an input as JSON data."""
    found = {name: getattr(taken, name) for name in taken.names}
    return {name: _plain(value) for name, value in found.items() if value is not NOT_RECORDED}


def _plain(value: Any) -> Any:
    if isinstance(value, _TAGGED):
        return _objects.to_dict(value)
    if isinstance(value, BaseException):
        return error_to_plain(value)
    return [*map(_plain, value)] if isinstance(value, tuple) else to_plain(value)


def input_from(what: str, facts: Mapping[str, Any]) -> CoreInput:
    """The inverse of `facts_of`. Raises `ValueError` for anything else."""
    if what not in CoreInput.kinds:
        raise ValueError(f"there is no input {what!r}")
    return _codec.from_dict({**facts, "type": tag_of(CoreInput.kinds[what])})


def split(entries: Iterable[LoggedInput]) -> tuple[tuple[tuple[float, Chunk], ...], tuple[dict[str, Any], ...]]:
    """The chunks, and all else as JSON data, each with the number of the chunks before it."""
    chunks: list[tuple[float, Chunk]] = []
    others: list[dict[str, Any]] = []
    for at, one in entries:
        if isinstance(one, CoreInput):
            others.append({"behind": len(chunks), "what": one.what, "at": at, "facts": facts_of(one)})
        else:
            chunks.append((at, one))
    return tuple(chunks), tuple(others)


def joined(chunks: tuple[tuple[float, Chunk], ...], others: Iterable[Mapping[str, Any]]) -> Iterator[LoggedInput]:
    """The entries of which `split` made these two."""
    done = 0
    for other in others:
        yield from chunks[done : other["behind"]]
        done = other["behind"]
        yield other["at"], input_from(other["what"], other["facts"])
    yield from chunks[done:]
