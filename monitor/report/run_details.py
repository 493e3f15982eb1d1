"""The parts of a run that a page shows: its time line, its first and last steps, and the
steps around its loop. It is gathered while the run is read, and bounded however long the run is.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from monitor._util.hashing import canonical_json
from monitor.transcripts.analysis.scan import Finding, RunScanner
from monitor.transcripts.analysis.survey import SurveyedRun, Watcher
from monitor.transcripts.base import Began, Ended, RecordedCall, RecordedMessage
from monitor.verdicts import Detection

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------
# A run of any length as a row of a fixed number of cells, filled while the run is read.
#
# A row that is full is halved: two cells become one. So memory stays bounded, and where an event
# stands is known to the width of one cell.

CELLS: Final = 480
"""The number of cells that a row on a screen can show."""
WEIGHTS: Final = {"n": 0, "u": 1, "t": 2, "c": 3, "e": 4, "k": 5, "L": 6}
"""The kinds of events, the least telling first: a note of the program, a person, a turn, a call, an
error, a compaction, a loop. Of two events in one cell the more telling is shown.
"""


def most_telling(kinds: Iterable[str]) -> str:
    """The kind that is shown where several events stand in one cell."""
    return max(kinds, key=WEIGHTS.__getitem__)


@dataclass(slots=True)
class BoundedRow(Generic[T]):
    """Values in order, in cells of equal width. `joined`: what a cell has of several values."""

    joined: Callable[[Sequence[T]], T]
    most: int
    cells: list[T] = field(default_factory=list[T])
    count: int = 0
    """The number of values so far."""
    width: int = 1
    """The number of values in a cell."""

    def add(self, value: T) -> None:
        """The next value."""
        at = self.count // self.width
        if at < len(self.cells):
            self.cells[at] = self.joined((self.cells[at], value))
        else:
            self.cells.append(value)
        self.count += 1
        if len(self.cells) >= 2 * self.most:
            self.cells = [self.joined(self.cells[i : i + 2]) for i in range(0, len(self.cells), 2)]
            self.width *= 2

    def cell_of(self, value: int) -> int:
        """The cell in which the value of this number stands, counted from 0."""
        return value // self.width


def time_line() -> BoundedRow[str]:
    """A row of the kinds of events."""
    return BoundedRow(most_telling, CELLS)


def token_line(bars: int = 160) -> BoundedRow[int]:
    """A row of sums of tokens. `bars`: the most sums that are kept."""
    return BoundedRow(sum, bars)


FIRST_STEPS: Final = 6
LAST_STEPS: Final = 6
BEFORE_LOOP: Final = 36
"""Steps up to the one in which the loop was seen: five rounds of a cycle of three, with results."""
AFTER_LOOP: Final = 8
STEP_CHARS: Final = 240
"""The text of a step is shown up to this many characters."""
PASSAGE_CHARS: Final = 600
"""How much of a text is shown in which a passage is repeated."""
BEFORE_PASSAGE: Final = 120
MOST_TOOLS: Final = 50
"""Tools that are counted by name; what comes later counts together."""
REMEMBERED_CALLS: Final = 512
"""The places of this many of the newest calls on the time line are remembered."""

StepKind: TypeAlias = Literal["user", "system", "note", "model", "thinking", "call", "result", "error", "compaction"]
_LETTERS: Final = {"user": "u", "note": "n", "system": "n", "model": "t", "call": "c", "error": "e", "compaction": "k"}
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that steer, hide or reorder what stands around them."""


