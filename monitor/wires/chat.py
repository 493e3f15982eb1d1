"""OpenAI's chat messages: how they are read, by what they are known, and how they are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from monitor._util.part_options import CUSTOM
from monitor.chunks import ToolCall, ToolResult
from monitor.messages import Media, Reasoning, Text
from monitor.wires.fields import (
    ORIGIN,
    RULES,
    RawMessage,
    RawPart,
    Unread,
    WireProblem,
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
# Messages of OpenAI's chat completions, and of the servers that are compatible with it.

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "tool", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}


def read(message: Mapping[str, Any]) -> RawMessage:
    """One message of a history, with all of its parts and calls."""
    role = role_of(message, ROLES)
    content = in_order(_content(message))
    if role == "tool":
        said, shown = words(content)
        return RawMessage(
            role, (ToolResult(text(message, "tool_call_id"), text(message, "name"), *read_failed(said)), *shown)
        )
    if role == "assistant":
        return RawMessage(role, (*_thought(message), *content, *_calls(message)))
    return RawMessage(role, content)


def _content(message: Mapping[str, Any]) -> Iterator[RawPart]:
    content = message.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    for part in objects_or_unread(message, "content"):
        yield part if isinstance(part, Unread) else _part(part)
    if refusal := text(message, "refusal"):
        yield Text(refusal)


def _part(part: Mapping[str, Any]) -> RawPart:
    kind = part.get("type")
    held = part.get(kind) if isinstance(kind, str) else None
    fields = held if isinstance(held, Mapping) else {}
    match kind:
        case "text" | "refusal":
            return Text(text(part, kind))
        case "image_url" if address := text(fields, "url"):
            return media_at(address)
        case "input_audio":
            return Media(f"audio/{'mpeg' if text(fields, 'format') == 'mp3' else 'wav'}", text(fields, "data"))
        case "file" if data := text(fields, "file_data"):
            return media_at(data, "application/pdf", text(fields, "filename") or None)
    return Unread(f"a part of type {kind!r}")


def _thought(message: Mapping[str, Any]) -> Iterator[RawPart]:
    if thought := text(message, "reasoning_content", "reasoning"):
        yield Reasoning(thought, origin=ORIGIN)


def _calls(message: Mapping[str, Any]) -> Iterator[RawPart]:
    for one in objects_or_unread(message, "tool_calls"):
        if isinstance(one, Unread):
            yield one
            continue
        if one.get("extra_content") is not None:
            yield marked({"extra_content": one["extra_content"]})
        custom, function = one.get("custom"), one.get("function")
        if isinstance(custom, Mapping):
            yield marked({"call": CUSTOM})
            yield ToolCall(text(one, "id"), text(custom, "name"), {"input": text(custom, "input")})
        elif isinstance(function, Mapping):
            yield call(text(one, "id"), text(function, "name"), function.get("arguments"))
        else:
            yield Unread("a call without a function")
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield call("", text(legacy, "name"), legacy.get("arguments"))


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


# --------------------------------------------------------------------------------------------------
# The rules of chat completions for messages.
#
# The error messages state them:
#
# - "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'";
# - "An assistant message with 'tool_calls' must be followed by tool messages responding to each
#   'tool_call_id'";
# - "string too long. Expected a string with maximum length 40".
#
# Compatible servers parse the arguments, and require a JSON object.

_PARTS_OF_ROLE: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file", "video_url"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}


def problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """The problems of `messages`, in their order."""
    waiting: Counter[str] = Counter()
    asked = 0
    for index, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role not in _PARTS_OF_ROLE:
            yield WireProblem(index, "role", f"the role is {role!r}")
            continue
        yield from _content_problems(index, message, role)
        if role == "tool":
            if waiting[text(message, "tool_call_id")] > 0:
                waiting[text(message, "tool_call_id")] -= 1
            else:
                yield WireProblem(index, "pairing", f"no call before it waits for {message.get('tool_call_id')!r}")
            continue
        yield from _unanswered(asked, waiting)
        waiting, asked = Counter(), index
        if role == "assistant" and message.get("tool_calls") is not None:
            waiting = Counter(text(call, "id") for call in objects(message["tool_calls"]) or ())
            yield from _call_problems(index, message["tool_calls"])
    yield from _unanswered(asked, waiting)


def _content_problems(index: int, message: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
    content = message.get("content")
    said_otherwise = role == "assistant" and any(
        message.get(name) for name in ("tool_calls", "refusal", "audio", "function_call")
    )
    if content in (None, "") or content == []:
        if not (said_otherwise or (role == "tool" and content == "")):
            yield WireProblem(index, "empty", f"the content of the {role} is empty")
        return
    if not isinstance(content, str):
        yield from part_problems(index, content, role, _PARTS_OF_ROLE[role])


def _call_problems(index: int, given: object) -> Iterator[WireProblem]:
    calls = objects(given)
    if not calls:
        yield WireProblem(index, "shape", "tool_calls is not a list of calls, or is empty")
        return
    ids = [text(call, "id") for call in calls]
    if len(set(ids)) < len(ids):
        yield WireProblem(index, "id", "two calls share an id")
    for one in calls:
        if not RULES["openai-chat"].call_id.fullmatch(text(one, "id")):
            yield WireProblem(index, "id", f"{one.get('id')!r} is not an id of 1 to 40 characters")
        function = one.get("custom" if one.get("type") == "custom" else "function")
        if one.get("type") not in ("function", "custom") or not isinstance(function, Mapping):
            yield WireProblem(index, "shape", "a call has no function")
            continue
        yield from function_problems(index, "openai-chat", function, has_arguments=one.get("type") == "function")


def _unanswered(index: int, waiting: Counter[str]) -> Iterator[WireProblem]:
    for call_id in waiting.elements():
        yield WireProblem(index, "pairing", f"no tool message right behind it answers {call_id!r}")
