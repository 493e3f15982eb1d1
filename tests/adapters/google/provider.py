"""google-genai, as the contract of the providers needs it."""

from __future__ import annotations

from typing import Any

from google.genai import types
from google.genai.client import AsyncClient

from monitor import TerminateReason as Reason
from monitor.adapters.google.model import GoogleModel, to_config, to_contents
from monitor.adapters.google.stream import GoogleAdapter
from monitor.models import ErrorKind, ToolSpec
from monitor.testing import LocalGemini, gemini_steps
from monitor.testing.gemini_steps import (
    Cut,
    Pause,
    Raw,
    Reply,
    Reset,
    blocked,
    chunk,
    error_reply,
    events_of,
    finish,
    html_error,
    midstream_error,
    overflow,
    rate_limited,
    text,
)
from tests.adapters.google.sdk import PLAIN, sdk, stream
from tests.adapters.provider import Provider

LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}})
LATER = {"retry-after": "2.5"}


def _impatient(client: AsyncClient) -> Any:
    return stream(client, PLAIN.model_copy(update={"http_options": types.HttpOptions(timeout=30)}))


def _parts(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [part[kind] for content in said for part in content["parts"] if kind in part]


def _answers(said: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = [(answer["id"], answer["response"]) for answer in _parts(said, "function_response")]
    return [(id_, f"error: {given['error']}" if "error" in given else given["output"]) for id_, given in found]


GOOGLE = Provider(
    name="google",
    extra="google",
    server=LocalGemini,
    module=types,
    sdk=sdk,
    stream=stream,
    impatient=_impatient,
    steps=gemini_steps,
    text=text,
    turn=events_of,
    overloaded=error_reply(503),
    own_call=lambda items: next(call for item in items for call in item.function_calls or ()),
    adapter=GoogleAdapter,
    model=GoogleModel,
    history=to_contents,
    request=to_config,
    calls=lambda said: [call["id"] for call in _parts(said, "function_call")],
    answers=_answers,
    error="error: {}",
    endings=[
        ([text("whole"), finish()], Reason.STREAM_ENDED),
        ([text("cut short")], Reason.TRUNCATED),
        ([text("long"), finish("MAX_TOKENS")], Reason.TRUNCATED),
        ([finish("MALFORMED_FUNCTION_CALL")], Reason.INVALID_STREAM),
        ([text("bad"), finish("SAFETY")], Reason.BLOCKED),
        ([blocked()], Reason.BLOCKED),
        ([text("a"), Cut()], Reason.ERROR),
        ([text("a"), Reset()], Reason.ERROR),
        ([rate_limited()], Reason.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG),
        ([error_reply(503)], Reason.ERROR),
        ([error_reply(401)], Reason.ERROR),
    ],
    failures=[
        ([text("a"), Cut()], ErrorKind.NETWORK),
        ([text("a"), Reset()], ErrorKind.NETWORK),
        ([text("a"), Raw(b"data: {nope}\r\n\r\n")], ErrorKind.MALFORMED),
        ([text("a"), Raw(b": ping\r\n\r\n")], ErrorKind.MALFORMED),
        ([text("a"), chunk([{"text": 5}])], ErrorKind.MALFORMED),
        ([text("a"), midstream_error()], ErrorKind.SERVER),
        ([text("a"), midstream_error(429, "slow down", "RESOURCE_EXHAUSTED")], ErrorKind.RATE_LIMITED),
        ([midstream_error(400, "no", "INVALID_ARGUMENT")], ErrorKind.REQUEST),
        ([overflow()], ErrorKind.OVERFLOW),
        ([Pause(0.001), error_reply(400, "Unknown field.")], ErrorKind.REQUEST),
        ([error_reply(400, "API key not valid. Please pass a valid API key.")], ErrorKind.AUTH),
        ([error_reply(401)], ErrorKind.AUTH),
        ([error_reply(403)], ErrorKind.AUTH),
        ([error_reply(404)], ErrorKind.REQUEST),
        ([rate_limited()], ErrorKind.RATE_LIMITED, 429, "RESOURCE_EXHAUSTED"),
        ([Reply(429, b"{}")], ErrorKind.RATE_LIMITED, 429, None),
        ([error_reply(429, "The input token count exceeds your quota")], ErrorKind.RATE_LIMITED),
        ([error_reply(500)], ErrorKind.SERVER),
        ([error_reply(503)], ErrorKind.SERVER, 503, "UNAVAILABLE"),
        ([html_error(503)], ErrorKind.SERVER),
    ],
    delays=[
        (rate_limited(7), 7),
        (Reply(429, b"{}", LATER), 2.5),
        (error_reply(503, headers=LATER), 2.5),
        (rate_limited(None), None),
    ],
    contradictions=[
        ({"tool_choice": "required"}, "no tools"),
        ({"settings": {"system_instruction": "x"}}, "instructions"),
        ({"settings": {"automatic_function_calling": {"disable": False}}}, "it is off"),
        ({"tools": (LOOK,), "settings": {"tool_config": 5}}, "tool_config takes a dict"),
        ({"tools": (LOOK,), "settings": {"tool_config": {"function_calling_config": 5}}}, "tool_config takes a dict"),
    ],
    wrong_settings=[
        ({"temprature": 0}, r"'temprature' \(did you mean 'temperature'\?\)"),
        ({"maxOutputTokens": 5}, r"'maxOutputTokens' \(did you mean 'max_output_tokens'\?\)"),
        ({"zzz": 1, "temperature": 1}, "no such settings: 'zzz'$"),
        ({"max_output_tokens": "many"}, "max_output_tokens: Input should be a valid integer"),
        ({"thinking_config": {"budget": 1}}, r"thinking_config\.budget: Extra inputs"),
        ({"tools": 5}, "tools"),
    ],
    client_type=r"client takes a genai\.Client",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    key_hint=r"set GEMINI_API_KEY \(or GOOGLE_API_KEY\), or give client=",
    key_header=("x-goog-api-key", "the-key"),
    address="GOOGLE_GEMINI_BASE_URL",
    cleared=("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_CLOUD_PROJECT"),
)
PROVIDERS = [GOOGLE]
