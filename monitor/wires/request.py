"""A request around its history, in the form of any provider: messages, instructions and tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from monitor.wires.fields import objects_at, snake

MESSAGES: Final = ("messages", "contents", "input", "history")
"""The fields of a request that may hold its messages."""


def messages_of(data: object) -> Any:
    """The messages of a request: a list, or the text of the only one. `None`: `data` is not a
    request.
    """
    if not isinstance(data, Mapping) or "role" in data or "type" in data:
        return None
    return next((data[name] for name in MESSAGES if isinstance(data.get(name), list | str)), None)


def instructions_of(system: object) -> str:
    """The text of instructions, which may come in parts."""
    match system:
        case str():
            return system
        case Mapping():
            return instructions_of(system.get("text", system.get("parts")))
        case list():
            return "\n\n".join(filter(None, map(instructions_of, system)))
    return ""


def declarations_of(tools: object) -> Iterator[Mapping[str, Any]]:
    """The declarations of a request's tools, without what a form puts around them."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            fields = snake(tool)
            if isinstance(fields.get("function_declarations"), list):
                yield from objects_at(fields, "function_declarations")
            else:
                yield next(
                    (fields[name] for name in ("function", "custom") if isinstance(fields.get(name), Mapping)), tool
                )
