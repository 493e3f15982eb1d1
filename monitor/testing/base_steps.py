"""The steps of a script, for any of the local servers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from monitor.errors import AdapterError

Event: TypeAlias = Mapping[str, Any]
"""One event as it stands on the wire: a JSON object."""


@dataclass(slots=True, frozen=True)
class Send:
    """One server-sent event. A bare mapping in a script means the same."""

    event: Event


@dataclass(slots=True, frozen=True)
class Raw:
    """These body bytes unchanged: half an event, a comment, invalid JSON."""

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


def json_lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file. Raises `AdapterError` for a line that is not an object."""
    lines = file.read_text("utf-8").split("\n")  # JSON may hold the other characters at which Python would split
    return [_json_line(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _json_line(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise AdapterError(f"{file}, line {number}: no JSON: {error}") from None
    if not isinstance(data, dict):
        raise AdapterError(f"{file}, line {number}: expected a JSON object, not {type(data).__name__}")
    return data
