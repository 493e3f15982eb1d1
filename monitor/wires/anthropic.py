"""Anthropic's messages: what their service needs back, how they are read, known and checked."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from monitor._util.part_options import REDACTED, mark, origin, read_mark
from monitor.chunks import ToolCall
from monitor.errors import FinishReason
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text
from monitor.wires.fields import (
    RULES,
    RawMessage,
    RawPart,
    Unread,
    WireProblem,
    answer,
    are_objects,
    base64_of,
    in_order,
    is_base64,
    is_one_of,
    objects,
    objects_or_unread,
    role_of,
    text,
    words,
)

# --------------------------------------------------------------------------------------------------
# Parts of the model's turn that Anthropic's service needs back and that no neutral part can hold.
#
# Each of them is the signature of a `Reasoning` without text, in its place among the other parts:
#
# - `block`: a whole block, such as a call of a server-side tool, its result, or a compaction;
# - `citations` and `chars`: the citations of the last `chars` code points of the text before it;
# - `use`: the fields of the tool call behind it besides its name and input, such as its caller.
#
# No model signs these blocks. Every Claude model accepts them, and no other provider gets them.

ORIGIN: Final = origin("anthropic", None)

_OF_A_CALL: Final = frozenset({"type", "id", "name", "input", "cache_control"})


def of_block(block: Mapping[str, Any]) -> str:
    """The signature that holds a whole block."""
    return mark({"block": dict(block)})


def of_text(citations: object, chars: int) -> str | None:
    """The signature that holds the citations of a text of `chars` code points, if there are any."""
    return mark({"citations": citations, "chars": chars}) if isinstance(citations, list) and citations else None


def of_call(block: Mapping[str, Any]) -> str | None:
    """The signature that holds the further fields of a `tool_use` block. `None`: it has none."""
    fields = {name: value for name, value in block.items() if name not in _OF_A_CALL and value is not None}
    if fields.get("caller") == {"type": "direct"}:  # what the service takes if nothing is said
        del fields["caller"]
    return mark({"use": fields}) if fields else None


def kept_block(piece: object) -> dict[str, Any] | None:
    """The whole block that a part of a message keeps, if it keeps one."""
    fields = _marked(piece).get("block")
    return fields if isinstance(fields, dict) else None


def kept_citations(piece: Reasoning) -> tuple[list[Any], int] | None:
    """The citations that a part keeps for the text before it, and the length of their text."""
    fields = _marked(piece)
    citations, chars = fields.get("citations"), fields.get("chars")
    return (citations, chars) if isinstance(citations, list) and type(chars) is int and chars > 0 else None


def kept_use(piece: Reasoning) -> dict[str, Any] | None:
    """The further fields that a part keeps for the call behind it."""
    fields = _marked(piece).get("use")
    return fields if isinstance(fields, dict) else None


def _marked(piece: object) -> dict[str, Any]:
    return (read_mark(piece.signature) or {}) if isinstance(piece, Reasoning) else {}


def call_of(block: Mapping[str, Any]) -> str | None:
    """The id of the service's own call that `block` is, or answers. `None`: `block` is neither."""
    kind = str(block.get("type"))
    key = "id" if kind.endswith("_tool_use") else "tool_use_id" if kind.endswith("_tool_result") else ""
    given = block.get(key)
    return given if isinstance(given, str) else None


def paired(messages: Iterable[Message]) -> frozenset[str]:
    """The ids of the service's own calls that may be sent in `messages`.

    The service refuses a call of its own without its result, and a result without its call. A call
    may wait for its result behind a turn that also calls tools of the caller's. It may also wait
    behind a turn that the service has paused, until the user speaks.
    """
    waiting: set[str] = set()
    complete: set[str] = set()
    calls = False
    for message in messages:
        if not isinstance(message, AssistantMessage):
            if not calls:
                waiting.clear()
            continue
        for block in filter(None, map(kept_block, message.content)):
            call = call_of(block)
            if call is not None and "tool_use_id" not in block:
                waiting.add(call)
            elif call in waiting:
                waiting.remove(call)
                complete.add(call)
        calls = any(isinstance(part, ToolCall) for part in message.content)
        if message.finish_reason not in ((FinishReason.DONE, None) if calls else (FinishReason.INTERRUPTED, None)):
            waiting.clear()
    return frozenset(complete | waiting)


# --------------------------------------------------------------------------------------------------
# Reads messages of Anthropic's API.

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}


def read(message: Mapping[str, Any]) -> RawMessage:
    """One message of a history, with all of its blocks. What the model's message has besides text,
    thinking and calls is kept for the service.
    """
    role = role_of(message, ROLES)
    return RawMessage(role, in_order(_content(message, kept=role == "assistant")))


def _content(holder: Mapping[str, Any], *, kept: bool = False) -> Iterator[RawPart]:
    content = holder.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    for block in objects_or_unread(holder, "content"):
        if isinstance(block, Unread):
            yield block
        elif kept and isinstance(block.get("type"), str) and block["type"] not in _NEUTRAL:
            yield Reasoning("", of_block(block), ORIGIN)
        else:
            yield from _block(block)


_NEUTRAL: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "search_result"}
)
"""Blocks that have a neutral part, or that only the user's message may have."""


def _block(block: Mapping[str, Any]) -> Iterator[RawPart]:
    match block.get("type"):
        case "text":
            yield Text(said := text(block, "text"))
            yield from _kept(of_text(block.get("citations"), len(said)))
        case "thinking":
            yield Reasoning(text(block, "thinking"), text(block, "signature") or None, ORIGIN)
        case "redacted_thinking":
            yield Reasoning("", REDACTED + text(block, "data"), ORIGIN)
        case "tool_use":
            yield from _kept(of_call(block))
            yield ToolCall(text(block, "id"), text(block, "name"), block.get("input"))
        case "tool_result":
            said, shown = words(_content(block))
            yield from answer(text(block, "tool_use_id"), "", said, shown, is_error=block.get("is_error") is True)
        case "image" | "document":
            yield _media(block)
        case kind:
            yield Unread(f"a block of type {kind!r}")


