"""The model's message of one turn, for a loop that keeps its own history."""

from __future__ import annotations

from typing import Any

from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Text
from monitor.outcome import Turn
from monitor.wires.fields import Form


def reply_of(turn: Turn, form: Form) -> list[dict[str, Any]]:
    """The messages to append for `turn`: one, or none if the model said nothing. A loop in the text
    is left out, because a model that reads its own loop continues it.

    Only `openai-chat`: the other forms need what a turn does not keep, such as signatures of
    thoughts, and a provider refuses a history without them. Raises `ConfigError` for those, and for
    a text that was cut by `keep_text_chars`.
    """
    if form != "openai-chat":
        raise ConfigError(f"to_form makes 'openai-chat', not {form!r}: keep the message of your SDK for that form")
    if turn.text_truncated:
        raise ConfigError("the text of the turn was cut by keep_text_chars, so its message is not complete")
    text = turn.text[: turn.loop_offset]
    said: tuple[Text | ToolCall, ...] = (*([Text(text)] if text else []), *turn.tool_calls)
    if not said:
        return []
    from monitor.adapters.provider_forms import to_form  # noqa: PLC0415 - only a loop that asks for its message needs it

    made = to_form(form, [AssistantMessage(said, (), turn.finish_reason)])
    return [message for message in made if message["role"] == "assistant"]
