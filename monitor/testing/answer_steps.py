"""The steps of a script, for any of the local servers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from monitor.errors import AdapterError, ConfigError

Event: TypeAlias = Mapping[str, Any]
"""One event as it stands on the wire: a JSON object."""


@dataclass(slots=True, frozen=True)
class Send:
    """One server-sent event. A bare mapping in a script means the same."""

    event: Event


@dataclass(slots=True, frozen=True)
class Raw:
    """Sends `data` as it is: half an event, a comment, invalid JSON."""

    data: bytes


@dataclass(slots=True, frozen=True)
class Headers:
    """The status line and headers now; otherwise they go out with the first `Send` or `Raw`."""


@dataclass(slots=True, frozen=True)
class Pause:
    """Nothing for `delay_s` seconds; before the first event it delays the headers."""

    delay_s: float


@dataclass(slots=True, frozen=True)
class Stall:
    """Nothing, until the client leaves or the server stops."""


@dataclass(slots=True, frozen=True)
class Cut:
    """Close the connection in the middle of the answer, after everything sent so far has gone
    out.
    """


@dataclass(slots=True, frozen=True)
class Reset:
    """Close the connection with a TCP reset."""


@dataclass(slots=True, frozen=True)
class Repeat:
    """`step`, `times` times (`None`: for ever), `delay_s` seconds apart. `Repeat(text("x"))`
    floods.
    """

    step: Step | Event
    times: int | None = None
    delay_s: float = 0.0


@dataclass(slots=True, frozen=True)
class Reply:
    """A whole answer with this status instead of a stream. Only a `Pause` may stand before it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to, or replacing, `content-type: application/json`."""


Step: TypeAlias = Send | Raw | Headers | Pause | Stall | Cut | Reset | Repeat | Reply
Script: TypeAlias = Sequence[Step | Event]
STEPS = (Send, Raw, Headers, Pause, Stall, Cut, Reset, Repeat, Reply)


def html_error(code: int = 502, body: str = "<html><body>Bad gateway</body></html>") -> Reply:
    """An error page, as a proxy sends it."""
    return Reply(code, body.encode(), {"content-type": "text/html"})


def to_json(value: Any) -> bytes:
    """UTF-8; a lone surrogate goes out as its escape, as it would come from the API."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def pieces(words: str, cut: int) -> list[str]:
    """A text in pieces of `cut` code points. Raises `ConfigError` for less than one."""
    if cut < 1:
        raise ConfigError(f"cut must be at least 1 code point, not {cut}")
    return [words[at : at + cut] for at in range(0, len(words), cut)]


def turn_of_message(message: Event) -> tuple[str, list[tuple[str, Event]]]:
    """The text and the (name, arguments) calls of an assistant message of the loop corpus.

    Arguments other than a JSON object go under the key `input`, because the wire formats that need
    this have only objects.
    """
    calls = [(str(made["name"]), made["args"]) for made in message.get("tool_calls") or ()]
    objects = [(name, given if isinstance(given, Mapping) else {"input": given}) for name, given in calls]
    return str(message.get("text") or ""), objects


def retry_after(delay_s: float | None) -> dict[str, str]:
    """The header that asks to wait; `None` omits it."""
    return {} if delay_s is None else {"retry-after": f"{delay_s:g}"}


def json_lines(file: Path, field: str = "") -> list[dict[str, Any]]:
    """The objects of a JSONL file. Raises `AdapterError` for a line that is not an object, or that
    has no text under `field`.
    """
    lines = file.read_text("utf-8").split("\n")  # JSON may hold the other characters at which Python would split
    return [_json_line(file, number, line, field) for number, line in enumerate(lines, 1) if line.strip()]


def _json_line(file: Path, number: int, line: str, field: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise AdapterError(f"{file}, line {number}: no JSON: {error}") from None
    if not isinstance(data, dict):
        raise AdapterError(f"{file}, line {number}: expected a JSON object, not {type(data).__name__}")
    if field and not isinstance(data.get(field), str):
        raise AdapterError(f"{file}, line {number}: expected a JSON object with a `{field}`")
    return data
