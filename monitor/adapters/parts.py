"""The common parts of the adapters: reading the fields of objects, tool calls in pieces, and counts
of tokens.

The SDKs build most objects without validating them, so a field may be missing, or of any type.
Additional fields of compatible servers are attributes with plain data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitor.adapters.decoding import name_of
from monitor.chunks import Chunk, ToolCall, ToolCallDelta, UsageReport
from monitor.errors import AdapterError


def get(holder: object, name: str) -> Any:
    """A field of an SDK object or of plain data; `None` if there is none."""
    if type(holder) is dict:  # known at a glance: to ask whether an object is a mapping takes longer
        return holder.get(name)
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def text_at(holder: object, name: str) -> str | None:
    """A text; `None` if it is empty or missing."""
    value = get(holder, name)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"`{name}` is {name_of(value)}, not str")
    return value or None


def index_at(holder: object, name: str) -> int | None:
    """A position; `None` if it is missing or not a number."""
    value = get(holder, name)
    return value if type(value) is int else None


def list_at(holder: object, name: str) -> Sequence[Any]:
    """A list; `None` is an empty one."""
    value = get(holder, name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise AdapterError(f"`{name}` is {name_of(value)}, not a list")
    return value


class PendingCall:
    """A tool call while its arguments are being written. `id`: the id that the run uses. `given`:
    the provider's id, if there is one.
    """

    def __init__(self, id_: str, name: str, raw: object, *, given: str | None) -> None:
        self.id = id_
        self.given = given
        self.name = name
        self.raw = raw
        self.custom = False
        """Whether the input of the call is text, not JSON."""
        self.beside: dict[str, Any] = {}
        """Fields that the service needs back with the call, and that no chunk has passed on yet."""
        self.place: object = None
        """The value that names the call in its stream, where an event may come twice."""
        self._pieces: list[str] = []
        self._named = False

    @property
    def text(self) -> str:
        """The text of the arguments so far."""
        return "".join(self._pieces)

    def write(self, piece: str) -> ToolCallDelta:
        """Add a piece. The first `ToolCallDelta` has the name."""
        self._pieces.append(piece)
        name = None if self._named else self.name
        self._named = True
        return ToolCallDelta(self.id, name, piece)

    def settle(self, text: str) -> None:
        """Take `text` for the arguments: what the service says of the whole call counts more than
        the pieces that have come.
        """
        self._pieces = [text]

    def ended(self, *, cut_off: bool) -> ToolCall:
        """The call after its last piece. `cut_off`: the service did not say that the call is
        complete. Its arguments are then a text, even if that text looks whole.
        """
        text = self.text
        arguments: Any = text if cut_off else {"input": text} if self.custom else arguments_of(text)
        return ToolCall(self.id, self.name, arguments, self.raw)


def arguments_of(text: str) -> Any:
    """The JSON object in `text`; `text` itself if it holds none. Some servers send an empty text
    for no arguments.
    """
    if not text.strip():
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text


class Tokens:
    """The counts of one response. They never shrink, and a field that a later report lacks keeps
    its value.
    """

    def __init__(self) -> None:
        self.said = False
        """Whether any content came since the last report."""
        self._counts: dict[str, int] = {}

    def report(self, *, last: bool = True, **counts: object) -> Iterator[Chunk]:
        """A report of the totals, if one of them grew. `last`: the totals are of the whole answer.
        They are then reported unchanged as well, if any content came since.
        """
        grew = False
        for name, count in counts.items():
            if type(count) is int and count >= 0:
                known = self._counts.get(name, -1)
                self._counts[name] = max(count, known)
                grew = grew or count > known or (last and self.said)
        if grew:
            self.said = False
            yield UsageReport(**self._counts)
