"""What a judge reads instead of the history: the record of a run in short (`Digest`), and the steps
that add nothing (`IdleSteps`).

The record has the first steps of the run, the latest ones, and what was counted over the whole run.
Equal requests and equal answers have the same number, so that a reader sees the same page come back
under other words. Of a long answer that is nearly an earlier one, only the difference is shown.
Every text is quoted data (`monitor._util.text`), so that nothing in a tool's answer can speak to
the judge.

    3 calls: 2 different requests, 1 different answers, 0 failed
    turn 31: the agent said "Let me try another query."
    turn 31: request 1: "search" with {"q": "rain in May"} got answer 1: "Results: none."
    turn 32: request 2: "search" with {"q": "May rainfall"} got answer 1 again
    turn 33: request 1 again got answer 1 again
    more than once: request 1, 2 times, turns 31 to 33; answer 1, 3 times, turns 31 to 33
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Protocol

from monitor._util.hashing import canonical_json, identity
from monitor._util.text import ENDING_CHARS, OPENING_CHARS, quoted, quoted_data
from monitor.chunks import Chunk, ToolCall, ToolResult, TurnFinished
from monitor.errors import FinishReason
from monitor.outcome import Turn

MESSAGES = 20
"""The number of the latest messages that are shown (Gemini CLI). The answers to the calls of one
turn are one message.
"""
OPENING_STEPS = 3
"""The first messages of the agent, or to it, that are shown as well: what was there, and what was
tried first.
"""
CALLS_A_TURN = 12
"""How many calls of a turn are shown; of further calls only their number."""
DIGEST_CHARS = 12_000
"""About 3,000 tokens of English: a question must not cost what the run's own turns cost."""
LISTED = 8
"""The most entries of a list: tools, things that came again, numbers of a series."""
SERIES = 3
"""Fewer answers that are equal up to their numbers are no series."""
COMPARED_CHARS = 4_000
"""How much of an answer is compared with earlier ones, and searched for numbers."""
KEPT = 200
"""The number of the newest requests, answers, texts and tools that are known again."""
_CUT: Final = "(the rest of the record is left out)"


@dataclass(slots=True)
class _Known:
    """A request, an answer, or a text of the agent, which may come again."""

    number: int
    shown: str
    first: int
    """The turn in which it came first."""
    last: int = 0
    times: int = 0


class _Numbering:
    """Numbers what comes, in the order of first occurrences. The newest `KEPT` are known again."""

    def __init__(self) -> None:
        self.count = 0
        self.known: dict[str, _Known] = {}

    def add(self, key: str, turn: int, shown: str) -> tuple[_Known, bool]:
        """The entry of `key`, and whether it came before."""
        known = self.known.pop(key, None)
        again = known is not None
        if known is None:
            self.count += 1
            known = _Known(self.count, shown, turn)
        known.last, known.times = turn, known.times + 1
        self.known[key] = known
        _forget(self.known, KEPT)
        return known, again


@dataclass(slots=True)
class _DigestCall:
    id: str
    tool: str
    request: _Known
    again: bool
    answer: _Known | None = None
    """`None`: no answer yet."""
    answer_again: bool = False
    like: int = 0
    """The number of an earlier answer that this one resembles. 0: there is none."""
    difference: str = ""
    failed: bool = False
    at_s: float | None = None
    """When the answer came."""


@dataclass(slots=True)
class _DigestStep:
    """One message of the agent with its calls, or one message to the agent."""

    number: int
    turn: int
    speaker: str
    said: _Known | None
    calls: Sequence[_DigestCall] = ()
    more_calls: int = 0
    at_s: float | None = None

    @property
    def messages(self) -> int:
        return 1 + any(call.answer is not None for call in self.calls)


@dataclass(slots=True)
class _Use:
    """What came of the calls of one tool, or of all."""

    calls: int = 0
    requests: int = 0
    answers: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Series:
    """The numbers in those answers of one tool that are equal up to their numbers."""

    first: int
    """The turn of the first answer."""
    last: int = 0
    times: int = 0
    answer: int = 0
    """The number of the latest answer."""
    differs: bool = False
    """The answers are not all equal."""
    values: deque[Sequence[str]] = field(default_factory=lambda: deque[Sequence[str]](maxlen=LISTED))


