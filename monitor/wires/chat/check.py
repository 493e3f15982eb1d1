"""The rules of chat completions for messages.

The error messages state them:

- "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'";
- "An assistant message with 'tool_calls' must be followed by tool messages responding to each
  'tool_call_id'";
- "string too long. Expected a string with maximum length 40".

Compatible servers parse the arguments, and require a JSON object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.wires.fields import is_object, objects, text
from monitor.wires.forms import RULES
from monitor.wires.problem import WireProblem

_PARTS: Final[Mapping[str, frozenset[str]]] = {
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
        if not isinstance(role, str) or role not in _PARTS:
            yield WireProblem(index, "role", f"the role is {role!r}")
            continue
        yield from _content(index, message, role)
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
            yield from _calls(index, message["tool_calls"])
    yield from _unanswered(asked, waiting)


def _content(index: int, message: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
    content = message.get("content")
    said_otherwise = role == "assistant" and any(
        message.get(name) for name in ("tool_calls", "refusal", "audio", "function_call")
    )
    if content in (None, "") or content == []:
        if not (said_otherwise or (role == "tool" and content == "")):
            yield WireProblem(index, "empty", f"the content of the {role} is empty")
        return
    if isinstance(content, str):
        return
    parts = objects(content)
    if parts is None:
        yield WireProblem(
            index, "shape", f"the content is {type(content).__name__}, neither a text nor a list of parts"
        )
    for part in parts or ():
        if text(part, "type") not in _PARTS[role]:
            yield WireProblem(index, "shape", f"a part of type {part.get('type')!r} of the {role}")


def _calls(index: int, given: object) -> Iterator[WireProblem]:
    calls = objects(given)
    if not calls:
        yield WireProblem(index, "shape", "tool_calls is not a list of calls, or is empty")
        return
    ids = [text(call, "id") for call in calls]
    if len(set(ids)) < len(ids):
        yield WireProblem(index, "id", "two calls share an id")
    for call in calls:
        if not RULES["openai-chat"].call_id.fullmatch(text(call, "id")):
            yield WireProblem(index, "id", f"{call.get('id')!r} is not an id of 1 to 40 characters")
        function = call.get("custom" if call.get("type") == "custom" else "function")
        if call.get("type") not in ("function", "custom") or not isinstance(function, Mapping):
            yield WireProblem(index, "shape", "a call has no function")
            continue
        if not RULES["openai-chat"].tool_name.fullmatch(text(function, "name")):
            yield WireProblem(index, "name", f"{text(function, 'name')!r} is not a valid name of a function")
        if call.get("type") == "function" and not is_object(function.get("arguments")):
            yield WireProblem(index, "arguments", f"the arguments of {text(function, 'name')} are not a JSON object")


def _unanswered(index: int, waiting: Counter[str]) -> Iterator[WireProblem]:
    for call_id in waiting.elements():
        yield WireProblem(index, "pairing", f"no tool message right behind it answers {call_id!r}")
