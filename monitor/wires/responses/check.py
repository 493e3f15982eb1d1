"""The rules of the responses API for its input, if the service stores nothing.

The error messages state them:

- "No tool output found for function call";
- "No tool call found for function call output with call_id";
- "Item of type 'reasoning' was provided without its required following item";
- "Duplicate item found with id".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.wires.fields import is_object, objects, text
from monitor.wires.forms import RULES
from monitor.wires.problem import WireProblem
from monitor.wires.responses.signs import CALL_OF

_CALLS: Final = frozenset(CALL_OF.values())
_PARTS: Final[Mapping[str, frozenset[str]]] = {
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
            yield from _message(index, item)
        elif kind in _CALLS:
            yield from _call(index, item, kind)
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
            yield from _reasoning(index, item, items[index + 1] if index + 1 < len(items) else None)
    for (_, call_id), index in waiting.items():
        yield WireProblem(index, "pairing", f"nothing answers {call_id!r}")


def _message(index: int, item: Mapping[str, Any]) -> Iterator[WireProblem]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _PARTS:
        yield WireProblem(index, "role", f"the role is {role!r}")
    elif not content:
        yield WireProblem(index, "empty", f"the content of the {role} is empty")
    elif not isinstance(content, str):
        parts = objects(content)
        if parts is None:
            yield WireProblem(
                index, "shape", f"the content is {type(content).__name__}, neither a text nor a list of parts"
            )
        for part in parts or ():
            if text(part, "type") not in _PARTS[role]:
                yield WireProblem(index, "shape", f"a part of type {part.get('type')!r} of the {role}")


def _call(index: int, item: Mapping[str, Any], kind: str) -> Iterator[WireProblem]:
    if not RULES["openai-responses"].call_id.fullmatch(text(item, "call_id")):
        yield WireProblem(index, "id", f"{item.get('call_id')!r} is not an id of 1 to 64 characters")
    if kind in ("function_call", "custom_tool_call") and not RULES["openai-responses"].tool_name.fullmatch(
        text(item, "name")
    ):
        yield WireProblem(index, "name", f"{text(item, 'name')!r} is not a valid name of a function")
    if kind == "function_call" and not is_object(item.get("arguments")):
        yield WireProblem(index, "arguments", f"the arguments of {text(item, 'name')} are not a JSON object")


def _reasoning(index: int, item: Mapping[str, Any], following: Mapping[str, Any] | None) -> Iterator[WireProblem]:
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
