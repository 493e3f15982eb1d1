"""The parts of a run that a page shows: its time line, its first and last steps, and the
steps around its loop. It is gathered while the run is read, and bounded however long the run is.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

from monitor._util.hashing import canonical_json
from monitor.transcripts.analysis.scan import Finding, RunScanner
from monitor.transcripts.analysis.survey import SurveyedRun, Watcher
from monitor.transcripts.base import Began, Ended, RecordedCall, RecordedMessage
from monitor.verdicts import Detection

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


@dataclass(slots=True)
class Strip:
    """The kinds of all events, in order, in cells of equal width."""

    cells: list[str] = field(default_factory=list[str])
    events: int = 0
    """The number of events so far."""
    width: int = 1
    """The number of events in a cell."""

    def add(self, kind: str) -> None:
        """The next event. `kind`: one of `WEIGHTS`."""
        at = self.events // self.width
        if at < len(self.cells):
            self.cells[at] = max(self.cells[at], kind, key=WEIGHTS.__getitem__)
        else:
            self.cells.append(kind)
        self.events += 1
        if len(self.cells) >= 2 * CELLS:
            self.cells = [max(self.cells[i : i + 2], key=WEIGHTS.__getitem__) for i in range(0, len(self.cells), 2)]
            self.width *= 2

    def cell_of(self, event: int) -> int:
        """The cell in which the event stands, counted from 0."""
        return event // self.width


@dataclass(slots=True)
class Sums:
    """Numbers, in order; a cell has the sum of its numbers."""

    cells: list[int] = field(default_factory=list[int])
    count: int = 0
    width: int = 1
    """The number of added numbers in a cell."""
    most: int = 160

    def add(self, number: int) -> None:
        """Add the next number to the cells."""
        at = self.count // self.width
        if at < len(self.cells):
            self.cells[at] += number
        else:
            self.cells.append(number)
        self.count += 1
        if len(self.cells) >= 2 * self.most:
            self.cells = [sum(self.cells[i : i + 2]) for i in range(0, len(self.cells), 2)]
            self.width *= 2


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
class StoryStep:
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
class Story:
    """The parts of a run that the page shows beside its numbers."""

    steps: list[StoryStep] = field(default_factory=list[StoryStep])
    """The steps that are kept, in order and with gaps."""
    number_of_steps: int = 0
    strip: Strip = field(default_factory=Strip)
    marks: list[int] = field(default_factory=list[int])
    """Cells of the strip in which the repeated calls or messages stand."""
    stop: int | None = None
    """The event at which the policy would have ended the run. `None`: it would have gone on."""
    tokens: Sums = field(default_factory=Sums)
    """Tokens of the model calls, in order."""
    sources: dict[str, int] = field(default_factory=dict[str, int])
    """Code points of the run by their author."""
    tools: dict[str, ToolTotals] = field(default_factory=dict[str, ToolTotals])
    models: dict[str, int] = field(default_factory=dict[str, int])
    """The number of responses of each model that the responses name."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StoryRun(SurveyedRun):
    """A run together with its story."""

    story: Story