def _kept(signature: str | None) -> Iterator[RawPart]:
    if signature is not None:
        yield Reasoning("", signature, ORIGIN)


def _media(block: Mapping[str, Any]) -> RawPart:
    source = block.get("source")
    fields = source if isinstance(source, Mapping) else {}
    name = text(block, "title") or None
    mime_type = text(fields, "media_type") or ("image/png" if block["type"] == "image" else "application/pdf")
    match fields.get("type"):
        case "base64":
            return Media(mime_type, base64_of(fields.get("data")), name=name)
        case "text":
            return Media(
                "text/plain", b64encode(text(fields, "data").encode("utf-8", "replace")).decode("ascii"), name=name
            )
        case "url" | "file":
            return Media(mime_type, uri=text(fields, "url", "file_id") or None, name=name)
    return Unread(f"{block['type']} from {fields.get('type')!r}")


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


# --------------------------------------------------------------------------------------------------
# Anthropic's rules for messages.
#
# Its error messages state them:
#
# - "first message must use the 'user' role";
# - "roles must alternate" (today only on Bedrock; elsewhere neighbours are joined);
# - "`tool_use` ids were found without `tool_result` blocks immediately after";
# - "unexpected `tool_use_id` found in `tool_result` blocks";
# - "each tool_use must have a single result";
# - "text content blocks must contain non-whitespace text";
# - "The final block in an assistant message cannot be `thinking`";
# - "content cannot be empty if `is_error` is true";
# - "final assistant content cannot end with trailing whitespace".

_USERS: Final = frozenset({"text", "image", "document", "tool_result", "search_result", "container_upload"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """The problems of `messages`, in their order."""
    before: str | None = None
    waiting: list[str] = []
    ids: set[str] = set()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield WireProblem(index, "role", f"the role is {role!r}, neither 'user' nor 'assistant'")
        elif role == before:
            yield WireProblem(index, "order", f"two messages of the {role} follow each other")
        elif before is None and role == "assistant":
            yield WireProblem(index, "order", "the first message is not the user's")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
        if not blocks:
            yield WireProblem(index, "empty", "it has no content")
        blocks = blocks or []
        for block in blocks:
            yield from _block_problems(index, block, str(role))
        calls = [text(block, "id") for block in blocks if block.get("type") == "tool_use"]
        yield from _pairing_problems(index, waiting, blocks)
        yield from _id_problems(index, calls, ids)
        if role == "assistant" and blocks and text(blocks[-1], "type") in _THINKING:
            yield WireProblem(index, "order", "thinking is the last part of the model's message")
        waiting, before = calls, str(role)
    yield from _pairing_problems(len(messages), waiting, [])
    if before == "assistant":
        yield from _ending_problems(len(messages) - 1, messages[-1].get("content"))


def _block_problems(index: int, block: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
    kind = block.get("type")
    if not isinstance(kind, str):
        yield WireProblem(index, "shape", "a block has no type")
    elif role == "user" and kind not in _USERS:
        yield WireProblem(index, "role", f"a block of type {kind!r} of the user")
    elif role == "assistant" and kind in _USERS - {"text", "container_upload"}:
        yield WireProblem(index, "role", f"a block of type {kind!r} of the assistant")
    match kind:
        case "text" if not text(block, "text").strip():
            yield WireProblem(index, "empty", "a text is blank")
        case "tool_use":
            if not RULES["anthropic"].tool_name.fullmatch(text(block, "name")):
                yield WireProblem(index, "name", f"{text(block, 'name')!r} is not a valid name of a tool")
            if not isinstance(block.get("input"), Mapping):
                yield WireProblem(index, "arguments", f"the input of {text(block, 'name')} is not an object")
        case "tool_result" if block.get("is_error") is True and not block.get("content"):
            yield WireProblem(index, "empty", "an error has no text")
        case "thinking" if not is_base64(text(block, "signature")):
            yield WireProblem(index, "signature", "thinking has no signature, or one that is not Anthropic's")
        case "redacted_thinking" if not text(block, "data"):
            yield WireProblem(index, "signature", "redacted thinking has no data")


def _id_problems(index: int, calls: Sequence[str], ids: set[str]) -> Iterator[WireProblem]:
    for call_id in calls:
        if not RULES["anthropic"].call_id.fullmatch(call_id):
            yield WireProblem(index, "id", f"{call_id!r} is not a valid id")
        if call_id in ids:
            yield WireProblem(index, "id", f"a call before it has the id {call_id!r}")
        ids.add(call_id)


def _pairing_problems(index: int, waiting: Sequence[str], blocks: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """Every call of the message before is answered once, at the head of this one."""
    kinds = [block.get("type") for block in blocks]
    answers = [text(block, "tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    if Counter(waiting) != Counter(answers):
        wanted, given = ", ".join(waiting) or "none", ", ".join(answers) or "none"
        yield WireProblem(index, "pairing", f"the calls before it are {wanted}; it answers {given}")
    if "tool_result" in kinds[len(answers) :]:
        yield WireProblem(index, "order", "results do not come first")


def _ending_problems(index: int, content: object) -> Iterator[WireProblem]:
    blocks = objects(content)
    last = content if isinstance(content, str) else text(blocks[-1], "text") if blocks else ""
    if last != last.rstrip():
        yield WireProblem(index, "empty", "the model's last message ends with a blank")
