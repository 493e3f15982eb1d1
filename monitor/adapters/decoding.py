"""The parts that adapters have in common: the defaults of the facts that an adapter may leave out,
and the decoding of one SDK object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from monitor.chunks import Chunk, TextDelta, ToolResult
from monitor.errors import AdapterError
from monitor.models import ModelError


class ReportedFailure(AdapterError):
    """The service says inside its stream that the call failed, and the SDK raises nothing. A run
    treats the report as if the SDK had raised it.

    Raised by `StreamAdapter.decode`; `model_error` is what `classify` answers for it.
    """

    def __init__(self, model_error: ModelError, *, last: bool = True) -> None:
        super().__init__(model_error.message)
        self.model_error = model_error
        self.last = last
        """Whether no later object adds to the report, e.g. the usage of the failed call."""
        self.chunks: tuple[Chunk, ...] = ()
        """The chunks of the same object before the failure, e.g. usage."""

    def __reduce__(self) -> tuple[type[ReportedFailure], tuple[ModelError]]:
        return type(self), (self.model_error,)


class AdapterBase:
    """The facts and methods that an adapter may leave out, with their defaults."""

    needs_finish: bool = False
    drains: bool = False
    requests: int = 1
    """The model calls that the SDK is known to have made inside the stream."""
    turns: int = 1
    """The turns that have begun in the stream: another one when the SDK carries out calls by
    itself.
    """
    results: Sequence[ToolResult] = ()
    """The results of the calls of the turn before, if the SDK shows them."""
    source: object = None
    """The open stream whose objects are decoded, for an adapter that looks behind it."""
    gave: Sequence[str] = ()
    """The kinds of parts other than text, thinking and the caller's calls, each once."""

    @property
    def broke_off(self) -> bool:
        """Whether the source has ended while the last of several answers in it has not."""
        return False

    def plain_text(self, item: object) -> str | None:
        """The text of an object that is one piece of visible text and nothing else. `None`: use
        `decode`.
        """
        return None

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's own open responses behind `source`."""
        return ()


class SdkAdapter(AdapterBase, ABC):
    """Reads the streams of one SDK. A subclass writes `_decode`."""

    needs_finish = True
    drains = True
    readable: ClassVar[str]
    """The kind of object that is expected, in words for the error of an unreadable object."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunks of one object of the SDK, in order.

        Raises `AdapterError` for an object that is not the SDK's or is broken, and
        `ReportedFailure` if the object says that the call failed.
        """
        words = self.plain_text(item)
        if words is not None:
            return (TextDelta(words),)
        chunks: list[Chunk] = []
        try:
            chunks += self._decode(item)
        except ReportedFailure as failure:
            failure.chunks = tuple(chunks)
            raise
        except AdapterError:
            raise
        except Exception as error:
            raise AdapterError(f"{name_of(item)} is not a readable {self.readable}: {error!r}") from error
        return tuple(chunks)

    @abstractmethod
    def _decode(self, item: object) -> Iterable[Chunk]:
        """The chunks of one object. Any exception is allowed: `decode` names the object."""


def name_of(value: object) -> str:
    """The type of a value, for an error message."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
