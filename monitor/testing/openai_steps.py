"""The steps of a script for `LocalOpenAI`: the events of the two wire formats, and recordings of
real ones.

`text`, `call`, `finish` and so on are for chat completions; the names that begin with
`response_` are for the responses API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from monitor.testing.answer_steps import *  # noqa: F403 - the steps of every server
from monitor.testing.answer_steps import Event, Reply, json_lines, pieces, retry_after, to_json

# --- chat completions


def chunk(
    delta: Event | None = None,
    *,
    finish_reason: str | None = None,
    usage: Event | None = None,
    index: int = 0,
    **top_level: Any,
) -> dict[str, Any]:
    """One event with one choice. `top_level` adds or replaces fields of the event: `choices=[]`."""
    event: dict[str, Any] = {
        "id": "chatcmpl-local",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "local-openai",
        "choices": [{"index": index, "delta": dict(delta or {}), "finish_reason": finish_reason}],
        "usage": usage,
    }
    return event | top_level


def text(words: str, **options: Any) -> dict[str, Any]:
    """A piece of the visible answer. `options`: those of `chunk`."""
    return chunk({"content": words}, **options)


def thought(words: str, *, field: str = "reasoning_content", **options: Any) -> dict[str, Any]:
    """A piece of the thinking, as compatible servers send it; OpenAI's own chat completions send
    none.
    """
    return chunk({field: words}, **options)


def refusal(words: str, **options: Any) -> dict[str, Any]:
    """A piece of a refusal."""
    return chunk({"refusal": words}, **options)


def call(
    name: str,
    arguments: Event | str | None = None,
    *,
    id: str | None = "call_local",
    at: int | None = 0,
    **options: Any,
) -> dict[str, Any]:
    """A whole function call in one event. `at`: its index among the calls; `None` omits it, as
    `id=None` omits the id.
    """
    return call_piece(_written(arguments), name=name, id=id, at=at, **options)


def _written(arguments: Event | str | None) -> str:
    return arguments if isinstance(arguments, str) else to_json(dict(arguments or {})).decode()


def call_piece(
    piece: str, *, name: str | None = None, id: str | None = None, at: int | None = 0, **options: Any
) -> dict[str, Any]:
    """A piece of a call's arguments. The first one has `name` and `id`."""
    function = {"arguments": piece} | ({} if name is None else {"name": name})
    optional = {"index": at, "id": id, "type": None if name is None else "function"}
    fragment = {key: value for key, value in optional.items() if value is not None} | {"function": function}
    return chunk({"tool_calls": [fragment]}, **options)