class StoryWatcher(Watcher):
    """Watches a run, and keeps what a page shows of it."""

    def __init__(self, began: Began, scanner: RunScanner) -> None:
        super().__init__(began, scanner)
        self._story = Story()
        self._first: list[StoryStep] = []
        self._recent: deque[StoryStep] = deque(maxlen=BEFORE_LOOP)
        self._around: list[StoryStep] = []
        self._left = 0
        self._calls = self._turns = 0
        self._events_of: dict[str, deque[tuple[int, int]]] = {
            "tools": deque(maxlen=REMEMBERED_CALLS),
            "messages": deque(maxlen=REMEMBERED_CALLS),
        }
        self._step_of: dict[tuple[str, int], StoryStep] = {}
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
        if self._story.stop is None and self._scanner.ended_by is not None:
            self._story.stop = max(0, self._story.strip.events - 1)
        if message.model:
            models, name = self._story.models, shown(message.model[:STEP_CHARS])
            models[name] = models.get(name, 0) + 1
        if message.usage is not None:
            self._story.tokens.add(message.usage.total_tokens)
        return found

    def compacted(self) -> None:
        super().compacted()
        self._add(StoryStep(self._story.number_of_steps, "compaction", "the history was replaced by a summary"))
        self._calls = self._turns = 0
        self._chars = {"text": 0, "reasoning": 0}
        for events in self._events_of.values():
            events.clear()
        self._step_of.clear()

    def run(self, file: str, kind: str, ended: Ended) -> StoryRun:
        run = super().run(file, kind, ended)
        told = {step.number: step for step in (*self._first, *self._around, *list(self._recent)[-LAST_STEPS:])}
        self._story.steps = [told[number] for number in sorted(told)]
        return StoryRun(**{one.name: getattr(run, one.name) for one in fields(SurveyedRun)}, story=self._story)

    # ------------------------------------------------------------------ the steps

    def _told(self, message: RecordedMessage) -> Iterator[StoryStep]:
        at = message.at
        if message.role == "assistant":
            self._events_of["messages"].append((self._turns, self._story.strip.events))
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

    def _call(self, call: RecordedCall, at: float | None) -> StoryStep:
        arguments = call.arguments if isinstance(call.arguments, str) else _as_json(call.arguments)
        self._tool(call.name).calls += 1
        if call.id is not None:
            self._tool_of[call.id] = call.name
            if len(self._tool_of) > REMEMBERED_CALLS:
                del self._tool_of[next(iter(self._tool_of))]
        self._events_of["tools"].append((self._calls, self._story.strip.events))
        step = self._add(self._step("call", arguments, name=call.name, at=at))
        self._step_of["tools", self._calls] = step
        self._calls += 1
        return step

    def _step(self, kind: StepKind, text: str, *, name: str = "", at: float | None = None) -> StoryStep:
        story = self._story
        source = {"error": "result", "call": "arguments"}.get(kind, kind)
        story.sources[source] = story.sources.get(source, 0) + len(text)
        return StoryStep(story.number_of_steps, kind, shown(text[:STEP_CHARS]), shown(name[:STEP_CHARS]), at, len(text))

    def _tool(self, name: str) -> ToolTotals:
        tools, key = self._story.tools, shown(name[:STEP_CHARS])
        return tools.setdefault(key if key in tools or len(tools) < MOST_TOOLS else "(others)", ToolTotals())

    def _add(self, step: StoryStep) -> StoryStep:
        story = self._story
        step.number = story.number_of_steps
        story.number_of_steps += 1
        if letter := _LETTERS.get(step.kind):
            story.strip.add(letter)
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
        self, found: Detection, message: RecordedMessage, told: Sequence[StoryStep], before: dict[str, int]
    ) -> None:
        """The first sure loop of the run was seen in `message`, whose steps are `told`. `before`:
        the code points of each channel that came before it.
        """
        story = self._story
        if found.channel in self._events_of:
            offsets = set(found.evidence.offsets or (found.offset,))
            if found.kind == "cycle":  # whose offsets are the beginnings of its rounds
                offsets = set(range(found.start_offset, found.offset + 1))
            for offset in offsets:
                if (step := self._step_of.get((found.channel, offset))) is not None:
                    step.repeated = True
            events = [event for offset, event in self._events_of[found.channel] if offset in offsets]
        else:
            self._mark_passage(found, message, told, before)
            events = [max(0, story.strip.events - 1)]
        told[-1].loop = True
        story.strip.add("L")
        story.marks = events
        self._around = list(self._recent)
        self._left = AFTER_LOOP

    def _mark_passage(
        self, found: Detection, message: RecordedMessage, told: Sequence[StoryStep], before: dict[str, int]
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


def stop_cell_of(story: Story) -> int | None:
    """The cell of the strip at which a stop would have come."""
    return None if story.stop is None else story.strip.cell_of(story.stop)


def cells_of(story: Story) -> list[int]:
    """The cells of the strip that have a repeated call or message."""
    return sorted({story.strip.cell_of(event) for event in story.marks})


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return canonical_json(value)