def shown(text: str) -> str:
    """`text` with everything as an escape that would hide or reorder the text around it."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


@dataclass(slots=True)
class DetailStep:
    """One thing that happened in a run."""

    number: int
    """Counted from 0, over all steps of the run."""
    kind: StepKind
    text: str = ""
    name: str = ""
    """The tool of a call or of a result."""
    at: float | None = None
    chars: int = 0
    """Code points of the whole; more than `text` has where that is shortened."""
    repeated: bool = False
    """Whether the step is one of the repeated calls or messages."""
    passage: tuple[int, int] | None = None
    """Where in `text` the repeated passage stands."""
    loop: bool = False
    """Whether the loop was seen in this step."""


@dataclass(slots=True)
class ToolTotals:
    """The calls that a run has made to one tool."""

    calls: int = 0
    errors: int = 0
    chars: int = 0
    """Code points of all results of the tool."""


@dataclass(slots=True, kw_only=True)
class RunDetails:
    """The parts of a run that the page shows beside its numbers."""

    steps: list[DetailStep] = field(default_factory=list[DetailStep])
    """The steps that are kept, in order and with gaps."""
    number_of_steps: int = 0
    events: BoundedRow[str] = field(default_factory=time_line)
    """The time line: the kinds of all events."""
    marks: set[int] = field(default_factory=set[int])
    """The events of the time line in which the repeated calls or messages stand."""
    stop: int | None = None
    """The event at which the policy would have ended the run. `None`: it would have gone on."""
    tokens: BoundedRow[int] = field(default_factory=token_line)
    """Tokens of the model calls, in order."""
    sources: dict[str, int] = field(default_factory=dict[str, int])
    """Code points of the run by their author."""
    tools: dict[str, ToolTotals] = field(default_factory=dict[str, ToolTotals])
    models: dict[str, int] = field(default_factory=dict[str, int])
    """The number of responses of each model that the responses name."""


@dataclass(slots=True, frozen=True, kw_only=True)
class DetailedRun(SurveyedRun):
    """A run together with its details."""

    details: RunDetails


class StoryWatcher(Watcher):
    """Watches a run, and keeps what a page shows of it."""

    def __init__(self, began: Began, scanner: RunScanner) -> None:
        super().__init__(began, scanner)
        self._details = RunDetails()
        self._first: list[DetailStep] = []
        self._recent: deque[DetailStep] = deque(maxlen=BEFORE_LOOP)
        self._around: list[DetailStep] = []
        self._left = 0
        self._calls = self._turns = 0
        self._events_of: dict[str, deque[tuple[int, int]]] = {
            "tools": deque(maxlen=REMEMBERED_CALLS),
            "messages": deque(maxlen=REMEMBERED_CALLS),
        }
        self._step_of: dict[tuple[str, int], DetailStep] = {}
        self._tool_of: dict[str, str] = {}
        """The tools of the newest calls, by the ids of the calls."""
        self._chars = {"text": 0, "reasoning": 0}

    def take(self, message: RecordedMessage) -> Sequence[Finding]:
        before = dict(self._chars)
        told = list(self._told(message))
        found = super().take(message)
        first = next((finding.detection for finding in found if finding.detection.level == "loop"), None)
        if first is not None and not self._around:
            self._mark(first, message, told, before)
        for later in self._scanner.later:
            self._mark_calls(later)
        if self._details.stop is None and self._scanner.ended_by is not None:
            self._details.stop = max(0, self._details.events.count - 1)
        if message.model:
            models, name = self._details.models, shown(message.model[:STEP_CHARS])
            models[name] = models.get(name, 0) + 1
        if message.usage is not None:
            self._details.tokens.add(message.usage.total_tokens)
        return found

    def compacted(self) -> None:
        super().compacted()
        self._add(DetailStep(self._details.number_of_steps, "compaction", "the history was replaced by a summary"))
        self._calls = self._turns = 0
        self._chars = {"text": 0, "reasoning": 0}
        for events in self._events_of.values():
            events.clear()
        self._step_of.clear()

    def run(self, file: str, kind: str, ended: Ended) -> DetailedRun:
        run = super().run(file, kind, ended)
        told = {step.number: step for step in (*self._first, *self._around, *list(self._recent)[-LAST_STEPS:])}
        self._details.steps = [told[number] for number in sorted(told)]
        return DetailedRun(**{one.name: getattr(run, one.name) for one in fields(SurveyedRun)}, details=self._details)

    # ------------------------------------------------------------------ the steps

    def _told(self, message: RecordedMessage) -> Iterator[DetailStep]:
        at = message.at
        if message.role == "assistant":
            self._events_of["messages"].append((self._turns, self._details.events.count))
            if message.reasoning:
                self._chars["reasoning"] += len(message.reasoning)
                yield self._add(self._step("thinking", message.reasoning, at=at))
            if message.text or not message.tool_calls:
                self._chars["text"] += len(message.text)
                step = self._add(self._step("model", message.text, at=at))
                self._step_of["messages", self._turns] = step
                yield step
            self._turns += bool(message.text.strip()) or not message.tool_calls  # as similar messages are counted
            for call in message.tool_calls:
                yield self._call(call, at)
        elif message.text or not message.tool_results:
            kind: StepKind = "note" if message.synthetic else "system" if message.role == "system" else "user"
            yield self._add(self._step(kind, message.text, at=at))
        for result in message.tool_results:
            length = result.length or len(result.text)
            name = result.name or self._tool_of.get(result.call_id or "", "")
            step = self._step("error" if result.is_error else "result", result.text, name=name, at=at)
            step.chars = length
            tool = self._tool(name)
            tool.errors += result.is_error
            tool.chars += length
            yield self._add(step)

    def _call(self, call: RecordedCall, at: float | None) -> DetailStep:
        arguments = call.arguments if isinstance(call.arguments, str) else _as_json(call.arguments)
        self._tool(call.name).calls += 1
        if call.id is not None:
            self._tool_of[call.id] = call.name
            if len(self._tool_of) > REMEMBERED_CALLS:
                del self._tool_of[next(iter(self._tool_of))]
        self._events_of["tools"].append((self._calls, self._details.events.count))
        step = self._add(self._step("call", arguments, name=call.name, at=at))
        self._step_of["tools", self._calls] = step
        self._calls += 1
        return step

    def _step(self, kind: StepKind, text: str, *, name: str = "", at: float | None = None) -> DetailStep:
        details = self._details
        source = {"error": "result", "call": "arguments"}.get(kind, kind)
        details.sources[source] = details.sources.get(source, 0) + len(text)
        return DetailStep(
            details.number_of_steps, kind, shown(text[:STEP_CHARS]), shown(name[:STEP_CHARS]), at, len(text)
        )

    def _tool(self, name: str) -> ToolTotals:
        tools, key = self._details.tools, shown(name[:STEP_CHARS])
        return tools.setdefault(key if key in tools or len(tools) < MOST_TOOLS else "(others)", ToolTotals())

    def _add(self, step: DetailStep) -> DetailStep:
        details = self._details
        step.number = details.number_of_steps
        details.number_of_steps += 1
        if letter := _LETTERS.get(step.kind):
            details.events.add(letter)
        if len(self._first) < FIRST_STEPS:
            self._first.append(step)
        self._recent.append(step)
        if self._left:
            self._left -= 1
            self._around.append(step)
        if len(self._step_of) > REMEMBERED_CALLS:
            del self._step_of[next(iter(self._step_of))]
        return step

    # ------------------------------------------------------------------ where the loop stands

    def _mark(
        self, found: Detection, message: RecordedMessage, told: Sequence[DetailStep], before: dict[str, int]
    ) -> None:
        """The first sure loop of the run was seen in `message`, whose steps are `told`. `before`:
        the code points of each channel that came before it.
        """
        details = self._details
        if found.channel in self._events_of:
            self._mark_calls(found)
        else:
            self._mark_passage(found, message, told, before)
            details.marks.add(max(0, details.events.count - 1))
        told[-1].loop = True
        details.events.add("L")
        self._around = list(self._recent)
        self._left = AFTER_LOOP

    def _mark_calls(self, found: Detection) -> None:
        """Mark the repeated calls or messages, also behind the place at which the loop was seen."""
        offsets = set(found.evidence.offsets or (found.offset,))
        if found.kind == "cycle":  # whose offsets are the beginnings of its rounds
            offsets = set(range(found.start_offset, found.offset + 1))
        for offset in offsets:
            if (step := self._step_of.get((found.channel, offset))) is not None:
                step.repeated = True
        self._details.marks |= {event for at, event in self._events_of.get(found.channel, ()) if at in offsets}

    def _mark_passage(
        self, found: Detection, message: RecordedMessage, told: Sequence[DetailStep], before: dict[str, int]
    ) -> None:
        """Show the text from a little before the repeated passage on."""
        kind, text = ("thinking", message.reasoning) if found.channel == "reasoning" else ("model", message.text)
        step = next((step for step in told if step.kind == kind), None)
        if step is None or found.channel not in before:
            step = next((step for step in reversed(told) if step.kind == "call"), told[-1])
            step.repeated = True
            return
        begins = min(max(0, found.start_offset - before[found.channel]), len(text))
        ends = min(max(begins, found.offset - before[found.channel]), len(text))
        start = max(0, begins - BEFORE_PASSAGE)
        head, passage = shown(text[start:begins]), shown(text[begins : min(ends, start + PASSAGE_CHARS)])
        tail = shown(text[ends : ends + BEFORE_PASSAGE]) if ends < start + PASSAGE_CHARS else ""
        step.text = ("…" if start else "") + head
        step.passage = (len(step.text), len(step.text) + len(passage))
        step.text += passage + tail
        step.repeated = True


def stop_cell_of(details: RunDetails) -> int | None:
    """The cell of the time line at which a stop would have come."""
    return None if details.stop is None else details.events.cell_of(details.stop)


def cells_of(details: RunDetails) -> list[int]:
    """The cells of the time line that have a repeated call or message."""
    return sorted({details.events.cell_of(event) for event in details.marks})


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return canonical_json(value)
