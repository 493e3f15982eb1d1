"""A stream as the one answer that the service would have given without streaming.

An answer in one piece comes when all of it is written: a loop in it costs all of it. So the proxy
asks for a stream, and gives the client the answer in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from monitor.proxy.formats.base import Span, parsed, rewritten, whole_at
from monitor.wires.fields import Form, object_at, objects_at

Value = dict[str, Any]


def as_stream(
    form: Form, path: bytes, query: bytes, body: bytes, known: Span | None = None
) -> tuple[bytes, bytes, bytes] | None:
    """The path, the query and the body of the same request, which asks for a stream. `None`: this
    service has no streams that are text. `known`: the records in the body that need not be read.
    """
    if form == "gemini":
        where, sign, called = path.rpartition(b":")
        streamed = called.lower() == b"generatecontent"
        fields = [field for field in query.split(b"&") if field and not field.startswith(b"alt=")]
        return (where + sign + b"streamGenerateContent", b"&".join([*fields, b"alt=sse"]), body) if streamed else None

    def asks_for_one(body: bytes) -> bytes:
        request = parsed(body)
        request["stream"] = True
        if form == "openai-chat":
            request["stream_options"] = {**object_at(request, "stream_options"), "include_usage": True}
        return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    return path.replace(b":rawPredict", b":streamRawPredict"), query, rewritten(body, known, asks_for_one)


def merged(form: Form, values: Sequence[Value]) -> Value:
    """The answer that the events of a stream make. An error of the service is the answer itself."""
    failure = next((value for value in values if value.get("error")), None)
    return failure if failure is not None else _MERGE[form](values)


def _chat(values: Sequence[Value]) -> Value:
    whole: Value = {}
    choices: dict[int, Value] = {}
    for value in values:
        whole |= {name: given for name, given in value.items() if name != "choices" and given is not None}
        for choice in objects_at(value, "choices"):
            at = whole_at(choice, "index")
            known = choices.setdefault(at, {"index": at, "message": {"role": "assistant", "content": None}})
            _add(known["message"], object_at(choice, "delta"))
            if logprobs := object_at(choice, "logprobs"):
                _add(known.setdefault("logprobs", {}), logprobs)
            known |= {name: given for name, given in choice.items() if name not in _OF_DELTAS and given is not None}
    for choice in choices.values():
        choice.setdefault("finish_reason", None)
        choice.setdefault("logprobs", None)
        choice["message"].setdefault("refusal", None)
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
    return whole | {"object": "chat.completion", "choices": [choices[at] for at in sorted(choices)]}


_OF_DELTAS: Final = frozenset({"index", "delta", "logprobs"})
_NAMES: Final = frozenset({"role", "id", "type"})
"""Texts that are whole in each piece."""


def _add(known: Value, delta: Mapping[str, Any]) -> None:
    """Join a piece to what is known, as the SDKs do."""
    for name, given in delta.items():
        before = known.get(name)
        if given is None:
            continue
        if isinstance(before, str) and isinstance(given, str) and name not in _NAMES:
            known[name] = before + given
        elif isinstance(before, dict) and isinstance(given, dict):
            _add(before, given)
        elif isinstance(given, list):
            known[name] = _joined(before if isinstance(before, list) else [], given)
        else:
            known[name] = given


def _joined(before: list[Any], given: list[Any]) -> list[Any]:
    """A list whose members say their place, or grow at its end."""
    for one in given:
        if not isinstance(one, dict) or type(one.get("index")) is not int:
            before.append(one)
            continue
        same = next((member for member in before if member.get("index") == one["index"]), None)
        if same is None:
            before.append(dict(one))
        else:
            _add(same, one)
    return before


def _responses(values: Sequence[Value]) -> Value:
    whole = next((dict(value["response"]) for value in reversed(values) if object_at(value, "response")), {})
    if not whole.get("output"):  # some services repeat nothing at the end
        done = {whole_at(one, "output_index"): one["item"] for one in values if object_at(one, "item")}
        whole["output"] = [done[at] for at in sorted(done)]
    return whole


def _messages(values: Sequence[Value]) -> Value:
    """A further message of the stream goes on with the first one, as in the SDKs."""
    whole: Value = {}
    blocks: dict[tuple[int, int], Value] = {}
    inputs: dict[tuple[int, int], str] = {}
    number = 0
    for value in values:
        at, delta = (number, whole_at(value, "index")), object_at(value, "delta")
        match value.get("type"):
            case "message_start":
                number += 1
                message = object_at(value, "message")
                whole = {**message, **whole}
                blocks |= {(number, -len(blocks)): dict(block) for block in objects_at(message, "content")}
            case "content_block_start":
                blocks[at] = dict(object_at(value, "content_block"))
            case "content_block_delta" if at in blocks:
                if delta.get("type") == "input_json_delta":
                    inputs[at] = inputs.get(at, "") + str(delta.get("partial_json") or "")
                elif delta.get("type") == "citations_delta":
                    blocks[at]["citations"] = [*(blocks[at].get("citations") or ()), delta.get("citation")]
                else:
                    _add(blocks[at], {name: given for name, given in delta.items() if name != "type"})
            case "message_delta":
                whole |= delta
                whole["usage"] = {**object_at(whole, "usage"), **object_at(value, "usage")}
            case _:
                continue
    for place, text in inputs.items():
        blocks[place]["input"] = _arguments(text)
    return whole | {"content": [*blocks.values()]}


def _arguments(text: str) -> Any:
    try:
        return parsed(text or "{}")
    except ValueError:
        return {}


def _contents(values: Sequence[Value]) -> Value:
    whole: Value = {}
    candidates: dict[int, Value] = {}
    for value in values:
        whole |= {name: given for name, given in value.items() if name != "candidates"}
        for candidate in objects_at(value, "candidates"):
            at = whole_at(candidate, "index")
            known = candidates.setdefault(at, {})
            content = object_at(candidate, "content")
            known |= {name: given for name, given in candidate.items() if name != "content"}
            if content:
                have = known.setdefault("content", {"parts": [], "role": "model"})
                have |= {name: given for name, given in content.items() if name != "parts"}
                for part in objects_at(content, "parts"):
                    _add_part(have["parts"], part)
    return whole | ({"candidates": [candidates[at] for at in sorted(candidates)]} if candidates else {})


def _add_part(parts: list[Value], part: Mapping[str, Any]) -> None:
    """Texts that follow each other are one part, thoughts apart from words."""
    last = parts[-1] if parts else {}
    if part.keys() - _TEXT or last.keys() - _TEXT or "text" not in last or last.get("thought") != part.get("thought"):
        parts.append(dict(part))
    else:
        last["text"] += part.get("text") or ""


_TEXT: Final = frozenset({"text", "thought"})

_MERGE: Final[Mapping[Form, Callable[[Sequence[Value]], Value]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
    "gemini": _contents,
}