class _View:
    """The numbers of the requests, answers and texts that stand in the record so far."""

    def __init__(self) -> None:
        self.requests: set[int] = set()
        self.answers: set[int] = set()
        self.said: dict[int, int] = {}
        """The turn in which a text stands."""


class Digest:
    """Collects the messages of a run, and renders its opening and its latest ones in short. Only
    what may be shown is kept, and the beginnings of the latest answers.
    """

    __slots__ = (
        *("_all", "_answers", "_latest", "_offered", "_opening", "_requests", "_rules", "_said"),
        *("_series", "_steps", "_texts", "_tools", "_turn", "_unshown", "turns_shown"),
    )

    def __init__(self) -> None:
        self._rules, self._offered = "", tuple[str, ...]()
        self._opening: list[_DigestStep] = []
        self._latest: deque[_DigestStep] = deque(maxlen=MESSAGES)
        self._steps = self._turn = self._unshown = 0
        self._requests, self._answers, self._said = _Numbering(), _Numbering(), _Numbering()
        self._all = _Use()
        self._tools: dict[str, _Use] = {}
        self._series: dict[tuple[str, ...], _Series] = {}
        self._texts: deque[tuple[str, int, str]] = deque(maxlen=LISTED // 2)
        """Of the latest long answers: the tool, the number and the beginning."""
        self.turns_shown: Collection[int] = ()
        """The turns of the steps that were rendered last."""

    def set_scene(self, rules: str = "", tools: Iterable[str] = ()) -> None:
        """What the agent works with: its rules, e.g. its system prompt, and the names of the tools
        that it is offered.
        """
        self._rules, self._offered = quoted(rules, 2 * OPENING_CHARS, OPENING_CHARS) if rules else "", tuple(tools)

    def add_turn(self, turn: Turn, at_s: float | None = None) -> None:
        """Add a turn of the model. `at_s`: seconds since the run began. `None`: unknown."""
        self._turn = turn.number
        if turn.text or turn.tool_calls:
            calls = [self._called(call) for call in turn.tool_calls[:CALLS_A_TURN]]
            more = len(turn.tool_calls) - len(calls)
            self._unshown += more
            said = self._known_text(turn.text) if turn.text else None
            self._add(turn.number, "the agent said", said, calls=calls, more_calls=more, at_s=at_s)

    def add_result(self, result: ToolResult, at_s: float | None = None) -> None:
        """Add a tool result, which came `at_s` seconds after the run began. A result whose call is
        no longer kept is ignored.
        """
        for step in reversed(self._latest):
            for call in step.calls:
                if call.id == result.id and call.answer is None:
                    call.at_s, call.failed = at_s, result.is_error
                    self._answered(call, result.text)
                    return

    def add_request(self, text: str) -> None:
        """Add what the user says after the task."""
        self._add(self._turn, "the user said", self._known_text(text))

    def add_warning(self, turn: int, text: str) -> None:
        """Add a message of the supervisor to the agent, e.g. a nudge."""
        self._add(turn, "the supervisor told the agent", self._known_text(text))

    def add_compaction(self, before: int, after: int) -> None:
        """Add that the history was compacted, with its tokens before and after it."""
        self._add(self._turn, "the history was compacted:", self._known_text(f"{before:,} tokens became {after:,}"))

    def render(self, max_chars: int = DIGEST_CHARS) -> str:
        """The record, oldest message first: the opening, and as many of the latest whole steps as
        `max_chars` holds. Calls of the last turn without an answer are left out.
        """
        latest = self._latest_steps()
        opening = [step for step in self._opening if latest and step.number < latest[0].number]
        lines = self._lines(opening, latest)
        while _length(lines) > max_chars and len(latest) > 1:
            if opening and len(latest) <= OPENING_STEPS:
                opening.pop()
            else:
                latest = latest[1:]
            lines = self._lines(opening, latest)
        self.turns_shown = {step.turn for step in (*opening, *latest)}
        return _cut(lines, max_chars)

    # ---------------------------------------------------------------- what comes

    def _add(
        self,
        turn: int,
        speaker: str,
        said: _Known | None,
        *,
        calls: Sequence[_DigestCall] = (),
        more_calls: int = 0,
        at_s: float | None = None,
    ) -> None:
        step = _DigestStep(self._steps, turn, speaker, said, calls, more_calls, at_s)
        self._steps += 1
        self._latest.append(step)
        if len(self._opening) < OPENING_STEPS:
            self._opening.append(step)

    def _known_text(self, text: str) -> _Known:
        return self._said.add(identity(text), self._turn, quoted(text))[0]

    def _called(self, call: ToolCall) -> _DigestCall:
        shown = f"{quoted(call.name)} with {quoted_data(call.arguments)}"
        request, again = self._requests.add(
            identity(f"{call.name} {canonical_json(call.arguments)}"), self._turn, shown
        )
        self._tools[call.name] = use = self._tools.pop(call.name, None) or _Use()
        _forget(self._tools, KEPT)
        for count in (use, self._all):
            count.calls += 1
            count.requests += not again
        return _DigestCall(call.id, call.name, request, again)

    def _answered(self, call: _DigestCall, text: str) -> None:
        known, again = self._answers.add(identity(text), self._turn, quoted(text))
        call.answer, call.answer_again = known, again
        for count in (self._tools.get(call.tool, _Use()), self._all):
            count.answers += not again
            count.failed += call.failed
        beginning = text[:COMPARED_CHARS]
        self._add_numbers(call.tool, known.number, beginning)
        if again or len(text) <= OPENING_CHARS + ENDING_CHARS:  # it is shown whole
            return
        pieces = beginning.translate(_MARKS).split()
        for tool, number, earlier in reversed(self._texts):
            if tool == call.tool and (difference := _difference(earlier.translate(_MARKS).split(), pieces)):
                call.like, call.difference = number, difference
                break
        self._texts.append((call.tool, known.number, beginning))

    def _add_numbers(self, tool: str, answer: int, text: str) -> None:
        found = _numbers(text)
        if found:
            key = (tool, *found)
            self._series[key] = series = self._series.pop(key, None) or _Series(self._turn)
            _forget(self._series, LISTED)
            series.differs |= series.times > 0 and series.answer != answer
            series.last, series.times, series.answer = self._turn, series.times + 1, answer
            series.values.append(tuple(found.values()))

    # ---------------------------------------------------------------- what is shown

    def _latest_steps(self) -> list[_DigestStep]:
        steps = list(self._latest)
        if steps:
            steps[-1] = last = replace(steps[-1], calls=[call for call in steps[-1].calls if call.answer is not None])
            if last.said is None and not last.calls:
                steps.pop()
        latest: list[_DigestStep] = []
        messages = 0
        for step in reversed(steps):
            messages += step.messages
            if messages > MESSAGES:
                break
            latest.insert(0, step)
        return latest

    def _lines(self, opening: Sequence[_DigestStep], latest: Sequence[_DigestStep]) -> list[str]:
        view = _View()
        return [
            *self._head(),
            *(line for step in opening for line in _step_lines(step, view)),
            *_gap(opening, latest),
            *(line for step in latest for line in _step_lines(step, view)),
            *self._came_again(view),
            *self._number_lines(),
        ]

    def _head(self) -> Iterator[str]:
        if self._rules:
            yield f"the agent's rules: {self._rules}"
        unused = [quoted(name) for name in self._offered if name not in self._tools]
        if unused:
            yield f"tools on offer that were not used: {_listed(unused, ', ')}"
        every = self._all
        shown = f", of which {every.calls} are compared" if self._unshown else ""
        yield (
            f"{every.calls + self._unshown} calls{shown}: {every.requests} different requests,"
            f" {every.answers} different answers, {every.failed} failed"
            if every.calls
            else "no calls"
        )
        if len(self._tools) > 1:
            yield "by tool: " + _listed(
                [
                    f"{quoted(name)} {use.calls} ({use.requests} new requests, {use.answers} new answers)"
                    for name, use in reversed(self._tools.items())
                ],
                "; ",
            )

    def _came_again(self, view: _View) -> Iterator[str]:
        often = [
            f"{what} {known.number}, {known.times} times, turns {known.first} to {known.last}"
            f"{'' if known.number in seen else f': {known.shown}'}"
            for what, memory, seen in (
                ("request", self._requests, view.requests),
                ("answer", self._answers, view.answers),
            )
            for known in sorted(memory.known.values(), key=lambda known: -known.times)[: LISTED // 2]
            if known.times > 1
        ]
        if often:
            yield f"more than once: {'; '.join(often)}"

    def _number_lines(self) -> Iterator[str]:
        for (tool, *labels), series in self._series.items():
            if series.times < SERIES or not series.differs:
                continue
            columns = list(zip(labels, zip(*series.values, strict=True), strict=True))
            columns.sort(key=lambda column: len(set(column[1])) == 1)  # what moves stands first
            shown = "; ".join(f"{quoted(label)} {', '.join(values)}" for label, values in columns[: LISTED // 2])
            latest = ", the latest" if series.times > LISTED else ""
            yield (
                f"numbers in {series.times} answers of {quoted(tool)}, turns {series.first} to {series.last}{latest}:"
                f" {shown}"
            )


def _forget(known: dict[Any, Any], most: int) -> None:
    """Drop the oldest entry of `known` if it has more than `most`."""
    if len(known) > most:
        del known[next(iter(known))]


def _step_lines(step: _DigestStep, view: _View) -> list[str]:
    """The lines of one step: the message, then each call with its answer."""
    lines: list[str] = []
    if step.said is not None:
        seen = view.said.setdefault(step.said.number, step.turn)
        lines.append(f"{step.speaker} {step.said.shown if seen == step.turn else f'the same as in turn {seen}'}")
    for call in step.calls:
        request = _named(call.request, call.request.shown, view.requests, again=call.again)
        lines.append(f"request {request} {_answer(call, step, view)}")
    if step.more_calls:
        lines.append(f"and {step.more_calls} more calls")
    at = "" if step.at_s is None else f" at {step.at_s:,.0f} s"
    return [f"turn {step.turn}{at}: {line}" for line in lines]


def _answer(call: _DigestCall, step: _DigestStep, view: _View) -> str:
    if call.answer is None:
        return "got no answer that is known"
    late = "" if call.at_s is None or step.at_s is None else f", {call.at_s - step.at_s:,.1f} s later,"
    shown = call.answer.shown
    if call.like in view.answers:
        shown = f"as answer {call.like}, but {call.difference}"
    answer = _named(call.answer, shown, view.answers, again=call.answer_again)
    return f"{'failed with' if call.failed else 'got'}{late} answer {answer}"


def _named(known: _Known, shown: str, seen: set[int], *, again: bool) -> str:
    """The number of `known`, and where it stands for the first time what it is."""
    text = "" if known.number in seen else f": {shown}"
    seen.add(known.number)
    return f"{known.number}{' again' if again else ''}{text}"


def _gap(opening: Sequence[_DigestStep], latest: Sequence[_DigestStep]) -> Iterator[str]:
    before = opening[-1].number if opening else -1
    if latest and (left_out := latest[0].number - before - 1):
        yield f"(steps left out: {left_out})"


def _listed(entries: Sequence[str], comma: str) -> str:
    more = f"{comma}and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return comma.join(entries[:LISTED]) + more


def _length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines) - 1


def _cut(lines: Sequence[str], max_chars: int) -> str:
    """Return as many whole lines as fit into `max_chars`, as one text."""
    if _length(lines) <= max_chars:
        return "\n".join(lines)
    kept: list[str] = []
    room = max_chars - len(_CUT)
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, _CUT])


_MARKS: Final = str.maketrans(dict.fromkeys(',;{}[]"', " "))
"""The marks of JSON around words, numbers and times, which are compared."""


def _difference(old: Sequence[str], new: Sequence[str]) -> str:
    """What stands in `new` in the place of parts of `old`. Empty: half of it or more differs."""
    if len(old) == len(new):
        changes = [(old[at], " ".join(new[max(0, at - 1) : at + 1])) for at in range(len(old)) if old[at] != new[at]]
    else:
        start = _in_common(old, new)
        end = _in_common(old[start:][::-1], new[start:][::-1])
        changes = [(" ".join(old[start : len(old) - end]), " ".join(new[start : len(new) - end]))]
    if 2 * sum(max(len(was), len(now)) for was, now in changes) >= sum(map(len, new)):
        return ""
    if not changes:
        return f"other blanks or marks, or other text after its first {COMPARED_CHARS:,} characters"
    shown = [f"{_part(now)} for {_part(was)}" for was, now in changes[: LISTED // 2]]
    return ", ".join(shown) + (f", and {len(changes) - len(shown)} more" if len(changes) > len(shown) else "")


def _in_common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many pieces at the beginning are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _part(text: str) -> str:
    return quoted(text, OPENING_CHARS // 2, ENDING_CHARS // 2) if text else "nothing"


_NUMBER = re.compile(r"(?<![\w.])[+-]?[0-9][0-9.,:/T-]*(?: ?%|Z)?")
"""A number, a date or a time as one piece, with a sign of percent."""
_LABEL = re.compile(r"[^\W\d]\w*")
_UNIT = re.compile(r" ?[^\W\d]\w*")


def _numbers(text: str) -> dict[str, str]:
    """The first numbers of `text`, each under the words around it, in which `#` is the number."""
    found: dict[str, str] = {}
    at = 0
    for match in islice(_NUMBER.finditer(text), LISTED):
        before = _LABEL.findall(text, max(at, match.start() - OPENING_CHARS), match.start())[-2:]
        value = match[0].rstrip(".,:/T-")
        end = match.start() + len(value)
        unit = _UNIT.match(text, end)
        label = " ".join((*before, "#", *([unit[0].strip()] if unit else [])))
        found.setdefault(label, value[: OPENING_CHARS // LISTED])
        at = unit.end() if unit else end
    return found


# --------------------------------------------------------------------------------------------------
# The steps of a run that add nothing, as far as counting can see. A judge is asked about them.
#
# Failure answered: a judge that is only asked whether a run is stuck calls a batch a loop. Twenty
# equal calls may be what the task asks for, and only who reads the task can say so.

CALLS_KEPT = 64
"""The newest calls whose turns are known: more steps than are listed."""


class StepWeigher(Protocol):
    """Knows which steps add nothing: `monitor.detectors.LearnedEvidence`."""

    @property
    def idle_steps(self) -> Mapping[int, str]:
        """The newest steps without news: by the index of the call, what each was, in words."""
        ...

    def observe(self, chunk: Chunk, /) -> object:
        """Take in a call, the end of a turn, or a result."""
        ...

    def request(self, text: str, /) -> None:
        """Take in the user's request."""
        ...


class IdleSteps:
    """Collects the steps without news, since the evidence of a loop was last 0."""

    __slots__ = ("_asked", "_calls", "_weigher")

    def __init__(self, weigher: StepWeigher, task: str | None = None) -> None:
        """`weigher`: a new one. `task`: the user's request. `None`: unknown."""
        self._weigher = weigher
        self._asked: dict[int, tuple[int, str]] = {}
        """The turn and the tool of a call, by its index."""
        self._calls = 0
        if task:
            weigher.request(task)

    def request(self, text: str) -> None:
        """The user asks for something more."""
        self._weigher.request(text)

    def add_turn(self, turn: Turn) -> None:
        """Add a turn that has ended."""
        for call in turn.tool_calls:
            self._weigher.observe(call)
            self._asked[self._calls] = turn.number, call.name
            self._calls += 1
            if len(self._asked) > CALLS_KEPT:
                del self._asked[next(iter(self._asked))]
        self._weigher.observe(TurnFinished(FinishReason.DONE))

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        self._weigher.observe(result)

    def render(self, turns: Collection[int] | None = None) -> str:
        """A line for each tool and each reason why its steps are without news, the oldest first.
        `turns`: only of these turns. `None`: of all. Empty: there is none.
        """
        idle: dict[str, list[int]] = {}
        for at, words in self._weigher.idle_steps.items():
            turn, tool = self._asked.get(at, (0, ""))
            if turn and (turns is None or turn in turns):
                idle.setdefault(f"{quoted(tool)}: {words}", []).append(turn)
        return "\n".join(
            f"turn{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}: {said}" for said, of in idle.items()
        )
