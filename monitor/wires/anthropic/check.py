"""Anthropic's rules for messages.

Its error messages state them:

- "first message must use the 'user' role";
- "roles must alternate" (today only on Bedrock; elsewhere neighbours are joined);
- "`tool_use` ids were found without `tool_result` blocks immediately after";
- "unexpected `tool_use_id` found in `tool_result` blocks";
- "each tool_use must have a single result";
- "text content blocks must contain non-whitespace text";
- "The final block in an assistant message cannot be `thinking`";
- "content cannot be empty if `is_error` is true";
- "final assistant content cannot end with trailing whitespace".
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.wires.fields import objects, text
from monitor.wires.forms import RULES
from monitor.wires.problem import WireProblem

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
            yield from _block(index, block, str(role))
        calls = [text(block, "id") for block in blocks if block.get("type") == "tool_use"]
        yield from _pairs(index, waiting, blocks)
        yield from _ids(index, calls, ids)
        if role == "assistant" and blocks and text(blocks[-1], "type") in _THINKING:
            yield WireProblem(index, "order", "thinking is the last part of the model's message")
        waiting, before = calls, str(role)
    yield from _pairs(len(messages), waiting, [])
    if before == "assistant":
        yield from _ending(len(messages) - 1, messages[-1].get("content"))


def _block(index: int, block: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
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
        case "thinking" if not _is_base64(text(block, "signature")):
            yield WireProblem(index, "signature", "thinking has no signature, or one that is not Anthropic's")
        case "redacted_thinking" if not text(block, "data"):
            yield WireProblem(index, "signature", "redacted thinking has no data")


def _is_base64(signature: str) -> bool:
    try:
        return bool(b64decode(signature, validate=True))
    except ValueError:
        return False


def _ids(index: int, calls: Sequence[str], ids: set[str]) -> Iterator[WireProblem]:
    for call_id in calls:
        if not RULES["anthropic"].call_id.fullmatch(call_id):
            yield WireProblem(index, "id", f"{call_id!r} is not a valid id")
        if call_id in ids:
            yield WireProblem(index, "id", f"a call before it has the id {call_id!r}")
        ids.add(call_id)


def _pairs(index: int, waiting: Sequence[str], blocks: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """Every call of the message before is answered once, at the head of this one."""
    kinds = [block.get("type") for block in blocks]
    answers = [text(block, "tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    if Counter(waiting) != Counter(answers):
        wanted, given = ", ".join(waiting) or "none", ", ".join(answers) or "none"
        yield WireProblem(index, "pairing", f"the calls before it are {wanted}; it answers {given}")
    if "tool_result" in kinds[len(answers) :]:
        yield WireProblem(index, "order", "results do not come first")


def _ending(index: int, content: object) -> Iterator[WireProblem]:
    blocks = objects(content)
    last = content if isinstance(content, str) else text(blocks[-1], "text") if blocks else ""
    if last != last.rstrip():
        yield WireProblem(index, "empty", "the model's last message ends with a blank")
