"""The steps of a run that add nothing, as far as counting can see. A judge is asked about them.

Failure answered: a judge that is only asked whether a run is stuck calls a batch a loop. Twenty
equal calls may be what the task asks for, and only who reads the task can say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from monitor._util.hashing import canonical_json, identity
from monitor._util.text import quoted
from monitor.chunks import Chunk, ToolCall, ToolResult, TurnFinished
from monitor.errors import FinishReason
from monitor.outcome import Turn

CALLS_KEPT = 64
"""The newest calls whose turns are known: more steps than are listed."""


class StepWeigher(Protocol):
    """Knows which steps add nothing: `monitor.detectors.StateNovelty`."""

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


class Doubts:
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
