"""The OpenAI SDK, as the contract of the providers needs it: both of its APIs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import openai
from openai import AsyncOpenAI

from monitor import TerminateReason as Reason
from monitor.adapters.openai.model import OpenAIModel, OpenAIResponsesModel, to_chat, to_input, to_messages, to_response
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.models import ErrorKind
from monitor.testing import LocalOpenAI, openai_steps
from monitor.testing.openai_steps import (
    Cut,
    Headers,
    Raw,
    Reply,
    Reset,
    call,
    call_piece,
    error_reply,
    events_of,
    finish,
    html_error,
    midstream_error,
    overflow,
    rate_limited,
    refusal,
    response_error,
    response_events_of,
    response_failed,
    response_finish,
    response_refusal,
    response_text,
    text,
    to_json,
    usage_only,
)
from tests.adapters.openai.sdk import sdk, stream
from tests.adapters.provider import Failure, Provider

TPM = (
    "Request too large for model in organization on tokens per minute (TPM): Limit {limit}, Requested {requested},"
    " please reduce."
)


def _azure(code: str) -> Reply:
    inner = {"code": code, "content_filter_result": {}}
    return Reply(
        400,
        to_json({"error": {"message": "The response was filtered.", "code": "content_filter", "innererror": inner}}),
    )


STATUS: list[Failure] = [
    ([error_reply(400)], ErrorKind.REQUEST, 400, "invalid_request_error"),
    ([error_reply(400, "Invalid schema.", code="invalid_function_parameters")], ErrorKind.REQUEST),
    ([overflow()], ErrorKind.OVERFLOW, 400, "context_length_exceeded"),
    ([error_reply(400, "too long", code="context_length_exceeded")], ErrorKind.OVERFLOW),
    (
        [error_reply(400, "This model's maximum prompt length is 131072 but the request contains 200000 tokens.")],
        ErrorKind.OVERFLOW,
    ),
    ([error_reply(400, "the request exceeds the available context size. try increasing it")], ErrorKind.OVERFLOW),
    ([error_reply(401, code="invalid_api_key")], ErrorKind.AUTH),
    ([error_reply(402, "Insufficient Balance")], ErrorKind.AUTH),
    ([error_reply(403)], ErrorKind.AUTH),
    ([error_reply(403, "Your input was flagged by a moderation.")], ErrorKind.BLOCKED),
    ([error_reply(404, code="model_not_found")], ErrorKind.REQUEST),
    ([error_reply(408)], ErrorKind.SERVER),
    ([error_reply(409)], ErrorKind.SERVER),
    ([error_reply(413, "Request Entity Too Large")], ErrorKind.OVERFLOW),
    ([error_reply(413, TPM.format(limit=6000, requested=5000), code="rate_limit_exceeded")], ErrorKind.RATE_LIMITED),
    ([error_reply(413, TPM.format(limit=6000, requested=9000), code="rate_limit_exceeded")], ErrorKind.OVERFLOW),
    ([error_reply(422)], ErrorKind.REQUEST),
    ([rate_limited()], ErrorKind.RATE_LIMITED),
    (
        [error_reply(429, "Request too large: maximum context length", code="context_length_exceeded")],
        ErrorKind.RATE_LIMITED,
    ),
    (
        [error_reply(429, "You exceeded your current quota.", code="insufficient_quota", kind="insufficient_quota")],
        ErrorKind.AUTH,
    ),
    ([_azure("ResponsibleAIPolicyViolation")], ErrorKind.BLOCKED),
    ([error_reply(400, "flagged", code="invalid_prompt")], ErrorKind.BLOCKED),
    ([error_reply(400, "inappropriate", code="data_inspection_failed")], ErrorKind.BLOCKED),
    ([error_reply(500)], ErrorKind.SERVER),
    ([error_reply(503)], ErrorKind.SERVER),
    ([error_reply(529)], ErrorKind.SERVER),
    ([html_error(502)], ErrorKind.SERVER),
    ([html_error(404)], ErrorKind.REQUEST),
    ([Reply(400, b"[]")], ErrorKind.REQUEST),
    ([Reply(500, b"")], ErrorKind.SERVER),
]
IN_STREAM: list[Failure] = [
    ([text("a"), midstream_error()], ErrorKind.SERVER),
    ([text("a"), midstream_error("Overloaded", code=503, kind=None)], ErrorKind.SERVER),
    ([text("a"), midstream_error("slow down", code=429, kind=None)], ErrorKind.RATE_LIMITED),
    ([text("a"), midstream_error("bad key", code="401", kind=None)], ErrorKind.AUTH),
    ([text("a"), midstream_error("too long", code="context_length_exceeded")], ErrorKind.OVERFLOW),
    ([text("a"), midstream_error("prompt is too long: 5 tokens > 4 maximum", kind=None)], ErrorKind.OVERFLOW),
    ([text("a"), midstream_error("something else", kind="new_kind_of_trouble")], ErrorKind.SERVER),
    ([text("a"), midstream_error("no such image", code="invalid_image_url")], ErrorKind.REQUEST),
    ([text("a"), {"error": "just a text"}], ErrorKind.SERVER),
    ([text("a"), Cut()], ErrorKind.NETWORK),
    ([text("a"), Reset()], ErrorKind.NETWORK),
    ([text("a"), Raw(b"data: {nope}\n\n")], ErrorKind.MALFORMED),
]


def _impatient(client: AsyncOpenAI, api: str = "chat") -> Any:
    return stream(client, api, timeout=0.1)


def _chat_answers(said: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["tool_call_id"], one["content"]) for one in said if one["role"] == "tool"]


def _items(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in said if one["type"] == kind]


OPENAI = Provider(
    name="openai",
    extra="openai",
    server=LocalOpenAI,
    module=openai,
    sdk=sdk,
    stream=stream,
    impatient=_impatient,
    steps=openai_steps,
    text=text,
    turn=events_of,
    overloaded=error_reply(503),
    own_call=lambda items: next(
        call for item in items for choice in item.choices for call in choice.delta.tool_calls or ()
    ),
    adapter=OpenAIAdapter,
    model=OpenAIModel,
    history=to_messages,
    request=to_chat,
    calls=lambda said: [call["id"] for one in said for call in one.get("tool_calls", ())],
    answers=_chat_answers,
    error="Error: {}",
    endings=[
        ([text("whole"), finish()], Reason.STREAM_ENDED),
        ([text("whole"), finish(usage=None), usage_only(5, output=2)], Reason.STREAM_ENDED),
        ([call("look"), finish("tool_calls")], Reason.STREAM_ENDED),
        ([text("cut short")], Reason.TRUNCATED),
        ([Headers()], Reason.TRUNCATED),
        ([text("long"), finish("length")], Reason.TRUNCATED),
        ([text("bad"), finish("content_filter")], Reason.BLOCKED),
        ([refusal("I cannot."), finish()], Reason.BLOCKED),
        ([text("again"), finish("repetition_detected")], Reason.LOOP_DETECTED),
        ([text("a"), finish("error")], Reason.ERROR),
        ([finish("model_context_window_exceeded")], Reason.PROMPT_TOO_LONG),
        ([text("a"), midstream_error()], Reason.ERROR),
        ([text("a"), midstream_error("too long", code="context_length_exceeded")], Reason.PROMPT_TOO_LONG),
        ([text("a"), Raw(b"data: garbage\n\n")], Reason.INVALID_STREAM),
        ([call_piece("{}")], Reason.INVALID_STREAM),
        ([text("a"), Cut()], Reason.ERROR),
        ([text("a"), Reset()], Reason.ERROR),
        ([rate_limited()], Reason.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG),
        ([error_reply(503)], Reason.ERROR),
        ([error_reply(401)], Reason.ERROR),
    ],
    failures=[*STATUS, *IN_STREAM],
    delays=[
        (rate_limited(7), 7),
        (rate_limited(None), None),
        (error_reply(429, headers={"retry-after-ms": "250", "retry-after": "1"}), 0.25),
        (error_reply(503, headers={"retry-after": "3"}), 3),
        (error_reply(429, "Rate limit reached. Please try again in 1.5s. Visit us."), 1.5),
        (error_reply(429, "Please try again in 20ms."), 0.02),
        (error_reply(429, "Please try again in 6m0s."), 360),
        (error_reply(500, "Please try again in 9s."), None),
    ],
    contradictions=[
        ({"tool_choice": "required"}, "no tools"),
        ({"settings": {"model": "x"}}, "'model' is not allowed as a setting"),
        ({"settings": {"messages": []}}, "history"),
        ({"settings": {"previous_response_id": "x"}}, "all of it"),
        ({"settings": {"tool_choice": "auto"}}, "tool_choice"),
        ({"settings": {"stream": False}}, "is a stream"),
        ({"settings": {"tools": 5}}, "'tools' takes a list"),
    ],
    wrong_settings=[
        ({"temprature": 0}, r"'temprature' \(did you mean 'temperature'\?\)"),
        ({"zzz": 1, "temperature": 1}, "no such settings: 'zzz'; what"),
    ],
    client_type=r"client takes an openai\.AsyncOpenAI",
    keys=("OPENAI_API_KEY",),
    key_hint="set OPENAI_API_KEY, or give client=",
    key_header=("authorization", "Bearer the-key"),
    address="OPENAI_BASE_URL",
    cleared=("OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
)
OPENAI_RESPONSES = replace(
    OPENAI,
    name="openai-responses",
    stream=partial(stream, api="responses"),
    impatient=partial(_impatient, api="responses"),
    text=response_text,
    turn=response_events_of,
    own_call=lambda items: next(item.item for item in items if item.type == "response.output_item.done"),
    model=OpenAIResponsesModel,
    history=to_input,
    request=to_response,
    calls=lambda said: [one["call_id"] for one in _items(said, "function_call")],
    answers=lambda said: [(one["call_id"], one["output"]) for one in _items(said, "function_call_output")],
    endings=[
        (response_events_of("whole", [("look", {})], reasoning="hm"), Reason.STREAM_ENDED),
        ([response_text("cut short")], Reason.TRUNCATED),
        ([Headers()], Reason.TRUNCATED),
        ([response_text("long"), response_finish("incomplete", reason="max_output_tokens")], Reason.TRUNCATED),
        ([response_text("bad"), response_finish("incomplete", reason="content_filter")], Reason.BLOCKED),
        ([response_refusal("I cannot."), response_finish()], Reason.BLOCKED),
        ([response_text("a"), response_failed()], Reason.ERROR),
        ([response_failed("rate_limit_exceeded")], Reason.RATE_LIMITED),
        ([response_text("a"), response_error("context_length_exceeded")], Reason.PROMPT_TOO_LONG),
        ([response_error("invalid_prompt")], Reason.BLOCKED),
        ([response_text("a"), midstream_error()], Reason.ERROR),
        ([response_text("a"), Cut()], Reason.ERROR),
        ([overflow()], Reason.PROMPT_TOO_LONG),
    ],
    failures=IN_STREAM,
)
PROVIDERS = [OPENAI, OPENAI_RESPONSES]
