"""What a judge reads instead of the history: the latest messages of a run in short (`Digest`), and
the steps that add nothing (`IdleSteps`). `Suspicion` says when a judge is asked earlier.

One line a message, a call, an answer. Equal requests and equal answers have the same number, so
that a reader sees the same page come back under other words; every text is quoted data
(`monitor._util.text`), so that nothing in a tool's answer can speak to the judge.

    6 calls: 6 different requests, 2 different answers, 0 failed
    turn 31: the agent said "Let me try another query."
    turn 31: request 1: "search" with {"q": "rain in May"}
    turn 31: request 1 was given answer 1: "Results for your query: ..."
    turn 32: request 2: "search" with {"q": "May rainfall"}
    turn 32: request 2 was given answer 1 again
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from monitor._util.hashing import canonical_json, identity
from monitor._util.text import quoted, quoted_data
from monitor.chunks import Chunk, ToolCall, ToolResult, TurnFinished
from monitor.errors import FinishReason
from monitor.outcome import Turn

MESSAGES = 20
"""The number of messages that are shown (Gemini CLI). The answers to the calls of one turn are one
message.
"""
CALLS_A_TURN = 12
"""How many calls of a turn are shown; of further calls only their number."""
DIGEST_CHARS = 12_000
"""About 3,000 tokens of English: a question must not cost what the run's own turns cost."""
_CUT = "(the rest of this turn is left out)"


@dataclass(slots=True)
class _DigestCall:
    id: str
    request: str
    """Identity of the request: equal requests have equal ones."""
    shown: str
    answer: str | None = None
    """Identity of the answer: equal answers have equal ones. `None`: no answer yet."""
    shown_answer: str = ""
    failed: bool = False


@dataclass(slots=True)
class _DigestStep:
    """One message of the agent with its calls, or one message to the agent."""

    turn: int
    said: str
    calls: list[_DigestCall] = field(default_factory=list[_DigestCall])
    more_calls: int = 0

    @property
    def messages(self) -> int:
        return 1 + any(call.answer is not None for call in self.calls)

    def without_dangling(self) -> _DigestStep:
        return _DigestStep(
            self.turn, self.said, [call for call in self.calls if call.answer is not None], self.more_calls
        )


class Digest:
    """Collects the messages of a run, and renders the latest in short. Only what may be shown is
    kept.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: deque[_DigestStep] = deque(maxlen=MESSAGES)

    def add_turn(self, turn: Turn) -> None:
        """Add a turn of the model."""
        if turn.text or turn.tool_calls:
            said = f"the agent said {quoted(turn.text)}" if turn.text else ""
            calls = [_called(call) for call in turn.tool_calls[:CALLS_A_TURN]]
            self._steps.append(_DigestStep(turn.number, said, calls, len(turn.tool_calls) - len(calls)))

    def add_result(self, result: ToolResult) -> None:
        """Add a tool result. A result whose call is no longer kept is ignored."""
        for step in reversed(self._steps):
            for call in step.calls:
                if call.id == result.id and call.answer is None:
                    call.answer, call.shown_answer, call.failed = (
                        identity(result.text),
                        quoted(result.text),
                        result.is_error,
                    )
                    return

    def add_warning(self, turn: int, text: str) -> None:
        """Add a message of the supervisor to the agent, e.g. a nudge."""
        self._steps.append(_DigestStep(turn, f"the supervisor told the agent {quoted(text)}"))

    def render(self, max_chars: int = DIGEST_CHARS) -> str:
        """The digest, oldest message first: as many of the latest whole turns as `max_chars` holds.
        Calls of the last turn without an answer are left out.
        """
        steps = self._latest()
        lines = [_summary(steps)]
        # Rendered alone, a step is as long as it can be: nothing is shortened as a repetition.
        whole = [_lines(step, _DigestNumbers()) for step in steps]
        room = max_chars - len(lines[0])
        first = len(steps)
        while first and (room := room - sum(map(len, whole[first - 1])) - len(whole[first - 1])) >= 0:
            first -= 1
        numbers = _DigestNumbers()
        for step in steps[min(first, max(0, len(steps) - 1)) :]:
            lines += _lines(step, numbers)
        return _cut(lines, max_chars)

    def _latest(self) -> list[_DigestStep]:
        steps = list(self._steps)
        if steps:
            steps[-1] = steps[-1].without_dangling()
            if not steps[-1].said and not steps[-1].calls:
                steps.pop()
        latest: list[_DigestStep] = []
        messages = 0
        for step in reversed(steps):
            messages += step.messages
            if messages > MESSAGES:
                break
            latest.insert(0, step)
        return latest


class _DigestNumbers:
    """Numbers for requests and answers, in the order of their first occurrence."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.answers: dict[str, int] = {}


def _numbered(known: dict[str, int], key: str) -> tuple[int, bool]:
    """The number of `key`, and whether it came before."""
    again = key in known
    return known.setdefault(key, len(known) + 1), again


