"""The signs of OpenAI's chat messages, by which a record is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.wires.chat.read import ROLES
from monitor.wires.plain import are_objects, is_one_of

_FIELDS: Final = frozenset(
    [
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "refusal",
        "audio",
        "annotations",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
        "extra_content",
        "provider_specific_fields",
        "prefix",
        "cache_control",
    ]
)
"""Fields of OpenAI's and compatible servers' messages."""
_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


def is_message(record: Mapping[str, Any], *, strict: bool = True) -> bool:
    """Whether `record` is a message. `strict`: all of its fields and parts belong to this form.
    Otherwise a role and a content are enough, so that messages of related forms fit, too.
    """
    if not is_one_of(record.get("role"), ROLES):
        return False
    content = record.get("content")
    if not strict:
        return isinstance(content, str | list) or "tool_calls" in record or "function_call" in record
    calls = record.get("tool_calls")
    if calls is not None and not are_objects(calls, lambda call: "function" in call or "custom" in call):
        return False
    if not record.keys() <= _FIELDS:
        return False
    if content is None:
        return bool(calls) or "content" in record or "function_call" in record
    return isinstance(content, str) or are_objects(content, lambda part: is_one_of(part.get("type"), _PARTS))
