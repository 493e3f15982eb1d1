"""A stream that a test scripts, item by item, on asyncio and on trio.

It is as strict as an async generator: closing or reading it while it is being read is a
`RuntimeError`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from monitor.chunks import CHUNK_TYPES, Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.errors import ConfigError, FinishReason
from monitor.models import ModelRequest


@dataclass(slots=True, eq=False)
class Pause:
    """A step that waits until the test calls `release()`."""

    _reached: anyio.Event = field(default_factory=anyio.Event)
    _released: anyio.Event = field(default_factory=anyio.Event)

    async def reached(self) -> None:
        """Return as soon as the stream has come here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the stream go on; also in advance."""
        self._released.set()

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self._reached.set()
        await self._released.wait()


@dataclass(slots=True, eq=False)
class Stall:
    """A step that never ends: a connection on which nothing comes any more. Only a cancellation
    ends it.
    """

    _reached: anyio.Event = field(default_factory=anyio.Event)

    async def reached(self) -> None:
        """Return as soon as the stream has come here."""
        await self._reached.wait()

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self._reached.set()
        await anyio.sleep_forever()


@dataclass(slots=True, frozen=True, eq=False)
class Do:
    """A step that calls `function`, e.g. one that advances a fake clock."""

    function: Callable[[], object]

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self.function()


class ScriptedStream(AsyncIterator[Any]):
    """Yields `script` in order: text, chunks, an SDK's objects, anything.

    In it, an exception is raised where it stands, and `Pause`, `Stall` and `Do` are performed.
    `at_close` holds such steps for `aclose()`: a slow close, a failing one, one that hangs. With
    `suspends=True` other tasks run before every read, as for a socket. Without it items come at
    once, as from a full buffer.
    """

    def __init__(
        self, *script: Any, at_close: Sequence[Pause | Stall | Do | BaseException] = (), suspends: bool = False
    ) -> None:
        self._script = list(script)
        self._at_close = tuple(at_close)
        self._suspends = suspends
        self._position = 0
        self._busy = False
        self.pulled: int = 0
        """The number of items that the stream has yielded."""
        self.exhausted: bool = False
        """Whether the stream ended, raised, was cancelled or closed: then no further item comes."""
        self.closed: bool = False
        """Whether `aclose()` was called and has returned."""
        self.closings: int = 0
        """The number of times that `aclose()` was called."""

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Any:
        """Carry out the steps up to the next item, and yield it."""
        self._enter("read")
        try:
            return await self._next()
        except BaseException:
            self.exhausted = True
            raise
        finally:
            self._busy = False

    async def aclose(self) -> None:
        """Close the stream: it yields no further item. A second call does nothing."""
        self._enter("closed")
        self.closings += 1
        self.exhausted = True
        try:
            if self.closings == 1:
                for step in self._at_close:
                    await _perform(step)
            self.closed = True
        finally:
            self._busy = False

    def _enter(self, doing: str) -> None:
        if self._busy:
            raise RuntimeError(f"a ScriptedStream is {doing} while it is being read or closed")
        self._busy = True

    async def _next(self) -> Any:
        if self._suspends:
            await anyio.lowlevel.checkpoint()
        while not self.exhausted and self._position < len(self._script):
            step = self._script[self._position]
            self._position += 1
            if not isinstance(step, Pause | Stall | Do | BaseException):
                self.pulled += 1
                return step
            await _perform(step)
        raise StopAsyncIteration


async def _perform(step: Pause | Stall | Do | BaseException) -> None:
    if isinstance(step, BaseException):
        raise step.with_traceback(None)  # an error that many streams are given would keep the frames of each
    await step.perform()


# --------------------------------------------------------------------------------------------------
# A model that a test scripts, turn by turn. It keeps the requests that it gets.

Answer: TypeAlias = Callable[[ModelRequest], Any] | object
"""One turn: a text, a `ToolCall`, an exception, or a list of these, of any chunks, and of `Pause`,
`Stall` and `Do`; or a function that makes one of the `ModelRequest`.
"""

_numbers = itertools.count()


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call with a new id, for a script."""
    return ToolCall(f"call_{next(_numbers)}", name, arguments)


NOT_STUCK = '{"analysis": "The run gets on.", "confidence": 0.0}'
"""The answer of a scripted model to a judge, unless `judge_replies` has others."""


