"""The steps of a script for `LocalGemini`: the events of the wire format (camelCase JSON), and
recordings of real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from monitor.errors import AdapterError
from monitor.testing.answer_steps import *  # noqa: F403 - the steps of every server
from monitor.testing.answer_steps import Event, Reply, json_lines, pieces, to_json, turn_of_message

# --- what a script sends


def chunk(
    parts: Sequence[Event] | None,
    *,
    usage: Event | None = None,
    finish_reason: str | None = None,
    finish_message: str | None = None,
    response_id: str | None = None,
    continuation_token: str | None = None,
    **top_level: Any,
) -> dict[str, Any]:
    """One event with one candidate. `parts=None` omits its content, as the service does for a
    malformed call.

    `continuation_token` (base64) is a checkpoint from which the SDK may resume by itself.
    """
    candidate: dict[str, Any] = {"index": 0}
    if parts is not None:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    optional = {"finishReason": finish_reason, "finishMessage": finish_message, "continuationToken": continuation_token}
    candidate.update({key: value for key, value in optional.items() if value is not None})
    event: dict[str, Any] = {"candidates": [candidate], "modelVersion": "local-gemini"}
    if response_id is not None:
        event["responseId"] = response_id
    if usage is not None:
        event["usageMetadata"] = usage
    return event | top_level


def usage(prompt: int, *, output: int = 0, thoughts: int = 0, cached: int = 0, tool_use: int = 0) -> dict[str, Any]:
    """A `usageMetadata` object: tokens of the request so far. Zeros are omitted, as by the API."""
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": output,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": cached,
        "toolUsePromptTokenCount": tool_use,
        "totalTokenCount": prompt + output + thoughts + tool_use,
    }
    return {key: count for key, count in counts.items() if count}


def text(words: str, **options: Any) -> dict[str, Any]:
    """A piece of the visible answer. `options`: those of `chunk`."""
    return chunk([{"text": words}], **options)


def thought(words: str, *, signature: str | None = None, **options: Any) -> dict[str, Any]:
    """A piece of the thinking. `signature`: base64."""
    return chunk([{"text": words, "thought": True} | _signature(signature)], **options)


def call(
    name: str, arguments: Event | None = None, *, id: str | None = None, signature: str | None = None, **options: Any
) -> dict[str, Any]:
    """A complete function call."""
    function = {"name": name, "args": dict(arguments or {})} | ({} if id is None else {"id": id})
    return chunk([{"functionCall": function} | _signature(signature)], **options)


def partial_call(
    name: str | None = None,
    pieces: Sequence[Event] | None = None,
    *,
    more: bool | None = None,
    id: str | None = None,
    signature: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A piece of a function call whose arguments are streamed (the API does this on Vertex only).

    The first piece has `name`. `pieces` come from `piece`. `more=True`: the call goes on.
    """
    optional = {"name": name, "id": id, "partialArgs": None if pieces is None else list(pieces), "willContinue": more}
    function = {key: value for key, value in optional.items() if value is not None}
    return chunk([{"functionCall": function} | _signature(signature)], **options)


def piece(path: str, value: str | float | bool | None, *, more: bool | None = None) -> dict[str, Any]:  # noqa: FBT001 - a JSON value
    """One `partialArgs` entry: `value` at the JSON path `path`. `more=True`: the string goes on."""
    match value:
        case None:
            kind: dict[str, Any] = {"nullValue": "NULL_VALUE"}
        case bool():
            kind = {"boolValue": value}
        case str():
            kind = {"stringValue": value}
        case _:
            kind = {"numberValue": value}
    return {"jsonPath": path} | kind | ({} if more is None else {"willContinue": more})


def usage_only(prompt: int, **counts: int) -> dict[str, Any]:
    """An event that has no candidate, only usage. Arguments: those of `usage`."""
    return {"usageMetadata": usage(prompt, **counts), "modelVersion": "local-gemini"}


def finish(
    reason: str = "STOP", *, message: str | None = None, parts: Sequence[Event] | None = ({"text": ""},), **options: Any
) -> dict[str, Any]:
    """The event that closes a turn. With `usage` if none is given: 7 tokens in, 3 out."""
    defaults: dict[str, Any] = {"usage": usage(7, output=3)}
    return chunk(parts, finish_reason=reason, finish_message=message, **(defaults | options))


