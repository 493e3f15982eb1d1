"""Adapters for streams that need no SDK: pieces of text, and chunks of our own vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.chunks import CHUNK_TYPES, Chunk, TextDelta
from monitor.errors import AdapterError, describe
from monitor.models import ErrorKind, ModelError


class _PlainAdapter:
    """What the two have in common: their streams end by ending, and `aclose()` closes them."""

    needs_finish = False
    drains = False

    def __init__(self, stream: int = 0) -> None:
        """`stream` is of no use here: chunks of ours bring their ids."""

    def finish(self) -> Sequence[Chunk]:
        """Nothing is owed."""
        return ()

    def classify(self, error: BaseException) -> ModelError:
        """Only what Python itself tells: connection errors and timeouts are the network's,
        `AdapterError` is a malformed stream.
        """
        kind = ErrorKind.UNKNOWN
        if isinstance(error, AdapterError):
            kind = ErrorKind.MALFORMED
        elif isinstance(error, OSError):  # TimeoutError and ConnectionError are among them
            kind = ErrorKind.NETWORK
        return ModelError(kind, describe(error))


class TextAdapter(_PlainAdapter):
    """A stream of `str`: every piece is visible text."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """One `TextDelta`."""
        if not isinstance(item, str):
            raise AdapterError(f"expected a piece of text, got {type(item).__name__}")
        return (TextDelta(item),)


class ChunkAdapter(_PlainAdapter):
    """A stream of `monitor` chunks."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunk itself."""
        if not isinstance(item, CHUNK_TYPES):
            hint = "; yield TextDelta(...) for text" if isinstance(item, str) else ""
            raise AdapterError(f"expected a chunk of monitor, got {type(item).__name__}{hint}")
        return (item,)
