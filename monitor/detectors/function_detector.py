"""`@detector`: a detector of a plain function, of text or of a call with its result.

The function says of one piece whether it is a sign of trouble. This class does the rest: it cuts
the text in the same places however it came, joins calls and results, counts, and builds the
finding.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

from monitor._util.argument_checks import signature_of
from monitor._util.codec import text_of
from monitor._util.hashing import identity
from monitor.chunks import Chunk, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection, Evidence, Level

Says: TypeAlias = bool | str | None
"""`True`, or a sentence about it: found. `False`, `None` or an empty text: not found."""

OfText: TypeAlias = Callable[[str], Says]
OfStep: TypeAlias = Callable[[ToolCall, ToolResult], Says]

_END = re.compile(r"[.!?\n]")
"""A piece of text ends behind one of these characters."""
MOST_CHARS = 2_000
"""A longer piece ends here, in code points: text without an end must not be kept for ever."""
MOST_CALLS = 256
"""Calls that wait for their result. A run whose results never come keeps the newest ones."""
EXCERPT_CHARS = 200
"""What a finding shows of the piece; see `Evidence.excerpt`."""


class FunctionDetector:
    """A detector made of a function; see `detector`."""

    __slots__ = ("_calls", "_count", "_function", "_index", "_level", "_name", "_of_text", "_piece", "_seen", "_times")

    def __init__(self, function: OfText | OfStep, *, name: str, of_text: bool, times: int, level: Level) -> None:
        self._function: Callable[..., Says] = function
        self._name = name
        self._of_text = of_text
        self._times = times
        self._level: Level = level
        self.reset()

    @property
    def name(self) -> str:
        """The name of the function, or the one that was given."""
        return self._name

    @property
    def wants_deltas(self) -> bool:
        """Whether it reads text. A function of a call and its result does not."""
        return self._of_text

    def reset(self) -> None:
        """Forget everything, for a new run."""
        self._piece = ""
        self._seen = 0  # code points of text behind the last piece
        self._calls: dict[str, tuple[int, str, Any]] = {}
        self._index = 0
        self._count = (0, 0)  # now, and before this turn

    def observe(self, chunk: Chunk, /) -> Sequence[Detection]:
        """Take in the next chunk."""
        match chunk:
            case TextDelta(text) if self._of_text:
                return self._take(text)
            case ToolCall() if not self._of_text:
                self._calls[chunk.id] = (self._index, chunk.name, chunk.arguments)
                self._index += 1
                if len(self._calls) > MOST_CALLS:
                    del self._calls[next(iter(self._calls))]
            case ToolResult() if not self._of_text and not chunk.vetoed:
                return self._answered(chunk)
            case StreamRetried():
                self._piece, self._count = "", (self._count[1], self._count[1])
            case TurnFinished():
                found = self._say() if self._of_text else NOTHING
                self._count = (self._count[0], self._count[0])
                return found
            case _:
                pass
        return NOTHING

    def _take(self, text: str) -> Sequence[Detection]:
        found: Sequence[Detection] = NOTHING
        start = 0
        while start < len(text):
            most = start + MOST_CHARS - len(self._piece)
            end = _END.search(text, start, most)
            stop = end.end() if end is not None else min(most, len(text))
            self._piece += text[start:stop]
            if end is not None or stop == most:
                found = (*found, *self._say())
            start = stop
        return found

    def _say(self) -> Sequence[Detection]:
        """Ask the function about the piece that has ended."""
        piece, self._piece = self._piece, ""
        start, self._seen = self._seen, self._seen + len(piece)
        return self._found(self._function(piece), "text", piece, start, self._seen) if piece.strip() else NOTHING

    def _answered(self, result: ToolResult) -> Sequence[Detection]:
        asked = self._calls.pop(result.id, None)
        if asked is None:
            return NOTHING
        index, name, arguments = asked
        says = self._function(ToolCall(result.id, name, arguments), result)
        return self._found(says, "tools", f"{name}({text_of(arguments)}) -> {result.text}", index, index)

    def _found(self, says: Says, channel: Channel, shown: str, start: int, end: int) -> Sequence[Detection]:
        if not isinstance(says, bool | str | None):
            raise TypeError(f"{self.name} returns True, a sentence or None, not {says!r}")
        if not says:
            return NOTHING
        self._count = (self._count[0] + 1, self._count[1])
        if self._count[0] < self._times:
            return NOTHING
        message = says if isinstance(says, str) else self._message()
        evidence = Evidence(shown.strip()[:EXCERPT_CHARS], identity(shown), len(shown), (start,))
        return (
            Detection(
                detector=self.name,
                kind=self.name,
                channel=channel,
                level=self._level,
                count=self._count[0],
                threshold=self._times,
                start_offset=start,
                offset=end,
                evidence=evidence,
                message=message,
            ),
        )

    def _message(self) -> str:
        """A sentence for people: the first line of the function's docstring, and how often."""
        often = f"{self._count[0]} times" if self._count[0] > 1 else "once"
        doc = inspect.getdoc(self._function) if inspect.isroutine(self._function) else None
        says = (doc or "").partition("\n")[0].removesuffix(".")
        return f"{self.name} was found {often}" + (f": {says}" if says else "")

    def __call__(self, *given: Any) -> Says:
        """What the function itself says of a text, or of a call and its result: for its tests."""
        return self._function(*given)

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data. What the function itself keeps is not in it."""
        return {
            "version": 1,
            "piece": self._piece,
            "seen": self._seen,
            "index": self._index,
            "count": list(self._count),
            "calls": {id: list(call) for id, call in self._calls.items()},
        }

    def restore(self, state: Mapping[str, Any], /) -> None:
        """Go on from a `snapshot`."""
        self._piece, self._seen, self._index = state["piece"], state["seen"], state["index"]
        now, before = state["count"]
        self._count = (now, before)
        self._calls = {id: (index, name, given) for id, (index, name, given) in state["calls"].items()}


@overload
def as_detector(function: OfText | OfStep, /) -> FunctionDetector: ...
@overload
def as_detector(
    *, times: int = 1, level: Literal["suspect", "loop"] = "loop", name: str | None = None
) -> Callable[[OfText | OfStep], FunctionDetector]: ...
def as_detector(
    function: OfText | OfStep | None = None,
    /,
    *,
    times: int = 1,
    level: Level = "loop",
    name: str | None = None,
) -> FunctionDetector | Callable[[OfText | OfStep], FunctionDetector]:
    """Decorator: a detector of a plain function, for `detectors=[*default_detectors(), mine]`.

        @monitor.detectors.as_detector(times=3)
        def apologies(text: str) -> bool:
            return "i apologise" in text.lower()

        @monitor.detectors.as_detector
        def deletions(call: ToolCall, result: ToolResult) -> str | None:
            return "it deletes" if call.name == "delete" and not result.is_error else None

    A function of one parameter gets the visible text, a sentence or a line at a time. A function of
    two gets each call with its result. It answers `True`, or a sentence for people, if it has found
    something, else `False` or `None`. With `True`, the first line of its docstring is the sentence.

    `times`: a finding comes when the function has found something so often, and at each further
    time. `level`: how sure a finding is; the default policy ends the run at a `loop`. `name`: by
    default that of the function. Each run has its own count; what the function keeps itself is
    shared by all runs.

    Raises `ConfigError` for an `async def`, and for another number of parameters.
    """

    def decorate(function: OfText | OfStep) -> FunctionDetector:
        called = name or str(getattr(function, "__name__", "function"))
        return FunctionDetector(function, name=called, of_text=_reads_text(function), times=times, level=level)

    if level not in {"suspect", "loop"}:
        raise ConfigError(
            f"as_detector: level is 'suspect' or 'loop', not {level!r}: write @monitor.detectors.as_detector"
        )
    if type(times) is not int or times < 1:
        raise ConfigError(f"as_detector: times is a whole number of at least 1, not {times!r}: write times=3")
    return decorate(function) if function is not None else decorate


def _reads_text(function: object) -> bool:
    """Whether `function` takes text; else it takes a call and its result."""
    line = "write @monitor.detectors.as_detector above def mine(text: str) or def mine(call, result)"
    if not callable(function):
        raise ConfigError(f"detector takes a function, not {function!r}: {line}")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"detector takes a plain function, and {function!r} is asynchronous: {line}")
    wanted = [
        one.kind
        for one in signature_of(function).parameters.values()
        if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
    ]
    if len(wanted) not in {1, 2} or inspect.Parameter.KEYWORD_ONLY in wanted:
        raise ConfigError(f"detector: the function takes one text, or a call and its result: {line}")
    return len(wanted) == 1