def _called(call: ToolCall) -> _DigestCall:
    request = identity(f"{call.name} {canonical_json(call.arguments)}")
    return _DigestCall(call.id, request, f"{quoted(call.name)} with {quoted_data(call.arguments)}")


def _summary(steps: Sequence[_DigestStep]) -> str:
    calls = [call for step in steps for call in step.calls]
    more = sum(step.more_calls for step in steps)
    requests, answers = {call.request for call in calls}, {call.answer for call in calls if call.answer is not None}
    failed = sum(call.failed for call in calls)
    shown = f", of which {len(calls)} are shown" if more else ""
    return (
        f"{len(calls) + more} calls{shown}: {len(requests)} different requests, {len(answers)} different answers,"
        f" {failed} failed"
        if calls
        else "no calls"
    )


def _lines(step: _DigestStep, numbers: _DigestNumbers) -> list[str]:
    """The lines of one step: the message, then its calls, then their answers."""
    lines = [step.said] if step.said else []
    requests: list[int] = []
    for call in step.calls:
        number, again = _numbered(numbers.requests, call.request)
        requests.append(number)
        lines.append(f"request {number}{' again' if again else ''}: {call.shown}")
    if step.more_calls:
        lines.append(f"and {step.more_calls} more calls")
    lines += _answers(step.calls, requests, numbers)
    return [f"turn {step.turn}: {line}" for line in lines]


def _answers(calls: Sequence[_DigestCall], requests: Sequence[int], numbers: _DigestNumbers) -> Iterator[str]:
    for call, request in zip(calls, requests, strict=True):
        if call.answer is None:
            yield f"request {request} was given no answer that is known"
            continue
        number, again = _numbered(numbers.answers, call.answer)
        failed = ", an error" if call.failed else ""
        yield f"request {request} was given answer {number}{failed}{' again' if again else f': {call.shown_answer}'}"


def _cut(lines: Sequence[str], max_chars: int) -> str:
    """Return as many whole lines as fit into `max_chars`, as one text."""
    text = "\n".join(lines)
    if len(text) <= max_chars:
        return text
    kept: list[str] = []
    room = max_chars - len(_CUT)
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, _CUT])


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

    def render(self) -> str:
        """A line for each step without news, the oldest first. Empty: there is none."""
        steps = [(self._asked[at], words) for at, words in self._weigher.idle_steps.items() if at in self._asked]
        return "\n".join(f"turn {turn}: {quoted(tool)}: {words}" for (turn, tool), words in steps)


# --------------------------------------------------------------------------------------------------
# How much a run seems to make no progress: signals too weak for a detection, but enough to ask a
# judge earlier.
#
# The score is the share of the latest `WINDOW` answered calls that made no progress, 0 to 1. It
# is 0 until `ENOUGH` calls are answered.
#
# - A call with a known result (seen before in the run) counts fully in three cases. Its request was
#   made before, or it failed, or the result is longer than a receipt: the same page for other
#   words.
# - A call counts half if its short result is known, or if it failed in a new way. Receipts (`ok`)
#   and errors also come in good work.
# - Anything else is progress, also the same request with a new result: that is polling, or a test
#   that runs again.

WINDOW = 10
"""The number of the latest calls that count: about as many turns as a judge is shown."""
ENOUGH = 5
"""Fewer answered calls give no score: a run that begins with two errors is not stuck."""
REMEMBERED = 80
"""The number of the newest requests and results that are remembered."""
RECEIPT_CHARS = 100
"""A result up to this length may be the receipt of work done."""
SUSPICIOUS = 0.6
"""The score from which on a run is suspicious. A run in which every call fails differently stays
below it; one that keeps reading the same page does not.
"""


class Suspicion:
    """Computes the score of one run from its calls and results."""

    __slots__ = ("_latest", "_open", "_requests", "_results")

    def __init__(self) -> None:
        self._requests: deque[str] = deque(maxlen=REMEMBERED)
        self._results: deque[str] = deque(maxlen=REMEMBERED)
        self._open: dict[str, bool] = {}
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add_call(self, call: ToolCall) -> None:
        """Add a call whose arguments are complete."""
        request = identity(f"{call.name} {canonical_json(call.arguments)}")
        self._open.pop(call.id, None)
        self._open[call.id] = request in self._requests
        self._requests.append(request)
        if len(self._open) > REMEMBERED:
            del self._open[next(iter(self._open))]

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        key = identity(result.text)
        repeated, known = self._open.pop(result.id, False), key in self._results
        self._latest.append(_got_nowhere(result, repeated=repeated, known=known))
        self._results.append(key)

    @property
    def score(self) -> float:
        """0: every call made progress. 1: none did."""
        return sum(self._latest) / len(self._latest) if len(self._latest) >= ENOUGH else 0.0


def _got_nowhere(result: ToolResult, *, repeated: bool, known: bool) -> float:
    if known and (repeated or result.is_error or len(result.text) > RECEIPT_CHARS):
        return 1.0
    return 0.5 if known or result.is_error else 0.0
