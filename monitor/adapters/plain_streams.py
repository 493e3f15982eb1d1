"""Adapters for streams that need no SDK: pieces of text, and chunks of our own vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.adapters.decoding import AdapterBase
from monitor.chunks import CHUNK_TYPES, Chunk, TextDelta
from monitor.errors import AdapterError, describe
from monitor.models import ErrorKind, ModelError


class _PlainAdapter(AdapterBase):
    """The streams of both adapters need no finish reason, and `aclose()` closes them."""

    def __init__(self, stream: int = 0) -> None:
        """`stream` is ignored: chunks bring their ids."""

    def finish(self) -> Sequence[Chunk]:
        """Empty: no chunk is missing at the end."""
        return ()

    def classify(self, error: BaseException) -> ModelError:
        """Connection errors and timeouts are `NETWORK`, `AdapterError` is `MALFORMED`, the rest is
        `UNKNOWN`.
        """
        kind = ErrorKind.UNKNOWN
        if isinstance(error, AdapterError):
            kind = ErrorKind.MALFORMED
        elif isinstance(error, OSError):  # TimeoutError and ConnectionError are subclasses
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
