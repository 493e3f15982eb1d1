"""Which requests are watched, and refusals as the real SDKs raise them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors

from monitor.models import ErrorKind
from monitor.proxy import formats
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats import wire_of
from tests.proxy.formats.clients import Clients, clients
from tests.proxy.formats.streams import FORMS, answer, asked, framed, wire


@pytest.fixture(scope="module")
def sdks() -> Iterator[Clients]:
    with clients() as made:
        yield made


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/chat/completions", "openai-chat"),
        ("/chat/completions", "openai-chat"),
        ("/openai/v1/chat/completions", "openai-chat"),
        ("/openai/deployments/gpt-x/chat/completions?api-version=2026-01-01", "openai-chat"),
        ("/v1beta/openai/chat/completions", "openai-chat"),
        ("/v1/responses", "openai-responses"),
        ("/openai/v1/responses", "openai-responses"),
        ("/openai/responses?api-version=x", "openai-responses"),
        ("/v1/messages", "anthropic"),
        ("/anthropic/v1/messages?beta=true", "anthropic"),
        ("/v1beta/models/gemini-x:generateContent", "gemini"),
        ("/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "gemini"),
        ("/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent", "gemini"),
        ("/v1beta/tunedModels/x:generateContent", None),
        ("/v1/responses/resp_1", None),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/responses/input_tokens", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/messages", None),
        ("/v1beta/models/gemini-x:countTokens", None),
        ("/v1beta/models/gemini-x:embedContent", None),
        ("/v1/completions", None),
        ("/v1/embeddings", None),
        ("/v1/my-responses", None),
        ("/v1/chat/completions/", None),
        ("/x?y=/v1/chat/completions", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_has_its_wire_or_none(path: str, form: str | None):
    found = wire_of("POST", path)
    assert (found.form if found else None) == form


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", ""])
def test_only_post_is_watched(method: str):
    assert wire_of(method, "/v1/chat/completions") is None


def test_the_page_of_the_package_has_a_row_for_each_wire():
    rows = re.findall(r"^\| ([a-z-]+) \|", formats.__doc__ or "", re.MULTILINE)
    assert rows == ["wire", "---", *FORMS]


# --- refusals

REASON = 'budget "nightly" is used up: 5.00 of 5.00 USD \u00e9\n'


def asking(sdks: Clients, form: str, *, stream: bool) -> Any:
    messages: Any = [{"role": "user", "content": "hello"}]
    match form:
        case "openai-chat":
            return sdks.openai.chat.completions.create(model="m", messages=messages, stream=stream)
        case "openai-responses":
            return sdks.openai.responses.create(model="m", input="hello", stream=stream)
        case "anthropic":
            return sdks.anthropic.messages.create(model="m", max_tokens=9, messages=messages, stream=stream)
    if stream:
        return list(sdks.google.models.generate_content_stream(model="m", contents="hello"))
    return sdks.google.models.generate_content(model="m", contents="hello")


KINDS: dict[int, tuple[str, str]] = {
    400: ("BadRequestError", "ClientError"),
    403: ("PermissionDeniedError", "ClientError"),
    429: ("RateLimitError", "ClientError"),
    502: ("InternalServerError", "ServerError"),
    503: ("InternalServerError", "ServerError"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", KINDS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_raises_its_own_error_with_our_reason(form: str, status: int, stream: bool, sdks: Clients):
    refusal = wire(form).refusal(REASON, status=status, code="budget_spent")
    headers = {name.replace("retry-after", "retry-after-ms"): value for name, value in refusal.headers.items()}
    sdks.status, sdks.headers, sdks.body = refusal.status, headers, refusal.body
    sdks.requests.clear()
    try:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, errors.APIError)) as raised:
            asking(sdks, form, stream=stream)
    finally:
        sdks.status, sdks.headers = 200, {"content-type": "text/event-stream"}
    kinds = {kind.__name__ for kind in type(raised.value).__mro__}
    assert KINDS[status][form == "gemini"] in kinds
    assert len(sdks.requests) == (3 if status >= 500 and form != "gemini" else 1)
    error: Any = raised.value
    body = error.details if form == "gemini" else error.body
    assert (body.get("error") or body)["message"] == REASON
    if form.startswith("openai"):
        assert error.code == "budget_spent"


# --- errors that the service reports


@pytest.mark.parametrize(
    ("form", "event", "kind"),
    [
        ("openai-chat", {"error": {"message": "slow", "type": "rate_limit_error"}}, ErrorKind.RATE_LIMITED),
        ("openai-chat", {"error": "no"}, ErrorKind.SERVER),
        ("openai-responses", {"error": {"message": "no", "type": "server_error"}}, ErrorKind.SERVER),
        ("openai-responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"}, ErrorKind.RATE_LIMITED),
        ("openai-responses", {"type": "response.failed", "response": {"error": None}}, ErrorKind.SERVER),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, ErrorKind.SERVER),
        ("gemini", {"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED"}}, ErrorKind.RATE_LIMITED),
        ("gemini", {"error": 7}, ErrorKind.UNKNOWN),
    ],
)
def test_an_error_in_a_stream_is_a_failure_and_ends_it(form: str, event: dict[str, Any], kind: ErrorKind):
    reader = answer(form)
    (frame,) = reader.feed(framed("openai-chat", event))
    heard = reader.read(frame)
    assert heard.failure is not None
    assert heard.failure.kind is kind
    reader.sent(frame)
    assert reader.over
    assert reader.ending("why") == b""


def test_gemini_says_how_long_to_wait():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    body = framed("openai-chat", {"error": {"code": 429, "message": "x", "details": details}}).removeprefix(b"data: ")
    failure = wire("gemini").whole(asked("gemini"), body).failure
    assert failure is not None
    assert (failure.retry_after_s, failure.status) == (7.0, 429)


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_is_no_stream_has_no_reader(form: str):
    assert wire(form).answer(asked(form), b'{"id": 1}') is None
    assert wire(form).answer(asked(form), b"") is None


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_begins_as_a_stream_is_one(form: str):
    assert wire(form).answer(asked(form), b"data: {}") is not None


def test_what_comes_counts_and_not_what_was_asked_for():
    request = asked("gemini", "/v1beta/models/m:streamGenerateContent")
    for beginning, array in ((b"data: {", False), (b'[{"cand', True), (b'{"error"', True)):
        found = wire("gemini").answer(request, beginning)
        assert found is not None
        assert found.asked.array is array


@pytest.mark.parametrize("form", FORMS)
def test_an_event_that_is_no_json_is_told_and_passed_on(form: str):
    reader = answer(form)
    (frame,) = reader.feed(b"data: {oops\n\n")
    assert "not JSON" in str(reader.read(frame).unread)
    reader.sent(frame)
    assert reader.ending("why")


@pytest.mark.parametrize("form", FORMS)
def test_after_bytes_that_were_not_read_nothing_can_end_the_stream(form: str):
    reader = answer(form)
    reader._framing = sse.SseReader(1_000)
    (frame,) = reader.feed(b"data: " + b"x" * 1_001)
    assert "longer than" in str(reader.read(frame).unread)
    assert reader.ending("why") != b""
    reader.sent(frame)
    assert reader.ending("why") == reader.broken("why") == b""