def blocked(reason: str = "PROHIBITED_CONTENT") -> dict[str, Any]:
    """The one event that answers a blocked prompt."""
    return {"promptFeedback": {"blockReason": reason}, "usageMetadata": usage(7), "modelVersion": "local-gemini"}


def midstream_error(
    code: int = 503, message: str = "The model is overloaded.", status: str = "UNAVAILABLE"
) -> dict[str, Any]:
    """An error event inside a stream that began with 200."""
    return {"error": {"code": code, "message": message, "status": status}}


def _signature(signature: str | None) -> dict[str, str]:
    return {} if signature is None else {"thoughtSignature": signature}


# --- error answers

_RPC_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_reply(
    code: int,
    message: str = "Something went wrong.",
    *,
    status: str | None = None,
    details: Sequence[Event] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in the API's JSON form. `status` is the RPC name; by default the one that goes with
    `code`.
    """
    error: dict[str, Any] = {"code": code, "message": message, "status": status or _RPC_STATUS.get(code, "UNKNOWN")}
    if details:
        error["details"] = list(details)
    return Reply(code, to_json({"error": error}), headers or {})


def rate_limited(retry_after_s: float | None = 7) -> Reply:
    """429 that asks to wait, with a RetryInfo detail as in the API; `None` omits the detail."""
    details = (
        []
        if retry_after_s is None
        else [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s:g}s"}]
    )
    return error_reply(429, "You exceeded your current quota.", details=details)


def overflow(tokens: int = 1_200_000, limit: int = 1_048_576) -> Reply:
    """400: the prompt does not fit the window."""
    return error_reply(400, f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).")


# --- scripts from text and from recordings


def events_of(
    answer: str,
    tool_calls: Iterable[tuple[str, Event]] = (),
    *,
    cut: int = 20,
    reasoning: str = "",
    finish_reason: str | None = "STOP",
    tokens: Event | None = None,
) -> list[dict[str, Any]]:
    """One model turn as wire events: `reasoning` and `answer` in pieces of `cut` code points, then
    each (name, arguments) call.

    `finish_reason=None` omits the closing event, so the stream is truncated. `tokens` is its
    `usageMetadata`.
    """
    events = [*map(thought, pieces(reasoning, cut)), *map(text, pieces(answer, cut))]
    events += [call(name, arguments) for name, arguments in tool_calls]
    if finish_reason is not None:
        events.append(finish(finish_reason, usage=tokens or usage(7, output=3)))
    return events


def events_of_message(message: Event, *, cut: int = 20) -> list[dict[str, Any]]:
    """An assistant message of the loop corpus (`text`, `tool_calls` of `name` and `args`) as wire
    events.

    Arguments other than a JSON object go under the key `input`, because the wire format has only
    objects.
    """
    return events_of(*turn_of_message(message), cut=cut)


@dataclass(slots=True, frozen=True)
class GeminiRecording:
    """One recorded model call: the API method and the events that it answered."""

    method: str
    events: tuple[dict[str, Any], ...]


def load_recording(path: str | PathLike[str]) -> list[GeminiRecording]:
    """The calls of a recorded file, in order: `*.jsonl` is one streamed call, an event a line;
    `*.responses` has a call a line.

    `GeminiRecording.events` is a script. Raises `AdapterError` for a line that is neither.
    """
    file = Path(path)
    lines = json_lines(file)
    if file.suffix != ".responses":
        return [GeminiRecording("generateContentStream", tuple(lines))]
    return [_recorded_call(file, line) for line in lines]


def _recorded_call(file: Path, line: Event) -> GeminiRecording:
    method, response = line.get("method"), line.get("response")
    events: list[Any] = response if isinstance(response, list) else [response]
    if not isinstance(method, str) or not all(isinstance(event, dict) for event in events):
        raise AdapterError(
            f"{file}: a recorded call needs `method` and `response`; this one has {', '.join(line) or 'nothing'}"
        )
    return GeminiRecording(method, tuple(events))
