"""Items of OpenAI's responses: how they are read, by what they are known, how they are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall
from monitor.messages import Reasoning, Text
from monitor.wires.fields import (
    ORIGIN,
    RULES,
    RawMessage,
    RawPart,
    Unread,
    WireProblem,
    answer,
    are_objects,
    call,
    function_problems,
    in_order,
    is_one_of,
    marked,
    media_at,
    objects,
    objects_or_unread,
    part_problems,
    read_failed,
    role_of,
    text,
    words,
)

# --------------------------------------------------------------------------------------------------
# Items of OpenAI's responses. Each item is a message of its own; `repair` makes turns of them.

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_KEPT: Final = ("caller", "namespace")
"""Fields of a call that the service needs back."""


def read(item: Mapping[str, Any]) -> RawMessage:
    """One item of a history, as a message of its own."""
    match item.get("type", "message"):
        case "message":
            role = role_of(item, ROLES)
            return RawMessage(role, (*_phase(item), *in_order(_content(item, "content"))), partial=role == "assistant")
        case "function_call_output" | "custom_tool_call_output":
            said, shown = words(_content(item, "output"))
            said, failed = read_failed(said)
            return RawMessage("tool", tuple(answer(text(item, "call_id"), "", said, shown, is_error=failed)))
    return RawMessage("assistant", tuple(_said(item)), partial=True)


def _said(item: Mapping[str, Any]) -> Iterator[RawPart]:
    match item.get("type"):
        case "function_call":
            yield from _kept(item)
            yield call(text(item, "call_id"), text(item, "name"), item.get("arguments"))
        case "custom_tool_call":
            yield from _kept(item, type="custom_tool_call")
            yield ToolCall(text(item, "call_id"), text(item, "name"), {"input": text(item, "input")})
        case "reasoning":
            yield from _reasoning(item)
        case _:
            yield marked({"item": to_plain(item)})


def _phase(item: Mapping[str, Any]) -> Iterator[RawPart]:
    if phase := text(item, "phase"):
        yield marked({"phase": phase})


def _kept(item: Mapping[str, Any], **more: str) -> Iterator[RawPart]:
    kept = {name: to_plain(item[name]) for name in _KEPT if item.get(name) is not None} | more
    if kept:
        yield marked({"call": kept})


def _reasoning(item: Mapping[str, Any]) -> Iterator[RawPart]:
    for part in objects_or_unread(item, "summary"):
        yield part if isinstance(part, Unread) else Reasoning(text(part, "text"), origin=ORIGIN)
    fields = {name: item[name] for name in ("id", "encrypted_content") if isinstance(item.get(name), str)}
    if fields:
        yield marked({"reasoning": fields})


def _content(item: Mapping[str, Any], name: str) -> Iterator[RawPart]:
    content = item.get(name)
    if isinstance(content, str):
        yield Text(content)
        return
    for part in objects_or_unread(item, name):
        yield part if isinstance(part, Unread) else _part(part)


def _part(part: Mapping[str, Any]) -> RawPart:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return Text(text(part, "text"))
        case "refusal":
            return Text(text(part, "refusal"))
        case "input_image" if address := text(part, "image_url"):
            return media_at(address)
        case "input_file" if address := text(part, "file_data", "file_url"):
            return media_at(address, "application/pdf", text(part, "filename") or None)
        case kind:
            return Unread(f"a part of type {kind!r}")


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


# --------------------------------------------------------------------------------------------------
# The rules of the responses API for its input, if the service stores nothing.
#
# The error messages state them:
#
# - "No tool output found for function call";
# - "No tool call found for function call output with call_id";
# - "Item of type 'reasoning' was provided without its required following item";
# - "Duplicate item found with id".

_CALLS: Final = frozenset(CALL_OF.values())
_PARTS_OF_ROLE: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"input_text", "input_image", "input_file", "input_audio"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "assistant": frozenset({"output_text", "refusal"}),
}


def problems(items: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """The problems of `items`, in their order."""
    waiting: dict[tuple[str, str], int] = {}
    ids: set[str] = set()
    for index, item in enumerate(items):
        kind = text(item, "type") or "message"
        if text(item, "id") in ids:
            yield WireProblem(index, "id", f"an item before it has the id {item['id']!r}")
        ids |= {text(item, "id")} - {""}
        if kind == "message":
            yield from _message_problems(index, item)
        elif kind in _CALLS:
            yield from _call_problems(index, item, kind)
            key = kind, text(item, "call_id")
            if key in waiting:
                yield WireProblem(index, "id", f"a call before it has the id {key[1]!r}, and is not answered yet")
            waiting[key] = index
        elif kind in CALL_OF:
            if waiting.pop((CALL_OF[kind], text(item, "call_id")), None) is None:
                yield WireProblem(index, "pairing", f"no call before it waits for {item.get('call_id')!r}")
            if item.get("output") is None:
                yield WireProblem(index, "shape", "it has no output")
            if kind == "local_shell_call_output" and not text(item, "id"):
                yield WireProblem(index, "id", "the output of a local shell has no id")
        elif kind == "reasoning":
            yield from _reasoning_problems(index, item, items[index + 1] if index + 1 < len(items) else None)
    for (_, call_id), index in waiting.items():
        yield WireProblem(index, "pairing", f"nothing answers {call_id!r}")


def _message_problems(index: int, item: Mapping[str, Any]) -> Iterator[WireProblem]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _PARTS_OF_ROLE:
        yield WireProblem(index, "role", f"the role is {role!r}")
    elif not content:
        yield WireProblem(index, "empty", f"the content of the {role} is empty")
    elif not isinstance(content, str):
        yield from part_problems(index, content, role, _PARTS_OF_ROLE[role])


def _call_problems(index: int, item: Mapping[str, Any], kind: str) -> Iterator[WireProblem]:
    if not RULES["openai-responses"].call_id.fullmatch(text(item, "call_id")):
        yield WireProblem(index, "id", f"{item.get('call_id')!r} is not an id of 1 to 64 characters")
    if kind in ("function_call", "custom_tool_call"):
        yield from function_problems(index, "openai-responses", item, has_arguments=kind == "function_call")


def _reasoning_problems(
    index: int, item: Mapping[str, Any], following: Mapping[str, Any] | None
) -> Iterator[WireProblem]:
    if objects(item.get("summary")) is None:
        yield WireProblem(index, "shape", "the reasoning has no summary")
    if not (item.get("encrypted_content") or item.get("id")):
        yield WireProblem(index, "signature", "the reasoning has neither an id nor encrypted content")
    kind = None if following is None else text(following, "type") or "message"
    theirs = (
        kind is None
        or kind in CALL_OF
        or (kind == "message" and following is not None and following.get("role") != "assistant")
    )
    if theirs:
        yield WireProblem(index, "order", "no output of the model follows the reasoning")
