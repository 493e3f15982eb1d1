"""Makes a tool's answer the text, and the media beside it, that the model gets."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from monitor._util.codec import text_of
from monitor._util.hashing import identity
from monitor.chunks import Media
from monitor.reasons import ToolErrorKind

if TYPE_CHECKING:
    from monitor.tools.artifacts.artifact_store import Reference


@dataclass(slots=True, frozen=True)
class ToolAnswer:
    """The answer of a tool that has more than a text."""

    text: str
    is_error: bool = False
    error_kind: ToolErrorKind | None = None
    media: tuple[Media, ...] = ()
    """Media that are shown to the model beside `text`."""
    status: str | None = None
    """One line that stands above `text` and is never cut: an exit code, a duration."""
    data: Any = None
    """The answer as JSON data, for programs. The model does not read it."""
    reference: Reference | None = None
    """Where `text` came from. With `artifacts=` it is kept under this reference. A text that the
    model is still shown is not shown again: its reference stands in its place.
    """
    wrote: tuple[str, ...] = ()
    """Files that the call has written. A compaction names them in the context."""
    display: str | None = None
    """A text for people, in events and in the live view. The model reads `text`."""
    ends_run: Literal["success", "failure"] | None = None
    """The run ends behind this turn, with `text` as the reason. See `finish`."""
    deferred: bool = False
    """The result comes later, from outside. See `deferred`."""


def finish(text: str, *, ok: bool = True) -> ToolAnswer:
    """The answer of a tool that ends the run: such a tool returns it.

    The run ends behind the turn, as `terminated`: with success or, if `ok` is false, with failure.
    `text` is the reason.
    """
    return ToolAnswer(text, ends_run="success" if ok else "failure")


def deferred(text: str = "") -> ToolAnswer:
    """The answer of a tool whose result comes later, from outside: from a person, a queue, another
    service. The tool has begun what leads to it, and returns this.

    The run ends as `paused`, and its session keeps the call open, under `context.idempotency_key`.
    `monitor.sessions.deliver` stores the result, and `supervisor.resume` goes on with it. `text`:
    what is waited for, for people. Without a session the call fails.
    """
    return ToolAnswer(text, deferred=True)


def answered(value: object) -> tuple[str, tuple[Media, ...]]:
    """`value`, which a tool returned, as the model gets it: text, and media beside it.

    Media alone, or in a list with texts and data, are shown, and the text names each of them. A
    text stays as it is, and anything else becomes JSON. Raises `ValueError`, with a message for the
    tool's author, for bytes and for media within other data or without a type or content.
    """
    pieces = (
        list(value) if isinstance(value, list | tuple) and any(isinstance(one, Media) for one in value) else [value]
    )
    media = tuple(_sound(piece) for piece in pieces if isinstance(piece, Media))
    _check_bytes(value, _DEPTH)
    sound = iter(media)
    return "\n".join(named(next(sound)) if isinstance(piece, Media) else text_of(piece) for piece in pieces), media


_DEPTH: Final = 20
"""How deep the data of a tool is searched for bytes and media."""


def _sound(media: Media) -> Media:
    """`media` in a form that can be sent: bytes become base64. Else raises `ValueError`."""
    data: object = media.data
    if isinstance(data, bytes | bytearray):
        data = b64encode(data).decode("ascii")
        media = replace(media, data=data)
    if "/" not in str(media.mime_type):
        raise ValueError(f"the tool returned media of the type {media.mime_type!r}; write one such as 'image/png'")
    if data is None and not isinstance(media.uri, str):
        raise ValueError(f"the tool returned {media.mime_type} without data or uri")
    if data is not None and not is_base64(data):
        raise ValueError(f"the tool returned {media.mime_type} whose data is not base64")
    return media


def is_base64(data: object) -> bool:
    """Whether `data` is the base64 of something."""
    try:
        return isinstance(data, str) and bool(b64decode(data, validate=True))
    except ValueError:
        return False


def named(media: Media) -> str:
    """How the text of an answer names `media`: two answers are compared by their texts."""
    what = f"{media.mime_type} {media.name}" if media.name else media.mime_type
    if media.data is None:
        return f"[{what}: {media.uri}]"
    size = len(media.data) * 3 // 4 - media.data.count("=", -2)
    return f"[{what}: {size:,} bytes, xxh3 {identity(media.data)}]"


def _check_bytes(value: object, depth: int, *, top: bool = True) -> None:
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(
            f"the tool returned {len(value):,} bytes; a tool returns text, data, or monitor.Media(mime_type,"
            " data=base64)"
        )
    if isinstance(value, Media) and not top:
        raise ValueError("the tool returned media within other data; return monitor.Media by itself, or in a list")
    listed = depth == _DEPTH and isinstance(value, list | tuple)
    for one in _parts(value) if depth > 0 else ():
        if type(one) not in _SCALARS:  # the usual parts, at a tenth of the cost of a call
            _check_bytes(one, depth - 1, top=listed)


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    if is_dataclass(value) and not isinstance(value, type | Media):
        return [getattr(value, field.name) for field in fields(value)]
    return value if isinstance(value, list | tuple | set | frozenset) else ()
