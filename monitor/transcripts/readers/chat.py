"""Messages with roles, as most formats have them: OpenAI, Anthropic, Inspect, LangChain, goose.

The fields of a message show its content: each field has one meaning in all of these forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from monitor._util.lazy import LazyModule
from monitor.chunks import Usage
from monitor.transcripts.base import ReadReport, RecordedCall, RecordedMessage, RecordedResult, Role
from monitor.transcripts.readers.values import (
    are_objects,
    call_of,
    in_tier,
    is_count,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    text,
    whole,
    words,
)

if TYPE_CHECKING:
    from monitor.wires import chat as signs
else:
    signs = LazyModule("monitor.wires.chat")  # a hook is waited for, and reads no chat

ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
}
_RESULT_BLOCKS: Final = frozenset({"tool_result", "tool-result", "toolResponse", "mcp_tool_result"})
_CALL_BLOCKS: Final = frozenset({"tool_use", "tool-call", "toolRequest", "server_tool_use", "mcp_tool_use"})
_THOUGHT_BLOCKS: Final = frozenset({"thinking", "reasoning", "think"})


def is_message(value: object) -> bool:
    """Whether `value` is one message with a role and a content."""
    return isinstance(value, dict) and signs.is_message(
        {**value, "role": ROLES.get(text(value.get("role")))}, strict=False
    )


def are_messages(value: object) -> bool:
    """Whether `value` is a list of messages."""
    return are_objects(value, is_message)


def messages_of(messages: Iterable[object], report: ReadReport | None = None) -> Iterator[RecordedMessage]:
    """The messages. An item that is no message is left out, and noted in `report`."""
    for one in messages:
        if isinstance(one, dict) and _role(one) is not None:
            yield from message_of(one)
        elif report is not None:
            report.does_not_know(table(one).get("role", table(one).get("type", one)))


def message_of(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    """The message, and before it the results that stand in it."""
    role = _role(message)
    if role is None:
        return
    content = message.get("content")
    blocks = [*map(table, rows(content))]
    results = [*_results(role, message, blocks)]
    at = seconds(message.get("timestamp", message.get("created", message.get("ts"))))
    if results:
        yield RecordedMessage("tool", tool_results=tuple(results), at=at)
    said = words([block for block in rows(content) if not _has_own_place(table(block))] if blocks else content)
    if role == "assistant":
        told = table(message.get("usage", message.get("usage_metadata")))
        yield RecordedMessage(
            "assistant",
            said,
            tuple(_calls(message, blocks)),
            reasoning=_reasoning(message, blocks),
            at=at,
            usage=usage_of(told),
            model=in_tier(text(message.get("model")), told),
        )
    elif role != "tool" and (said or not results):
        yield RecordedMessage(role, said, at=at)


def _role(message: Mapping[str, Any]) -> Role | None:
    return ROLES.get(text(message.get("role")) or text(message.get("type")))


def _has_own_place(block: Mapping[str, Any]) -> bool:
    return text(block.get("type")) in {*_RESULT_BLOCKS, *_CALL_BLOCKS, *_THOUGHT_BLOCKS, "redacted_thinking"}


def _calls(message: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]]) -> Iterator[RecordedCall]:
    for block in blocks:
        if text(block.get("type")) in _CALL_BLOCKS:
            inside = table(table(block.get("toolCall")).get("value")) or block
            arguments = inside.get("input", inside.get("arguments", inside.get("args")))
            yield call_of(
                inside.get("name", inside.get("toolName")), parsed(arguments), block.get("id", block.get("toolCallId"))
            )
    for call in map(table, rows(message.get("tool_calls"))):
        yield chat_call(call)
    if isinstance(old := message.get("function_call"), dict):
        yield call_of(old.get("name"), parsed(old.get("arguments")), None)


def chat_call(call: Mapping[str, Any]) -> RecordedCall:
    """A call of a chat message: OpenAI's, Inspect's, LangChain's."""
    function = call.get("function")
    inside = function if isinstance(function, dict) else call
    name = inside.get("name") or (function if isinstance(function, str) else None) or text(call.get("type"))
    custom = table(call.get("custom"))
    arguments = inside.get("arguments", inside.get("args", custom.get("input")))
    return call_of(custom.get("name") or name, parsed(arguments), call.get("id") or call.get("call_id"))


def _results(role: Role, message: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]]) -> Iterator[RecordedResult]:
    if role == "tool":
        ids = rows(message.get("tool_call_ids")) or [message.get("tool_call_id")]
        failed = message.get("status") == "error" or bool(message.get("error")) or message.get("is_error") is True
        said = words(message.get("content")) or words(table(message.get("error")).get("message"))
        name = text(message.get("name")) or text(message.get("function"))
        yield result_of(name, said, is_error=failed, call_id=text(ids[0]) or None)
        return
    for block in blocks:
        if text(block.get("type")) not in _RESULT_BLOCKS:
            continue
        inside = table(block.get("toolResult"))
        failed = block.get("is_error") is True or block.get("isError") is True or inside.get("status") == "error"
        said = words(inside.get("value", inside.get("error"))) or words(block.get("content", block.get("output")))
        id = block.get("tool_use_id") or block.get("id") or block.get("toolCallId")
        yield result_of("", said, is_error=failed, call_id=text(id) or None)


def _reasoning(message: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]]) -> str:
    thoughts = [
        text(block.get("thinking"))
        or text(block.get("reasoning"))
        or text(block.get("text"))
        or text(block.get("think"))
        for block in blocks
        if text(block.get("type")) in _THOUGHT_BLOCKS
    ]
    own = text(message.get("reasoning_content")) or text(message.get("reasoning"))
    return "\n".join(filter(None, (*thoughts, own if not any(thoughts) else "")))


_COUNTS = ("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "total_tokens")
_CACHED = ("cache_read_input_tokens", "input_tokens_cache_read")
_WRITTEN = ("cache_creation_input_tokens", "input_tokens_cache_write")


def usage_of(usage: Mapping[str, Any]) -> Usage | None:
    """Usage as OpenAI, Anthropic and LangChain write it; `None`: there is none, an impossible
    count, or nothing but zeros: no call takes no tokens.
    """
    named = [usage[name] for name in (*_COUNTS, *_CACHED, *_WRITTEN) if usage.get(name) is not None]
    if not any(named) or not all(map(is_count, named)):
        return None
    cached, written = (next(filter(None, map(usage.get, names)), 0) for names in (_CACHED, _WRITTEN))
    details = table(
        usage.get("prompt_tokens_details", usage.get("input_token_details", usage.get("input_tokens_details")))
    )
    inside = whole(details.get("cached_tokens")) or whole(details.get("cache_read"))
    given = whole(usage.get("prompt_tokens")) or whole(usage.get("input_tokens")) + (0 if inside else cached + written)
    answered = whole(usage.get("completion_tokens")) or whole(usage.get("output_tokens"))
    out = table(
        usage.get("completion_tokens_details", usage.get("output_token_details", usage.get("output_tokens_details")))
    )
    thinking = whole(out.get("reasoning_tokens")) or whole(out.get("reasoning")) or whole(usage.get("reasoning_tokens"))
    for_1h = whole(table(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    return Usage(given, answered, thinking, inside or cached, given + answered, written, for_1h)


def with_model(messages: Iterable[RecordedMessage], model: str) -> Iterator[RecordedMessage]:
    """The messages. Those of the model that name no model get the name `model`."""
    for message in messages:
        yield replace(message, model=message.model or model) if message.role == "assistant" else message
