"""The signs of Anthropic's messages, by which a record is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.wires.anthropic.read import ROLES
from monitor.wires.plain import are_objects, is_one_of

_FIELDS: Final = frozenset(
    [
        "role",
        "content",
        "id",
        "type",
        "model",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "usage",
        "container",
        "context_management",
    ]
)
"""Fields of Anthropic's messages, of requests and of answers."""
_BLOCKS: Final = frozenset(
    [
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "search_result",
        "container_upload",
        "compaction",
        "fallback",
        "mcp_tool_listing",
        "tool_reference",
    ]
)
_BLOCK_ENDS: Final = ("_tool_use", "_tool_result")
"""Endings of the types of Anthropic's own tools' blocks: `server_tool_use`,
`web_search_tool_result`."""


def is_message(record: Mapping[str, Any]) -> bool:
    """Whether `record` is a message, and all of its fields and blocks belong to this form."""
    if not is_one_of(record.get("role"), ROLES) or record.get("type", "message") != "message":
        return False
    content = record.get("content")
    return record.keys() <= _FIELDS and (isinstance(content, str) or are_objects(content, _is_block))


def _is_block(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and (kind in _BLOCKS or kind.endswith(_BLOCK_ENDS))
