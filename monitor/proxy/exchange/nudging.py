"""A message of the monitor, added to a request. Off by default: the proxy then changes no request.

A run that repeats itself, and is not yet sure to loop, gets a message: what repeats, and that it
should try something else. The client's history does not have it, so neither has the next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from monitor.wires.forms import Form


def nudged(form: Form, body: bytes, text: str) -> bytes:
    """The request with `text` as the last words of the user. Raises `ValueError` if it has no place
    for them.
    """
    request = json.loads(body)
    _ADD[form](request, text)
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _to_chat(request: dict[str, Any], text: str) -> None:
    _list(request, "messages").append({"role": "user", "content": text})


def _to_responses(request: dict[str, Any], text: str) -> None:
    given = request.get("input")
    if isinstance(given, str):
        request["input"] = [{"role": "user", "content": given}]
    _list(request, "input").append({"role": "user", "content": text})


def _to_anthropic(request: dict[str, Any], text: str) -> None:
    """Results stand in a message of the user, and two of those may not follow each other."""
    _to_last(_list(request, "messages"), "content", {"type": "text", "text": text})


def _to_gemini(request: dict[str, Any], text: str) -> None:
    _to_last(_list(request, "contents"), "parts", {"text": text})


def _to_last(messages: list[Any], where: str, part: dict[str, str]) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, dict) and last.get("role") == "user" and isinstance(last.get(where), list):
        last[where].append(part)
    else:
        messages.append({"role": "user", where: [part]})


def _list(request: object, name: str) -> list[Any]:
    found = request.get(name) if isinstance(request, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"the request has no list {name!r}")
    return found


_ADD: Final[Mapping[Form, Callable[[dict[str, Any], str], None]]] = {
    "openai-chat": _to_chat,
    "openai-responses": _to_responses,
    "anthropic": _to_anthropic,
    "gemini": _to_gemini,
}
