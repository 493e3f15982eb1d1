"""What cannot be judged: relayed, paid by its bytes, or refused."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.shared import Amount, SQLiteBudgets
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Reply, finish, text, usage
from tests.proxy.asked import ask, chat

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
ALICE = {"authorization": "Bearer sk-alice"}
KEYS = KeyNames({"alice": digest_of("sk-alice")})
PLAIN: Any = chat()
PLAIN_BYTES = json.dumps(PLAIN).encode()
CANDIDATES = {
    "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
    "generationConfig": {"candidateCount": 4},
}


def body(**fields: Any) -> bytes:
    return json.dumps({**PLAIN, **fields}).encode()


TRICKS: dict[str, tuple[str, str, Any, Mapping[str, str]]] = {
    "several answers": ("POST", CHAT, body(n=2), {}),
    "several candidates": (
        "POST",
        "/v1beta/models/m:generateContent",
        CANDIDATES,
        {},
    ),
    "packed with gzip": ("POST", CHAT, gzip.compress(PLAIN_BYTES), {"content-encoding": "gzip"}),
    "packed with deflate": ("POST", CHAT, zlib.compress(PLAIN_BYTES), {"content-encoding": "deflate"}),
    "packed twice": ("POST", CHAT, gzip.compress(gzip.compress(PLAIN_BYTES)), {"content-encoding": "gzip, gzip"}),
    "packed with br": ("POST", CHAT, b"\x0b\x02\x80", {"content-encoding": "br"}),
    "said to be packed": ("POST", CHAT, chat(), {"content-encoding": "gzip"}),
    "a bomb": ("POST", CHAT, gzip.compress(b" " * 3_000_000 + PLAIN_BYTES), {"content-encoding": "gzip"}),
    "padded": ("POST", CHAT, b" " * 2_000_000 + PLAIN_BYTES, {}),
    "padded in a field": ("POST", CHAT, body(user="x" * 2_000_000), {}),
    "another case of the path": ("POST", "/v1/Chat/Completions", chat(), {}),
    "an encoded path": ("POST", "/v1/chat/%63ompletions", chat(), {}),
    "a path encoded twice": ("POST", "/v1/chat/%2563ompletions", chat(), {}),
    "a parameter in the path": ("POST", "/v1/chat/completions;x=1", chat(), {}),
    "old completions": ("POST", "/v1/completions", {"model": "m", "prompt": "hello"}, {}),
    "embeddings": ("POST", "/v1/embeddings", {"model": "m", "input": "hello"}, {}),
    "a batch": ("POST", "/v1/batches", {"input_file_id": "f"}, {}),
    "batches of messages": ("POST", "/v1/messages/batches", {"requests": []}, {}),
    "an image": ("POST", "/v1/images/generations", {"prompt": "a cat"}, {}),
    "Codex's path": ("POST", "/backend-api/codex/responses", {"model": "m", "input": "hello", "stream": True}, {}),
    "in the background": ("POST", "/v1/responses", {"model": "m", "input": "hello", "background": True}, {}),
    "Bedrock, a stream": ("POST", "/model/anthropic.claude-x/invoke-with-response-stream", PLAIN, {}),
    "Bedrock, converse": ("POST", "/model/x/converse", PLAIN, {}),
    "Bedrock": ("POST", "/model/eu.anthropic.claude-x/invoke", {"messages": PLAIN["messages"], "max_tokens": 9}, {}),
    "Vertex, raw": ("POST", "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict", PLAIN, {}),
    "Vertex, Claude": (
        "POST",
        "/v1/projects/p/publishers/anthropic/models/c:streamRawPredict",
        {"messages": PLAIN["messages"]},
        {},
    ),
    "a deployment of Azure": ("POST", "/openai/deployments/d/chat/completions", {"messages": PLAIN["messages"]}, {}),
    "Ollama": ("POST", "/api/chat", PLAIN, {}),
    "a switch that is a text": ("POST", CHAT, body(stream="true"), {}),
    "no model": ("POST", CHAT, {"messages": PLAIN["messages"]}, {}),
    "no list of messages": ("POST", CHAT, body(messages={"0": PLAIN["messages"][0]}), {}),
    "a role of its own": ("POST", CHAT, body(messages=[{"role": "robot", "content": "x"}]), {}),
    "no JSON": ("POST", CHAT, b"\xef\xbb\xbf{oops", {}),
    "PUT": ("PUT", CHAT, chat(), {}),
    "a GET with a body": ("GET", CHAT, chat(), {"x-http-method-override": "POST"}),
    "a small letter": ("post", CHAT, chat(), {}),
    "a number that is a text": ("POST", CHAT, body(n="5"), {}),
    "a field twice": ("POST", CHAT, PLAIN_BYTES[:-1] + b', "n": 1, "n": 9}', {}),
    "the messages twice": ("POST", CHAT, PLAIN_BYTES[:-1] + b', "mess\\u0061ges": []}', {}),
    "UTF-16": ("POST", CHAT, PLAIN_BYTES.decode().encode("utf-16"), {}),
    "UTF-16 without a mark": ("POST", CHAT, PLAIN_BYTES.decode().encode("utf-16-be"), {}),
    "UTF-32": ("POST", CHAT, PLAIN_BYTES.decode().encode("utf-32"), {}),
    "a mark before it": ("POST", CHAT, b"\xef\xbb\xbf" + PLAIN_BYTES, {}),
    "no Unicode": ("POST", CHAT, PLAIN_BYTES.replace(b"Go on", b"\xff\xfe"), {}),
    "half a pair": ("POST", CHAT, PLAIN_BYTES.replace(b"Go on", b"\\ud800"), {}),
    "something behind it": ("POST", CHAT, PLAIN_BYTES + b"{}", {}),
    "a list": ("POST", CHAT, b"[" + PLAIN_BYTES + b"]", {}),
    "nested": ("POST", CHAT, body(x=1)[:-2] + b"[" * 90_000 + b"]" * 90_000 + b"}", {}),
    "no number": ("POST", CHAT, PLAIN_BYTES[:-1] + b', "n": NaN}', {}),
    "two slashes": ("POST", "//v1//chat//completions//", chat(), {}),
    "an encoded slash": ("POST", "/v1/chat%2Fcompletions", chat(), {}),
    "a backslash": ("POST", "/v1\\chat\\completions", chat(), {}),
    "an encoded end": ("POST", "/v1/chat/completions%00", chat(), {}),
    "white space": ("POST", "/v1/chat/completions%20", chat(), {}),
    "two forms of packing": ("POST", CHAT, gzip.compress(PLAIN_BYTES), {"content-encoding": "identity, gzip"}),
    "packed in capitals": ("POST", CHAT, gzip.compress(PLAIN_BYTES), {"content-encoding": "GZIP"}),
    "a bomb of deflate": ("POST", CHAT, zlib.compress(b" " * 3_000_000 + PLAIN_BYTES), {"content-encoding": "deflate"}),
    "two bodies of gzip": (
        "POST",
        CHAT,
        gzip.compress(b" ") + gzip.compress(PLAIN_BYTES),
        {"content-encoding": "gzip"},
    ),
    "chunked": ("POST", CHAT, chat(), {"transfer-encoding": "chunked", "content-length": "0"}),
    "it waits to go on": ("POST", CHAT, chat(), {"expect": "100-continue"}),
    "HEAD with a body": ("HEAD", CHAT, chat(), {}),
    "a method of its own": ("CHAT", CHAT, chat(), {}),
    "an upgrade to h2c": ("POST", CHAT, chat(), {"connection": "upgrade, http2-settings", "upgrade": "h2c"}),
    "a query of its own": ("POST", f"{CHAT}?api-version=1&stream=false", chat(), {}),
    "OpenRouter": ("POST", "/api/v1/chat/completions", chat(), {}),
    "Vertex, chat": ("POST", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", chat(), {}),
    "Bedrock, chat": ("POST", "/openai/v1/chat/completions", chat(), {}),
}


@pytest.fixture
def upstream() -> Iterator[LocalOpenAI]:
    with LocalOpenAI([[text("hello"), finish(usage=usage(500, output=100))]]) as server:
        yield server


@asynccontextmanager
async def proxy_of(server: LocalOpenAI, limit: int | None = None, **options: Any) -> AsyncIterator[Proxy]:
    store = SQLiteBudgets(":memory:")
    if limit is not None:
        await store.set_limit("proxy/alice", tokens=limit)
        options |= {"budget": store, "budget_wait_s": 0}
    proxy = Proxy(server.base_url.removesuffix("/v1"), keys=KEYS, most_body=1_000_000, **options)
    yield proxy
    await proxy.aclose()
    await store.aclose()


async def spent(proxy: Proxy) -> Amount:
    accounts = proxy._context.accounts
    assert accounts is not None
    return next(one.spent for one in await accounts.store.states("proxy/alice") if one.name == "proxy/alice")


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_trick_passes_a_used_up_budget(upstream: LocalOpenAI, trick: str) -> None:
    method, path, given, headers = TRICKS[trick]
    async with proxy_of(upstream, limit=0) as proxy:
        reply = await ask(proxy, method, path, given, headers={**ALICE, **headers})
        assert upstream.requests == []
        assert "token_limit" in reply.header("x-agent-monitor")


@pytest.mark.parametrize(
    "path", ["http://api.openai.com/v1/chat/completions", "v1/chat/completions", "*", "/v1/./chat/completions"]
)
async def test_a_target_that_is_no_plain_path_does_not_pass(upstream: LocalOpenAI, path: str) -> None:
    async with proxy_of(upstream, limit=0) as proxy:
        assert (await ask(proxy, "POST", path, chat(), headers=ALICE)).status == 400
    assert upstream.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "bearer   sk-alice"},
        {"x-api-key": "sk-alice"},
        {"api-key": " sk-alice "},
        {"x-goog-api-key": "sk-alice"},
        {"authorization": "Bearer\tsk-alice"},
        {"authorization": "Token sk-alice"},
        {"authorization": 'Bearer "sk-alice"'},
        {"authorization": "'sk-alice'"},
        {"authorization": "Bearer sk-alice,"},
        {"authorization": "Basic c2stYWxpY2U6"},
        {"authorization": "Basic OnNrLWFsaWNl"},
        {"x-api-key": "Bearer sk-alice"},
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_key_is_one_key_wherever_it_stands(upstream: LocalOpenAI, headers: Any, path: str) -> None:
    async with proxy_of(upstream, limit=0) as proxy:
        await ask(proxy, "POST", path, chat(), headers=headers)
    assert upstream.requests == []


@pytest.mark.parametrize("query", ["key=sk-alice", "k%65y=sk%2Dalice", "x=1&KEY=sk-alice", "access_token=sk-alice"])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_key_in_the_query_is_the_same_key_in_any_spelling(upstream: LocalOpenAI, query: str, path: str) -> None:
    async with proxy_of(upstream, limit=0) as proxy:
        await ask(proxy, "POST", f"{path}?{query}", chat())
    assert upstream.requests == []


@pytest.mark.parametrize(
    "value", ["Bearer sk-alice x", "Bearer Bearer sk-alice", "Basic eDpzay1hbGljZQ==", "Bearer sk-alice, Bearer sk-bob"]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_key_beside_other_words_is_refused(upstream: LocalOpenAI, value: str, path: str) -> None:
    async with proxy_of(upstream, limit=10_000) as proxy:
        assert (await ask(proxy, "POST", path, chat(), headers={"authorization": value})).status == 400
    assert upstream.requests == []


@pytest.mark.parametrize("query", ["key=sk-bob", "key=sk-alice&key=sk-bob"])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_two_keys_are_refused(upstream: LocalOpenAI, query: str, path: str) -> None:
    async with proxy_of(upstream, limit=10_000) as proxy:
        assert (await ask(proxy, "POST", f"{path}?{query}", chat(), headers=ALICE)).status == 400
    assert upstream.requests == []


async def test_a_signed_request_is_known_by_the_id_of_its_key(upstream: LocalOpenAI) -> None:
    names = set()
    async with proxy_of(upstream, limit=10_000) as proxy:
        for signature in ("aa", "bb"):
            signed = f"AWS4-HMAC-SHA256 Credential=AKIA1/2026/eu/aws4_request, Signature={signature}"
            await ask(proxy, "POST", CHAT, chat(), headers={"authorization": signed})
        names = {run.key for run in proxy.runs}
    assert len(names) == 1


async def test_what_cannot_be_judged_pays_by_its_bytes() -> None:
    with LocalOpenAI([[Reply(200, b"x" * 8_000, {"content-type": "audio/mpeg"})]]) as server:
        async with proxy_of(server, limit=100_000) as proxy:
            reply = await ask(proxy, "POST", CHAT, b"y" * 4_000, headers=ALICE)
            assert reply.header("x-agent-monitor") == "unwatched; the request is not JSON"
            assert await spent(proxy) == Amount(3_000)


@pytest.mark.parametrize("given", [b"no JSON", PLAIN_BYTES])
async def test_an_unread_answer_ends_where_the_budget_ends(given: bytes) -> None:
    """An answer in one piece is read up to `most_body` before it is known that it is too long."""
    with LocalOpenAI([[Reply(200, b"x" * 4_000_000, {"content-type": "audio/mpeg"})]]) as server:
        async with proxy_of(server, limit=20_000, slice_tokens=500) as proxy:
            reply = await ask(proxy, "POST", CHAT, given, headers=ALICE)
            assert not reply.whole or reply.status != 200
            assert (await spent(proxy)).tokens < 300_000


async def test_a_refused_request_pays_nothing_for_the_answer(upstream: LocalOpenAI) -> None:
    with LocalOpenAI([[Reply(401, b"x" * 8_000)]]) as server:
        async with proxy_of(server, limit=100_000) as proxy:
            await ask(proxy, "POST", "/v1/x", b"y" * 400, headers=ALICE)
            assert await spent(proxy) == Amount(100)


async def test_a_look_without_a_body_passes_and_asks_no_model(upstream: LocalOpenAI) -> None:
    async with proxy_of(upstream, limit=0) as proxy:
        headers = {**ALICE, "x-http-method-override": "POST"}
        assert (await ask(proxy, "GET", "/v1/models", headers=headers)).status == 404
    assert "x-http-method-override" not in upstream.requests[0].headers


@pytest.mark.parametrize("trick", ["old completions", "packed with br", "no JSON", "PUT"])
async def test_by_choice_all_of_it_is_refused(upstream: LocalOpenAI, trick: str) -> None:
    method, path, given, headers = TRICKS[trick]
    async with proxy_of(upstream, unwatched="refuse") as proxy:
        reply = await ask(proxy, method, path, given, headers={**ALICE, **headers})
    assert (reply.status, reply.header("x-should-retry")) == (400, "false")
    assert "cannot be watched" in reply.json["error"]["message"]
    assert reply.header("x-agent-monitor").startswith("refused; ")
    assert upstream.requests == []


async def test_by_choice_an_answer_that_cannot_be_read_is_refused() -> None:
    with LocalOpenAI([[Reply(200, b"\x0b\x02\x80", {"content-encoding": "br"})]]) as server:
        async with proxy_of(server, unwatched="refuse") as proxy:
            reply = await ask(proxy, "POST", CHAT, chat(stream=False), headers=ALICE)
    assert (reply.status, "cannot be watched" in reply.json["error"]["message"]) == (400, True)


async def test_by_choice_all_of_it_passes_although_there_is_a_budget(upstream: LocalOpenAI) -> None:
    async with proxy_of(upstream, limit=0, unwatched="relay") as proxy:
        assert (await ask(proxy, "POST", CHAT, body(n=500), headers=ALICE)).status == 200


def test_who_is_to_pay_needs_a_budget() -> None:
    with pytest.raises(ConfigError, match="needs budget="):
        Proxy("http://127.0.0.1:9", unwatched="pay")
    with pytest.raises(ConfigError, match="'relay', 'pay', 'refuse'"):
        Proxy("http://127.0.0.1:9", unwatched="maybe")  # type: ignore[arg-type]
