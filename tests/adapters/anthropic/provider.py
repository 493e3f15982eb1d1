"""anthropic, as the contract of the providers needs it, in each of its ways to stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anthropic
from anthropic import AsyncAnthropic

from monitor import TerminateReason as Reason
from monitor.adapters.anthropic.model import AnthropicModel, to_messages, to_parameters
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.models import ErrorKind, ToolSpec
from monitor.testing import LocalAnthropic, anthropic_steps
from monitor.testing.anthropic_steps import (
    Cut,
    Raw,
    Reset,
    block_start,
    delta,
    error_reply,
    events_of,
    finish,
    html_error,
    midstream_error,
    overflow,
    overloaded,
    rate_limited,
    say,
    start,
    text,
    too_large,
)
from tests.adapters.anthropic.sdk import beta_helper, beta_stream, helper, sdk, stream
from tests.adapters.provider import Provider

LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}})
WRONG_KEY = "invalid x-api-key"
FILTERED = "Output blocked by content filtering policy"
INVALID = "invalid_request_error"


def _impatient(client: AsyncAnthropic) -> Any:
    return stream(client.with_options(timeout=0.05))


def _blocks(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [block for one in said for block in one["content"] if block["type"] == kind]


def _answers(said: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (block["tool_use_id"], ("error: " if block.get("is_error") else "") + block.get("content", ""))
        for block in _blocks(said, "tool_result")
    ]


ANTHROPIC = Provider(
    name="anthropic",
    extra="anthropic",
    server=LocalAnthropic,
    module=anthropic,
    sdk=sdk,
    stream=stream,
    impatient=_impatient,
    steps=anthropic_steps,
    begin=[start(), block_start({"type": "text", "text": ""})],
    text=text,
    turn=events_of,
    overloaded=overloaded(),
    adapter=AnthropicAdapter,
    model=AnthropicModel,
    history=to_messages,
    request=to_parameters,
    calls=lambda said: [block["id"] for block in _blocks(said, "tool_use")],
    answers=_answers,
    error="error: {}",
    endings=[
        (events_of("whole"), Reason.STREAM_ENDED),
        ([start(), *say("cut short")], Reason.TRUNCATED),
        ([start(), *say("cut short"), delta("end_turn")], Reason.TRUNCATED),
        ([start(), *say("long"), *finish("max_tokens")], Reason.TRUNCATED),
        ([start(), *say("paused"), *finish("pause_turn")], Reason.TRUNCATED),
        ([start(), *say("full"), *finish("model_context_window_exceeded")], Reason.TRUNCATED),
        ([start(), *say("bad"), *finish("refusal")], Reason.BLOCKED),
        ([start(), text("a"), Cut()], Reason.ERROR),
        ([start(), text("a"), Reset()], Reason.ERROR),
        ([rate_limited()], Reason.RATE_LIMITED),
        ([start(), midstream_error("rate_limit_error")], Reason.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG),
        ([too_large()], Reason.PROMPT_TOO_LONG),
        ([overloaded()], Reason.ERROR),
        ([start(), text("a"), midstream_error()], Reason.ERROR),
        ([error_reply(400, FILTERED)], Reason.BLOCKED),
        ([error_reply(401)], Reason.ERROR),
    ],
    failures=[
        ([error_reply(400)], ErrorKind.REQUEST, 400, INVALID),
        ([error_reply(400, FILTERED)], ErrorKind.BLOCKED, 400, INVALID),
        ([overflow()], ErrorKind.OVERFLOW, 400, INVALID),
        (
            [error_reply(400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000")],
            ErrorKind.OVERFLOW,
            400,
            INVALID,
        ),
        (
            [error_reply(400, "max_tokens: 32000 > 8192, which is the maximum allowed")],
            ErrorKind.REQUEST,
            400,
            INVALID,
        ),
        ([error_reply(401, WRONG_KEY)], ErrorKind.AUTH, 401, "authentication_error"),
        ([error_reply(402)], ErrorKind.REQUEST, 402, "billing_error"),
        ([error_reply(403)], ErrorKind.AUTH, 403, "permission_error"),
        ([error_reply(404)], ErrorKind.REQUEST, 404, "not_found_error"),
        ([error_reply(408, kind="api_error")], ErrorKind.SERVER, 408, "api_error"),
        ([too_large()], ErrorKind.OVERFLOW, 413, "request_too_large"),
        ([html_error(413)], ErrorKind.OVERFLOW, 413, None),
        ([rate_limited()], ErrorKind.RATE_LIMITED, 429, "rate_limit_error"),
        ([html_error(429)], ErrorKind.RATE_LIMITED, 429, None),
        ([error_reply(500)], ErrorKind.SERVER, 500, "api_error"),
        ([html_error(502)], ErrorKind.SERVER, 502, None),
        ([error_reply(504)], ErrorKind.SERVER, 504, "timeout_error"),
        ([overloaded()], ErrorKind.SERVER, 529, "overloaded_error"),
        ([midstream_error()], ErrorKind.SERVER, 200, "overloaded_error"),
        ([start(), *say("a"), midstream_error()], ErrorKind.SERVER, 200, "overloaded_error"),
        ([start(), midstream_error("rate_limit_error")], ErrorKind.RATE_LIMITED, 200, "rate_limit_error"),
        ([start(), midstream_error(INVALID, FILTERED)], ErrorKind.BLOCKED, 200, INVALID),
        ([start(), midstream_error(INVALID, "prompt is too long")], ErrorKind.OVERFLOW, 200, INVALID),
        ([start(), midstream_error("an_error_of_tomorrow")], ErrorKind.UNKNOWN, 200, "an_error_of_tomorrow"),
        ([start(), text("a"), Cut()], ErrorKind.NETWORK, None, None),
        ([start(), text("a"), Reset()], ErrorKind.NETWORK, None, None),
        ([Cut()], ErrorKind.NETWORK, None, None),
        ([start(), Raw(b"event: message_stop\ndata: {no json}\n\n")], ErrorKind.MALFORMED, None, None),
    ],
    delays=[
        (rate_limited(7), 7),
        (error_reply(529, headers={"Retry-After-Ms": "250"}), 0.25),
        (rate_limited(None), None),
    ],
    contradictions=[
        ({"tool_choice": "required"}, "no tools"),
        (
            {"tool_choice": "required", "tools": (LOOK,), "settings": {"thinking": {"type": "enabled"}}},
            "while thinking is enabled",
        ),
        ({"settings": {"system": "x"}}, "instructions"),
        ({"settings": {"stream": False}}, "is streamed"),
        ({"settings": {"messages": []}}, "messages"),
        ({"settings": {"model": "x"}}, "name"),
        ({"tools": (LOOK,), "settings": {"tool_choice": {"type": "any"}}}, "disable_parallel_tool_use only"),
        ({"tools": (LOOK,), "settings": {"tool_choice": "any"}}, "disable_parallel_tool_use only"),
    ],
    wrong_settings=[
        ({"stop_sequence": 0}, r"'stop_sequence' \(did you mean 'stop_sequences'\?\)"),
        ({"temperature": 0}, "goes into extra_body"),
        ({"max_output_tokens": 5}, "no such settings: 'max_output_tokens'"),
        ({"zzz": 1, "speed": "fast"}, "no such settings: 'zzz';"),
        ({"mcp_servers": []}, "no such settings: 'mcp_servers'"),
    ],
    client_type="client takes an AsyncAnthropic",
    keys=("ANTHROPIC_API_KEY",),
    key_hint="set ANTHROPIC_API_KEY, or give client=",
    key_header=("authorization", "Bearer the-key"),
    address="ANTHROPIC_BASE_URL",
    cleared=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR"),
)
PROVIDERS = [ANTHROPIC]


def _own_block(items: list[Any]) -> Any:
    return next(item.content_block for item in items if item.type == "content_block_stop")


BETA = replace(ANTHROPIC, way="beta", stream=beta_stream)
HELPER = replace(ANTHROPIC, way="helper", stream=helper, own_call=_own_block)
BETA_HELPER = replace(ANTHROPIC, way="beta-helper", stream=beta_helper, own_call=_own_block)
WAYS = [BETA, HELPER, BETA_HELPER]
