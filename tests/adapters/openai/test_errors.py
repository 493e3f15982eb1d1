"""Every failure of the OpenAI SDK, as it raises it, and every one that a service reports in its
stream, has its kind.
"""

from __future__ import annotations

import pickle
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from monitor.adapters.adapter import ReportedFailure
from monitor.adapters.openai.errors import reported
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.models import ErrorKind, ModelError
from monitor.testing.base_steps import to_json
from monitor.testing.openai_steps import (
    Cut,
    Raw,
    Reply,
    Reset,
    Script,
    Stall,
    error_reply,
    html_error,
    midstream_error,
    overflow,
    rate_limited,
    text,
)
from monitor.testing.servers.openai_server import LocalOpenAI
from tests.adapters.openai.sdk import APIS, TRANSPORTS, aiohttp_warnings, sdk, stream

pytestmark = aiohttp_warnings

TPM = (
    "Request too large for model in organization on tokens per minute (TPM): Limit {limit}, Requested {requested},"
    " please reduce."
)


def azure(code: str) -> Reply:
    inner = {"code": code, "content_filter_result": {}}
    return Reply(
        400,
        to_json({"error": {"message": "The response was filtered.", "code": "content_filter", "innererror": inner}}),
    )


STATUS: list[tuple[Script, ErrorKind]] = [
    ([error_reply(400)], ErrorKind.REQUEST),
    ([error_reply(400, "Invalid schema.", code="invalid_function_parameters")], ErrorKind.REQUEST),
    ([overflow()], ErrorKind.OVERFLOW),
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
    ([azure("ResponsibleAIPolicyViolation")], ErrorKind.BLOCKED),
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


async def failure(client: AsyncOpenAI, api: str = "chat", **options: Any) -> ModelError:
    adapter = OpenAIAdapter()
    try:
        async for item in await stream(client, api, **options):
            adapter.decode(item)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has a kind
        return adapter.classify(error)
    raise AssertionError("nothing was raised")


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_status_has_its_kind(transport: str):
    with LocalOpenAI([script for script, _ in STATUS]) as server:
        async with sdk(server, transport) as client:
            for script, kind in STATUS:
                found = await failure(client)
                assert found.kind is kind, (script, found)
                assert found.message
                (reply,) = script
                assert isinstance(reply, Reply)
                assert found.status == reply.status


IN_STREAM: list[tuple[Script, ErrorKind]] = [
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


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("api", APIS)
async def test_every_failure_inside_a_stream_has_its_kind(transport: str, api: str):
    with LocalOpenAI([script for script, _ in IN_STREAM]) as server:
        async with sdk(server, transport) as client:
            for script, kind in IN_STREAM:
                assert (await failure(client, api)).kind is kind, script


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_service_that_is_silent_or_not_there_is_a_matter_of_the_network(transport: str):
    with LocalOpenAI([[Stall()], [text("a"), Stall()]]) as server:
        async with sdk(server, transport) as client:
            assert (await failure(client, timeout=0.1)).kind is ErrorKind.NETWORK
            assert (await failure(client, timeout=0.1)).kind is ErrorKind.NETWORK
    async with AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:1/v1", max_retries=0) as client:
        assert (await failure(client)).kind is ErrorKind.NETWORK


DELAYS: list[tuple[Reply, float | None]] = [
    (rate_limited(7), 7),
    (rate_limited(None), None),
    (error_reply(429, headers={"retry-after-ms": "250", "retry-after": "1"}), 0.25),
    (error_reply(503, headers={"retry-after": "3"}), 3),
    (error_reply(429, "Rate limit reached. Please try again in 1.5s. Visit us."), 1.5),
    (error_reply(429, "Please try again in 20ms."), 0.02),
    (error_reply(429, "Please try again in 6m0s."), 360),
    (error_reply(500, "Please try again in 9s."), None),
]


@pytest.mark.asyncio
async def test_what_the_service_asks_to_wait_is_told():
    with LocalOpenAI([[reply] for reply, _ in DELAYS]) as server:
        async with sdk(server) as client:
            for reply, delay_s in DELAYS:
                assert (await failure(client)).retry_after_s == delay_s, reply


@pytest.mark.asyncio
async def test_the_services_own_words_are_kept():
    with LocalOpenAI([[overflow(9, 8)], [error_reply(400, "bad", kind="invalid_request_error")]]) as server:
        async with sdk(server) as client:
            found = await failure(client)
            assert (found.status, found.code) == (400, "context_length_exceeded")
            assert (
                found.message
                == "This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens."
            )
            assert (await failure(client)).code == "invalid_request_error"


@pytest.mark.asyncio
async def test_what_the_helper_stream_raises_has_its_kind():
    from pydantic import BaseModel

    from monitor.testing.openai_steps import finish

    class Answer(BaseModel):
        x: int

    kinds = []
    with LocalOpenAI([[text('{"x'), finish("length")], [text('{"x'), finish("content_filter")]]) as server:
        async with sdk(server) as client:
            for _ in range(2):
                try:
                    async with client.chat.completions.stream(model="m", messages=[], response_format=Answer) as helper:
                        async for _event in helper:
                            pass
                except openai.OpenAIError as error:
                    kinds.append(OpenAIAdapter().classify(error).kind)
    assert kinds == [ErrorKind.REQUEST, ErrorKind.BLOCKED]


def test_a_client_that_cannot_be_made_for_want_of_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(openai.OpenAIError) as raised:
        AsyncOpenAI()
    assert OpenAIAdapter().classify(raised.value).kind is ErrorKind.AUTH
    assert OpenAIAdapter().classify(openai.OpenAIError("something")).kind is ErrorKind.REQUEST


def test_a_reported_failure_is_classed_as_reported_and_survives_a_pickle():
    error = ReportedFailure(reported("rate_limit_exceeded", "Please try again in 2s."))
    again = pickle.loads(pickle.dumps(error))
    assert again.model_error == OpenAIAdapter().classify(error)
    assert again.model_error == ModelError(
        ErrorKind.RATE_LIMITED, "Please try again in 2s.", 2.0, None, "rate_limit_exceeded"
    )
    assert str(again) == "Please try again in 2s."


@pytest.mark.parametrize("odd", [None, 5, [], {}, b"x", object()])
def test_an_error_of_any_shape_is_a_failure_of_the_service(odd: Any):
    found = reported(odd, odd, type_=odd)
    assert found.kind is ErrorKind.SERVER
    assert found.message