def usage(prompt: int, *, output: int = 0, reasoning: int = 0, cached: int = 0) -> dict[str, Any]:
    """A `usage` object. `output` includes `reasoning`, and `prompt` includes `cached`."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def usage_only(prompt: int, **counts: int) -> dict[str, Any]:
    """The event without a choice that ends a stream with `include_usage`. Arguments: those of
    `usage`.
    """
    return chunk(choices=[], usage=usage(prompt, **counts))


def finish(reason: str = "stop", **options: Any) -> dict[str, Any]:
    """The event that closes a turn, with its usage, as most compatible servers do: 7 tokens in, 3
    out, if none is given.
    """
    defaults: dict[str, Any] = {"usage": usage(7, output=3)}
    return chunk(finish_reason=reason, **(defaults | options))


def midstream_error(
    message: str = "The server had an error while processing your request.",
    *,
    code: Any = None,
    kind: str | None = "server_error",
) -> dict[str, Any]:
    """An error event inside a stream that began with 200; the SDK raises it, on both APIs. `kind`
    is its `type`.
    """
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def events_of(
    answer: str,
    tool_calls: Iterable[tuple[str, Event]] = (),
    *,
    cut: int = 20,
    reasoning: str = "",
    finish_reason: str | None = "stop",
    tokens: Event | None = None,
) -> list[dict[str, Any]]:
    """One model turn: `reasoning` and `answer` in pieces of `cut` code points, then each (name,
    arguments) call.

    `finish_reason=None` omits the closing event, so the stream is truncated. `tokens` is its
    `usage`.
    """
    events = [*map(thought, pieces(reasoning, cut)), *map(text, pieces(answer, cut))]
    events += [call(name, arguments, id=f"call_local_{at}", at=at) for at, (name, arguments) in enumerate(tool_calls)]
    if finish_reason is not None:
        events.append(finish(finish_reason, usage=tokens or usage(7, output=3)))
    return events


# --- responses


def response(status: str = "in_progress", **fields: Any) -> dict[str, Any]:
    """A response object."""
    known = {
        "id": "resp_local",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": "local-openai",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }
    return known | fields


def response_created() -> dict[str, Any]:
    """The first event of a stream."""
    return {"type": "response.created", "response": response()}


def _item_event(kind: str, at: int, item: Event) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": at, "item": item}


def _message_item(at: int, phase: str | None, status: str, content: Sequence[Event]) -> dict[str, Any]:
    item = {"id": f"msg_{at}", "type": "message", "role": "assistant", "status": status, "content": content}
    return item | ({} if phase is None else {"phase": phase})


def _message_event(kind: str, at: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "item_id": f"msg_{at}", "output_index": at, "content_index": 0, **fields}


def _text_part(words: str) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": []}


def response_message(*, at: int = 0, phase: str | None = None) -> list[dict[str, Any]]:
    """The events that begin a message. `at`: its place in the output."""
    return [
        _item_event("added", at, _message_item(at, phase, "in_progress", [])),
        _message_event("content_part.added", at, part=_text_part("")),
    ]


def response_message_done(words: str, *, at: int = 0, phase: str | None = None) -> list[dict[str, Any]]:
    """The events that end a message, with all its words."""
    part = _text_part(words)
    return [
        _message_event("output_text.done", at, text=words, logprobs=[]),
        _message_event("content_part.done", at, part=part),
        _item_event("done", at, _message_item(at, phase, "completed", [part])),
    ]


def response_text(words: str, *, at: int = 0) -> dict[str, Any]:
    """A piece of the visible answer."""
    return _message_event("output_text.delta", at, delta=words, logprobs=[])


def response_refusal(words: str, *, at: int = 0) -> dict[str, Any]:
    """A piece of a refusal."""
    return _message_event("refusal.delta", at, delta=words)


def response_thought(words: str, *, at: int = 0) -> dict[str, Any]:
    """A piece of a summary of the thinking."""
    place = {"item_id": f"rs_{at}", "output_index": at, "summary_index": 0}
    return {"type": "response.reasoning_summary_text.delta", **place, "delta": words}


def response_reasoning(words: str = "", *, encrypted: str | None = None, at: int = 0) -> list[dict[str, Any]]:
    """A whole reasoning item, with its summary in one piece."""
    item = {"id": f"rs_{at}", "type": "reasoning", "summary": []}
    summary = [{"type": "summary_text", "text": words}] if words else []
    signed = {} if encrypted is None else {"encrypted_content": encrypted}
    return [
        _item_event("added", at, item),
        *([response_thought(words, at=at)] if words else []),
        _item_event("done", at, item | {"summary": summary} | signed),
    ]


def response_call(
    name: str,
    arguments: Event | str | None = None,
    *,
    id: str = "call_local",
    at: int = 0,
    cut: int | None = None,
    whole: bool = True,
) -> list[dict[str, Any]]:
    """A function call. Its arguments come in pieces of `cut` code points; `whole=False` ends in the
    middle of them.
    """
    written = _written(arguments)
    place = {"output_index": at, "item_id": f"fc_{at}"}
    item = {"id": f"fc_{at}", "type": "function_call", "call_id": id, "name": name}
    event = "response.function_call_arguments"
    ends = [
        {"type": f"{event}.done", **place, "arguments": written, "name": name},
        _item_event("done", at, item | {"arguments": written, "status": "completed"}),
    ]
    return [
        _item_event("added", at, item | {"arguments": "", "status": "in_progress"}),
        *({"type": f"{event}.delta", **place, "delta": piece} for piece in pieces(written, cut or len(written) or 1)),
        *(ends if whole else []),
    ]


def response_usage(prompt: int, *, output: int = 0, reasoning: int = 0, cached: int = 0) -> dict[str, Any]:
    """The `usage` of a response. `output` includes `reasoning`, and `prompt` includes `cached`."""
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }


def response_finish(
    status: str = "completed", *, reason: str | None = None, usage: Event | None = None
) -> dict[str, Any]:
    """The event that closes a turn: `completed`, or `incomplete` with a `reason`. 7 tokens in, 3
    out, if no usage is given.
    """
    details = None if reason is None else {"reason": reason}
    closed = response(status, incomplete_details=details, usage=usage or response_usage(7, output=3))
    return {"type": f"response.{status}", "response": closed}


def response_failed(code: str = "server_error", message: str = "The model failed to answer.") -> dict[str, Any]:
    """The event that says that the response failed. The SDK does not raise it."""
    return {"type": "response.failed", "response": response("failed", error={"code": code, "message": message})}


def response_error(code: str | None = "server_error", message: str = "The server had an error.") -> dict[str, Any]:
    """An `error` event. The SDK does not raise it."""
    return {"type": "error", "code": code, "message": message, "param": None}


def response_events_of(
    answer: str,
    tool_calls: Iterable[tuple[str, Event]] = (),
    *,
    cut: int = 20,
    reasoning: str = "",
    finish_status: str | None = "completed",
    tokens: Event | None = None,
) -> list[dict[str, Any]]:
    """`events_of` for the responses API. `finish_status=None` omits the closing event."""
    events = [response_created()]
    at = 0
    if reasoning:
        events += response_reasoning(reasoning, encrypted="local", at=at)
        at += 1
    if answer:
        events += [*response_message(at=at), *(response_text(piece, at=at) for piece in pieces(answer, cut))]
        events += response_message_done(answer, at=at)
        at += 1
    for number, (name, arguments) in enumerate(tool_calls):
        events += response_call(name, arguments, id=f"call_local_{number}", at=at + number, cut=cut)
    if finish_status is not None:
        events.append(response_finish(finish_status, usage=tokens))
    return events


# --- error answers


def error_reply(
    status: int,
    message: str = "Something went wrong.",
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in the form of the API; `kind` is its `type`. The SDK retries 408, 409, 429 and 5xx,
    twice by default.
    """
    return Reply(
        status, to_json({"error": {"message": message, "type": kind, "param": None, "code": code}}), headers or {}
    )


