"""Makes answers and errors of tools the results that the model reads."""

from __future__ import annotations

import copy
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from monitor._util.argument_checks import is_finite
from monitor._util.arguments import closest, was_cut_off
from monitor._util.codec import text_of
from monitor._util.hashing import identity
from monitor.chunks import Media, ToolCall, ToolResult
from monitor.errors import ToolError, ToolErrorKind, describe, leaves_of, message_of
from monitor.messages import CUT_OFF
from monitor.tools.base import excerpt

if TYPE_CHECKING:
    from monitor.tools.artifacts.artifact_store import Reference


# --------------------------------------------------------------------------------------------------
# Makes a tool's answer the text, and the media beside it, that the model gets.


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
    kept_from: str = ""
    """What a sandbox has kept the call from: `monitor.tools.base.NETWORK`, the path of a file. A
    person may let the call be made once more outside.
    """


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
"""Types of JSON data whose values need no copy, and have no parts."""


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    if is_dataclass(value) and not isinstance(value, type | Media):
        return [getattr(value, field.name) for field in fields(value)]
    return value if isinstance(value, list | tuple | set | frozenset) else ()


NAMES_SHOWN = 30
"""The most tools that are named to a model that called an unknown tool."""


def result_of(call: ToolCall, value: object) -> ToolResult:
    """The result of `call`, made of `value`, which its tool returned. Raises `ToolError` if `value`
    cannot be shown.
    """
    if type(value) is str:  # nearly always
        return ToolResult(call.id, call.name, value)
    try:
        if not isinstance(value, ToolAnswer):
            text, media = answered(value)
            return ToolResult(call.id, call.name, text, media=media)
        text = value.text if value.status is None else f"{value.status}\n{value.text}".rstrip("\n")
        kind = value.error_kind or (ToolErrorKind.EXECUTION_FAILED if value.is_error else None)
        media = answered(list(value.media))[1] if value.media else ()
    except ValueError as error:
        raise ToolError(str(error)) from None
    progress = value.data.get("progress") if isinstance(value.data, Mapping) else None
    number = float(progress) if is_finite(progress) else None
    return ToolResult(
        call.id,
        call.name,
        text,
        value.is_error,
        media,
        error_kind=kind,
        progress=number,
        wrote=() if value.is_error else value.wrote,
        display=value.display,
        ends_run=value.ends_run,
    )


def failed(call: ToolCall, text: str, kind: ToolErrorKind, *, vetoed: bool = False) -> ToolResult:
    """`text` as the result of `call`, which failed."""
    return ToolResult(call.id, call.name, text, is_error=True, vetoed=vetoed, error_kind=kind)


def failed_by(call: ToolCall, error: BaseException, cancelled: type[BaseException]) -> ToolResult:
    """The result of a call that ended with `error`. If that is a group of exceptions, the result
    names those in it: "unhandled errors in a TaskGroup" helps nobody.
    """
    leaves = list(leaves_of(error))
    text = "; ".join(dict.fromkeys(_one_error(leaf, cancelled) for leaf in leaves))
    kinds = {_kind_of(leaf) for leaf in leaves}
    return failed(call, f"Error: {text}", kinds.pop() if len(kinds) == 1 else ToolErrorKind.UNHANDLED)


def unknown_tool(name: str, tools: Collection[str]) -> ToolError:
    """The error for a call of an unknown tool. The detector `UnknownTool` knows its words."""
    text = f"unknown tool {excerpt(name)}."
    if not tools:
        text += " There are no tools; answer without one."
    else:
        if meant := closest(name, tools):
            text += f" Did you mean {meant}?"
        names = sorted(tools)
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        text += f" The tools are: {', '.join(names[:NAMES_SHOWN])}{more}."
    return ToolError(text, kind=ToolErrorKind.UNKNOWN_TOOL)


def arguments_of(given: Any) -> dict[str, Any]:
    """A copy of the arguments, so that a tool that changes them does not change the history. Raises
    `ToolError` if they are not one JSON object: half a call is never carried out.
    """
    if given is None:
        return {}
    if was_cut_off(given):
        raise ToolError(CUT_OFF, kind=ToolErrorKind.INVALID_ARGUMENTS)
    if not isinstance(given, Mapping):
        text = f"the arguments must be one JSON object; these are not: {excerpt(given)}"
        raise ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)
    return {key: _copied(value) for key, value in given.items()}


def _copied(value: Any) -> Any:
    """A copy of JSON data, made in less time than `copy.deepcopy`, which copies the rest."""
    if type(value) in _SCALARS:
        return value
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    if type(value) is list:
        return [_copied(one) for one in value]
    return copy.deepcopy(value)


def _one_error(error: BaseException, cancelled: type[BaseException]) -> str:
    if isinstance(error, cancelled):
        return "something that the tool waited for was cancelled"
    return (message_of(error) if isinstance(error, ToolError) else "") or describe(error)


def _kind_of(error: BaseException) -> ToolErrorKind:
    if isinstance(error, ToolError):
        return error.kind
    for types, kind in _KINDS:
        if isinstance(error, types):
            return kind
    return ToolErrorKind.UNHANDLED


_KINDS = (
    (FileNotFoundError, ToolErrorKind.NOT_FOUND),
    (PermissionError, ToolErrorKind.PERMISSION),
    (TimeoutError, ToolErrorKind.TIMEOUT),
)
