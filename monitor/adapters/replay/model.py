"""A recorded run as a `Model`: one recorded turn for each call."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import ClassVar, NoReturn, Self

from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.parts import ChunkAdapter
from monitor.adapters.replay.stream import RecordedChunk, ReplayCut, ReplayStream, read_turns
from monitor.chunks import ToolResult
from monitor.errors import AdapterError
from monitor.models import ErrorKind, ModelError, ModelRequest


class ReplayAdapter(ChunkAdapter):
    """Yields chunks unchanged. After the end of the recording, a retry does not help."""

    def classify(self, error: BaseException) -> ModelError:
        """Classifies like any stream of chunks. But the end of the recording is `REQUEST`, which is
        not retried.
        """
        return ModelError(ErrorKind.REQUEST, str(error)) if isinstance(error, EOFError) else super().classify(error)


class ReplayModel:
    """Plays a recorded run: each call of `stream` is answered by the next recorded turn, whatever
    the request says.

    Recorded tool results are left out, because the new run makes its own. `cut` and `pace` are the
    options of `ReplayStream`. `turns`: the recorded turns, where `path` was read by somebody else.

    A call after the last recorded turn fails with an `EOFError`. Raises `AdapterError`, with file
    and line, for an unreadable line, and `OSError` for a missing file.
    """

    adapter: ClassVar[AdapterFactory] = ReplayAdapter

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        turns: Iterable[Iterable[RecordedChunk]] | None = None,
        cut: ReplayCut | None = None,
        pace: float | None = None,
    ) -> None:
        self.name: str = f"replay:{path}"
        read = read_turns(path) if turns is None else turns
        self.turns = [[record for record in turn if not isinstance(record.chunk, ToolResult)] for turn in read]
        """The recorded turns."""
        self.calls = 0
        """The number of times that the model was called."""
        if not self.turns:
            raise AdapterError(f"{path} holds no turn")
        self._cut = cut
        self._pace = pace

    def stream(self, request: ModelRequest) -> ReplayStream | _OverStream:
        """The next recorded turn."""
        self.calls += 1
        if self.calls > len(self.turns):
            return _OverStream(f"{self.name} has {len(self.turns)} recorded turns, and this is model call {self.calls}")
        return ReplayStream(self.turns[self.calls - 1], cut=self._cut, pace=self._pace)


class _OverStream:
    """The stream of a call for which nothing was recorded."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> NoReturn:
        raise EOFError(self._message)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""
