"""The steps of a script for `LocalAnthropic`: the events of the wire format, and recordings of real
ones.

An answer is `[start(), *say("Paris."), *finish()]`: a message, its blocks by `index`, and its end.
Single deltas (`text`, `thought`, `arguments`) are for streams that break off, or never end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, Final

from monitor.testing.answer_steps import *  # noqa: F403 - the steps of every server
from monitor.testing.answer_steps import Event, Reply, json_lines, pieces, retry_after, to_json, turn_of_message

# --- the message


def start(
    input_tokens: int = 7,
    *,
    id: str = "msg_local",
    content: Sequence[Event] = (),
    stop_reason: str | None = None,
    **usage: Any,
) -> dict[str, Any]:
    """The event that opens a message. `usage`: further fields of it, e.g.
    `cache_read_input_tokens`.
    """
    message: dict[str, Any] = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "local-anthropic",
        "content": list(content),
    }
    message |= {"stop_reason": stop_reason, "stop_sequence": None}
    return {
        "type": "message_start",
        "message": message | {"usage": {"input_tokens": input_tokens, "output_tokens": 1} | usage},
    }


def delta(
    stop_reason: str | None, *, output_tokens: int = 3, explanation: str | None = None, **usage: Any
) -> dict[str, Any]:
    """The event with the stop reason and the usage of the whole message. `explanation`: the text of
    a refusal.
    """
    said: dict[str, Any] = {"stop_reason": stop_reason, "stop_sequence": None}
    if explanation is not None:
        said["stop_details"] = {"type": "refusal", "category": None, "explanation": explanation}
    return {"type": "message_delta", "delta": said, "usage": {"output_tokens": output_tokens} | usage}


def stop() -> dict[str, Any]:
    """The last event of a message."""
    return {"type": "message_stop"}


def finish(stop_reason: str | None = "end_turn", **options: Any) -> list[dict[str, Any]]:
    """The two events that close a message. `options`: those of `delta`."""
    return [delta(stop_reason, **options), stop()]


def ping() -> dict[str, Any]:
    """The event that keeps a connection alive."""
    return {"type": "ping"}


def midstream_error(kind: str = "overloaded_error", message: str = "Overloaded") -> dict[str, Any]:
    """An error event inside a stream that began with 200."""
    return {"type": "error", "error": {"type": kind, "message": message}}


# --- its blocks


def block_start(block: Event, *, index: int = 0) -> dict[str, Any]:
    """The event that opens a block."""
    return {"type": "content_block_start", "index": index, "content_block": dict(block)}


def block_stop(*, index: int = 0) -> dict[str, Any]:
    """The event that closes a block."""
    return {"type": "content_block_stop", "index": index}


def block_delta(fields: Event, *, index: int = 0) -> dict[str, Any]:
    """An event with a piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": dict(fields)}


def text(words: str, *, index: int = 0) -> dict[str, Any]:
    """A piece of the visible answer."""
    return block_delta({"type": "text_delta", "text": words}, index=index)


def thought(words: str, *, index: int = 0) -> dict[str, Any]:
    """A piece of the thinking."""
    return block_delta({"type": "thinking_delta", "thinking": words}, index=index)


def signature(signature: str, *, index: int = 0) -> dict[str, Any]:
    """The signature, which closes a block of thinking."""
    return block_delta({"type": "signature_delta", "signature": signature}, index=index)


def arguments(piece: str, *, index: int = 0) -> dict[str, Any]:
    """A piece of the JSON text of a call's arguments."""
    return block_delta({"type": "input_json_delta", "partial_json": piece}, index=index)


def whole(block: Event, *deltas: Event, index: int = 0) -> list[dict[str, Any]]:
    """A block with its start, its deltas, and its stop. `deltas`: the `delta` of each event, as
    `text(...)` makes it.
    """
    return [block_start(block, index=index), *[dict(one) | {"index": index} for one in deltas], block_stop(index=index)]


def say(*words: str, index: int = 0) -> list[dict[str, Any]]:
    """A block of visible text."""
    return whole({"type": "text", "text": ""}, *map(text, words), index=index)


