"""The signs of items of OpenAI's responses, by which a record is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.wires.plain import are_objects, is_one_of
from monitor.wires.responses.read import ROLES

CALL_OF: Final[Mapping[str, str]] = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
}
"""The outputs that the client gives, and the call that each one answers."""

_FIELDS: Final = frozenset({"role", "content", "type", "id", "status", "phase", "object"})
_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"})
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(CALL_OF.values(), ("call_id",)),
    **dict.fromkeys(CALL_OF, ("call_id", "output")),
    **dict.fromkeys(("apply_patch_call_output", "tool_search_output", "program_output"), ("call_id",)),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    **dict.fromkeys(("file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call"), ("id",)),
    **dict.fromkeys(("mcp_call", "mcp_list_tools", "mcp_approval_request", "item_reference", "program"), ("id",)),
    "mcp_approval_response": ("approval_request_id",),
    "compaction": ("encrypted_content",),
    "reasoning": ("summary",),
    **dict.fromkeys(("additional_tools", "configuration_update", "compaction_trigger", "tool_search_call"), ()),
}
"""Items of OpenAI's responses other than messages, and their required fields."""


def is_item(record: Mapping[str, Any], *, strict: bool = True) -> bool:
    """Whether `record` is an item. `strict`: it has the required fields, and a message has no
    fields and parts of other forms. Otherwise the type is enough, and a role for a message.
    """
    kind = record.get("type", "message")
    if kind == "message":
        if not is_one_of(record.get("role"), ROLES):
            return False
        content = record.get("content")
        return not strict or (
            record.keys() <= _FIELDS
            and (isinstance(content, str) or are_objects(content, lambda part: is_one_of(part.get("type"), _PARTS)))
        )
    if not isinstance(kind, str):
        return False
    if not strict:
        return kind in {"reasoning", "item_reference"} or kind.endswith(("_call", "_call_output"))
    if kind == "reasoning" and "encrypted_content" in record:
        return True
    return kind in _REQUIRED and all(record.get(name) is not None for name in _REQUIRED[kind])


def is_own_item(record: Mapping[str, Any]) -> bool:
    """Whether the type of `record` is one that no other form has."""
    return is_one_of(record.get("type"), {"function_call", "custom_tool_call", "reasoning", *CALL_OF})