class ScriptedModel:
    """Answers its `n`-th request with the `n`-th of `answers`. A single function answers all of
    them.

        model = ScriptedModel("Hello", [call("search", q="x"), "looking"], ConnectionError("gone"))

    A model that has been asked by an agent answers a judge apart from its script: `judge_replies`
    in their order, the last of them again and again; by default "not stuck". A model that is asked
    by judges only follows its script.

    An answer without a `TurnFinished` and an exception ends with `DONE`; with `finishes=False`, it
    ends without a finish reason. A request beyond the script is an `AssertionError`, which ends the
    run with `error`.
    """

    def __init__(
        self,
        *answers: Answer,
        name: str = "scripted:model",
        finishes: bool = True,
        suspends: bool = False,
        judge_replies: Sequence[Answer] = (),
    ) -> None:
        self._replies: list[Any] = list(judge_replies)
        self._plays_agent = False
        self._answers: list[Any] = list(answers)
        self._finishes = finishes
        self._suspends = suspends
        self.name = name
        self.requests: list[ModelRequest] = []
        """The requests that the model was sent, in order."""
        self.judge_requests: list[ModelRequest] = []
        """The questions of judges that were answered apart from the script."""
        self.streams: list[ScriptedStream] = []
        """The streams of its answers; each says whether it was read to its end and closed."""

    def stream(self, request: ModelRequest) -> ScriptedStream:
        """Stream the next answer of the script, or of `judge_replies`."""
        of_judge = request.reply_schema is not None
        self._plays_agent |= not of_judge
        if of_judge and (self._plays_agent or self._replies):
            self.judge_requests.append(request)
            left = self._replies.pop(0) if len(self._replies) > 1 else (self._replies or [NOT_STUCK])[0]
            return ScriptedStream(*self._steps(left(request) if _is_function(left) else left), suspends=self._suspends)
        self.requests.append(request)
        number = len(self.requests) - 1
        if len(self._answers) == 1 and _is_function(self._answers[0]):
            answer = self._answers[0](request)
        elif number < len(self._answers):
            answer = self._answers[number]
            if _is_function(answer):
                answer = answer(request)
        else:
            raise AssertionError(
                f"the script of {self.name} has {len(self._answers)} answers, and this is request {number + 1}"
            )
        stream = ScriptedStream(*self._steps(answer), suspends=self._suspends)
        self.streams.append(stream)
        return stream

    def _steps(self, answer: Answer) -> Iterable[Any]:
        steps = list(answer) if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
        steps = [TextDelta(step) if isinstance(step, str) else step for step in steps]
        ends = any(isinstance(step, TurnFinished | BaseException) for step in steps)
        return steps if ends or not self._finishes else [*steps, TurnFinished(FinishReason.DONE)]


def _is_function(answer: object) -> bool:
    return callable(answer) and not isinstance(answer, (type, *CHUNK_TYPES))


# --------------------------------------------------------------------------------------------------
# A stream's text in other pieces, as another provider, or the same one on another day, would send
# it.

_Delta = TextDelta | ReasoningDelta | ToolCallDelta


def cut(text: str, sizes: int | Sequence[int]) -> list[str]:
    """`text` in pieces of `sizes` code points, again from the first size when they are used up.

    0 makes an empty piece: providers send those too.
    """
    return list(_cut(text, _cycle(sizes)))


def rechunk(chunks: Iterable[Chunk], sizes: int | Sequence[int]) -> list[Chunk]:
    """A copy of the stream with its deltas cut at other places.

    Neighbouring deltas of one channel (for arguments: of one call) are joined and cut anew;
    everything else stays where it was. A call's name comes with its first piece, a signature with
    the last piece of the thinking that it signs.
    """
    next_sizes = _cycle(sizes)
    out: list[Chunk] = []
    group: list[Chunk] = []
    for chunk in chunks:
        if group and not _goes_on(group[-1], chunk):
            out += _recut(group, next_sizes)
            group = []
        group.append(chunk)
    return out + _recut(group, next_sizes) if group else out


def _cycle(sizes: int | Sequence[int]) -> Iterator[int]:
    wanted = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if any(size < 0 for size in wanted) or not any(wanted):
        raise ConfigError(f"sizes={sizes!r}: no size may be negative, and one at least must be above 0")
    return cycle(wanted)


def _cut(text: str, sizes: Iterator[int]) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + next(sizes)
        yield text[start:end]
        start = end


def _goes_on(left: Chunk, right: Chunk) -> bool:
    """Whether `right` is more of the same text as `left`."""
    match left, right:
        case (TextDelta(), TextDelta()) | (ReasoningDelta(_, None), ReasoningDelta()):
            return True
        case ToolCallDelta(id=id), ToolCallDelta(id=other, name=None):
            return id == other
    return False


def _recut(group: Sequence[Chunk], sizes: Iterator[int]) -> list[Chunk]:
    match group[0], group[-1]:
        case TextDelta(), TextDelta():
            return [TextDelta(piece) for piece in _cut_joined(group, sizes)]
        case ReasoningDelta(), ReasoningDelta(signature=signature, origin=origin):
            *head, last = _cut_joined(group, sizes)
            return [*(ReasoningDelta(piece, origin=origin) for piece in head), ReasoningDelta(last, signature, origin)]
        case ToolCallDelta(id=id, name=name), ToolCallDelta():
            first, *tail = _cut_joined(group, sizes)
            return [ToolCallDelta(id, name, first), *(ToolCallDelta(id, None, piece) for piece in tail)]
    return list(group)


def _cut_joined(group: Sequence[Chunk], sizes: Iterator[int]) -> list[str]:
    """An empty text stays one empty piece, because a name or a signature may come with it."""
    texts = (
        chunk.arguments_text if isinstance(chunk, ToolCallDelta) else chunk.text
        for chunk in group
        if isinstance(chunk, _Delta)
    )
    return list(_cut("".join(texts), sizes)) or [""]