def think(*words: str, signed: str | None = "c2lnbmVk", index: int = 0) -> list[dict[str, Any]]:
    """A block of thinking, and its signature (base64)."""
    deltas = [*map(thought, words), *([] if signed is None else [signature(signed)])]
    return whole({"type": "thinking", "thinking": "", "signature": ""}, *deltas, index=index)


def redacted(data: str = "cmVkYWN0ZWQ=", *, index: int = 0) -> list[dict[str, Any]]:
    """A block of thinking that the service has encrypted."""
    return whole({"type": "redacted_thinking", "data": data}, index=index)


def call(
    name: str, given: Event | None = None, *, id: str = "toolu_0", index: int = 0, cut: int = 12
) -> list[dict[str, Any]]:
    """A complete tool call. The JSON text of its arguments comes in pieces of `cut` code points,
    and an empty one before them.
    """
    words = json.dumps(given, ensure_ascii=False) if given else ""
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return whole(block, *map(arguments, ["", *pieces(words, cut)]), index=index)


# --- error answers

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_reply(
    status: int,
    message: str = "Something went wrong.",
    *,
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in the API's JSON form. `kind`: its `type`; by default the one that goes with
    `status`.
    """
    error = {"type": kind or _TYPES.get(status, "api_error"), "message": message}
    return Reply(status, to_json({"type": "error", "error": error, "request_id": "req_local"}), headers or {})


def rate_limited(retry_after_s: float | None = 7) -> Reply:
    """429 that asks to wait, by the header; `None` omits the header."""
    message = "This request would exceed your organization's rate limit of 50,000 input tokens per minute."
    return error_reply(429, message, headers=retry_after(retry_after_s))


def overloaded() -> Reply:
    """529."""
    return error_reply(529, "Overloaded")


def overflow(tokens: int = 200_251, limit: int = 199_999) -> Reply:
    """400: the prompt does not fit the window."""
    return error_reply(400, f"prompt is too long: {tokens} tokens > {limit} maximum")


def too_large() -> Reply:
    """413: the request has too many bytes."""
    return error_reply(413, "Request exceeds the maximum size")


# --- scripts from text and from recordings


def events_of(
    answer: str,
    tool_calls: Iterable[tuple[str, Event]] = (),
    *,
    cut: int = 20,
    reasoning: str = "",
    finish_reason: str | None = "auto",
    tokens: tuple[int, int] = (7, 3),
) -> list[dict[str, Any]]:
    """One model turn as wire events: `reasoning` and `answer` in pieces of `cut` code points, then
    each (name, arguments) call.

    `finish_reason`: `"auto"` is `tool_use` with calls, else `end_turn`. `None` omits the closing
    events, so the stream is truncated. `tokens`: of input and of output.
    """
    calls, index = list(tool_calls), count()
    events = [start(tokens[0])]
    for words, block in ((reasoning, think), (answer, say)):
        if said := pieces(words, cut):
            events += block(*said, index=next(index))
    events += [
        event
        for number, (name, given) in enumerate(calls)
        for event in call(name, given, id=f"toolu_{number}", index=next(index), cut=cut)
    ]
    if finish_reason is None:
        return events
    word = finish_reason if finish_reason != "auto" else "tool_use" if calls else "end_turn"
    return [*events, *finish(word, output_tokens=tokens[1])]


def events_of_message(message: Event, *, cut: int = 20) -> list[dict[str, Any]]:
    """An assistant message of the loop corpus (`text`, `tool_calls` of `name` and `args`) as wire
    events.

    Arguments other than a JSON object go under the key `input`, because the wire format has only
    objects.
    """
    return events_of(*turn_of_message(message), cut=cut)


@dataclass(slots=True, frozen=True)
class AnthropicRecording:
    """One recorded message: the events of one stream."""

    events: tuple[dict[str, Any], ...]


def load_recording(path: str | PathLike[str]) -> list[AnthropicRecording]:
    """The messages of a recorded file, in order: one event a line; the file may hold several
    streams, one after the other.

    `AnthropicRecording.events` is a script. Raises `AdapterError` for a line that is not an event.
    """
    messages: list[list[dict[str, Any]]] = [[]]
    for event in json_lines(Path(path), "type"):
        if event["type"] == "message_start" and any(one["type"] == "message_stop" for one in messages[-1]):
            messages.append([])
        messages[-1].append(event)
    return [AnthropicRecording(tuple(events)) for events in messages if events]
