"""The latest messages of a run in short: what a judge reads instead of the history.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from monitor._util.hashing import canonical_json, identity
from monitor._util.text import quoted, quoted_data
from monitor.chunks import ToolCall, ToolResult
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
