"""The calls of a turn as callers name them: by the call, by an object of the SDK, or by its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitor.chunks import ToolCall
from monitor.errors import ConfigError


def names(call: object, known: ToolCall) -> bool:
    """Whether `call` is `known`, or names it."""
    try:
        return call is known.raw or identify(call, ()) == known.id
    except ConfigError:
        return False


def identify(call: object, open_calls: Sequence[ToolCall]) -> str | None:
    """The id of a call, however the caller names it."""
    if call is None or isinstance(call, str):
        return call
    if isinstance(call, ToolCall):
        return call.id
    for known in open_calls:
        if known.raw is call:
            return known.id
    for name in ("call_id", "id"):  # an item of OpenAI's responses has both, and results refer to the first
        found = call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
        if isinstance(found, str):
            return found
    raise ConfigError(
        f"cannot tell which call this result belongs to: {type(call).__name__} has no id and is not an open call of"
        " this turn; pass the call of watched.turn.tool_calls, or None for the oldest open one"
    )