def rate_limited(retry_after_s: float | None = 7) -> Reply:
    """429 that asks to wait, by the header; `None` omits the header."""
    message, headers = "Rate limit reached for requests.", retry_after(retry_after_s)
    return error_reply(429, message, code="rate_limit_exceeded", kind="requests", headers=headers)


def overflow(tokens: int = 9001, limit: int = 8192) -> Reply:
    """400: the prompt does not fit the window."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
    )
    return error_reply(400, message, code="context_length_exceeded")


# --- recordings


def load_recording(path: str | PathLike[str]) -> list[list[dict[str, Any]]]:
    """The streamed calls of a recorded JSONL file, an event a line; each is a script. A file of
    responses may hold several.

    Raises `AdapterError` for a line that is not a JSON object.
    """
    calls: list[list[dict[str, Any]]] = []
    for event in json_lines(Path(path)):
        if not calls or event.get("type") == "response.created":
            calls.append([])
        calls[-1].append(event)
    return calls


# --- a stream as one answer


def merged_chat(events: Sequence[Event]) -> dict[str, Any]:
    """The chunks of a stream as one `chat.completion`."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    answer: dict[str, Any] = {}
    finish_reason = None
    for event in events:
        answer |= {key: value for key, value in event.items() if key != "choices" and value is not None}
        for choice in (event.get("choices") or [])[:1]:
            finish_reason = choice.get("finish_reason") or finish_reason
            delta = choice.get("delta") or {}
            for name in ("content", "refusal", "reasoning_content"):
                if delta.get(name):
                    message[name] = (message.get(name) or "") + delta[name]
            for fragment in delta.get("tool_calls") or ():
                _merge_call(calls, fragment)
    if calls:
        message["tool_calls"] = list(calls.values())
    return answer | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }


def _merge_call(calls: dict[int, dict[str, Any]], fragment: Event) -> None:
    known = calls.setdefault(
        fragment.get("index", len(calls)), {"type": "function", "function": {"name": "", "arguments": ""}}
    )
    if fragment.get("id"):
        known["id"] = fragment["id"]
    for name, piece in (fragment.get("function") or {}).items():
        known["function"][name] += piece


def merged_response(events: Sequence[Event]) -> dict[str, Any]:
    """The events of a stream as one response, with the items that were done."""
    answer = next((dict(event["response"]) for event in reversed(events) if "response" in event), response("completed"))
    if not answer.get("output"):
        answer["output"] = _items(events)
    return answer


def _items(events: Sequence[Event]) -> list[Any]:
    done = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    words = "".join(event["delta"] for event in events if event.get("type") == "response.output_text.delta")
    if words and not any(item.get("type") == "message" for item in done):
        content = [{"type": "output_text", "text": words, "annotations": []}]
        done.append(
            {"id": "msg_local", "type": "message", "role": "assistant", "status": "completed", "content": content}
        )
    return json.loads(json.dumps(done))  # type: ignore[no-any-return]
