"""What passes through the proxy, and what it says of it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import pytest

from monitor.errors import ConfigError
from monitor.proxy import Proxy
from monitor.proxy.http_messages import to_client
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Cut, Event, Raw, Reply, Stall, Step, error_reply, finish, text
from tests.proxy.asked import ask, chat

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


@pytest.fixture
def upstream() -> Iterator[LocalOpenAI]:
    with LocalOpenAI([[text("hel"), text("lo"), finish()]]) as server:
        yield server


def proxy_of(server: LocalOpenAI, **options: object) -> Proxy:
    return Proxy(server.base_url.removesuffix("/v1"), token="token", **options)  # type: ignore[arg-type]


def answering(*steps: Step | Event) -> LocalOpenAI:
    return LocalOpenAI([steps])


async def test_a_watched_stream_has_the_bytes_of_the_upstream(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    watched, relayed = await ask(proxy, "POST", CHAT, chat()), await ask(proxy, "POST", "/v1/x;/responses", chat())
    assert watched.header("x-agent-monitor").startswith("watched; run=")
    assert relayed.header("x-agent-monitor").startswith("unwatched; ")
    assert b"hel" in watched.body
    assert watched.body.replace(b"data: [DONE]\n\n", b"") == relayed.body
    assert watched.whole
    await proxy.aclose()


async def test_headers_of_one_connection_are_dropped_and_all_others_kept(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    headers = {
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "x-mine": "2",
        "accept-encoding": "br",
    }
    reply = await ask(proxy, "POST", CHAT, chat(), headers={**headers, "x-agent-monitor-run": "mine"})
    sent = upstream.requests[0].headers
    assert "x-hop" not in sent
    assert "te" not in sent
    assert "x-agent-monitor-run" not in sent
    assert (sent["x-mine"], sent["accept-encoding"]) == ("2", "identity")
    assert not reply.header("transfer-encoding")
    assert reply.header("x-agent-monitor") == "watched; run=mine"
    await proxy.aclose()


async def test_the_path_and_the_query_pass_as_they_came(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    await ask(proxy, "GET", "/v1/files/a%2Fb?x=%20y&key=z")
    assert upstream.requests[0].path == "/v1/files/a%2Fb?x=%20y&key=z"
    await proxy.aclose()


@pytest.mark.parametrize("path", ["/v1/chat/./completions", "/v1/x/%2e%2E/chat/completions", "*", "http://other/v1"])
async def test_a_path_that_the_upstream_would_read_as_another_one_is_refused(upstream: LocalOpenAI, path: str) -> None:
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", path, chat())
    assert (reply.status, upstream.requests) == (400, [])
    await proxy.aclose()


@pytest.mark.parametrize(
    "path", ["/v1/chat/%63ompletions", "/v1/chat/completions/", "//v1///chat//completions//", "/v1/chat%2Fcompletions"]
)
async def test_a_path_is_known_in_any_spelling(upstream: LocalOpenAI, path: str) -> None:
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", path, chat())
    assert "; run=" in reply.header("x-agent-monitor")
    assert upstream.requests[0].path == path
    await proxy.aclose()


async def test_a_length_beside_a_transfer_encoding_does_not_count(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    given = {"transfer-encoding": "chunked", "content-length": "5"}
    for path in (CHAT, "/v1/x;/responses"):
        assert (await ask(proxy, "POST", path, chat(), headers=given)).status == 200
    assert "content-length" not in upstream.requests[1].headers
    await proxy.aclose()


async def test_what_a_header_says_of_a_request_is_short_and_one_line(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", CHAT, {**chat(), "messages": [{"role": "\r\nx: y" + "z" * 100_000}]})
    said = reply.header("x-agent-monitor")
    assert said.startswith("unwatched; the conversation of the request cannot be read")
    assert (len(said), said.isprintable()) == (300, True)
    assert to_client([], said="a\r\nb", cuttable=False) == [(b"x-agent-monitor", b"a??b")]
    await proxy.aclose()


async def test_the_name_of_a_model_is_kept_in_part(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    await ask(proxy, "POST", CHAT, {**chat(), "model": "m" * 100_000})
    assert [len(run.model) for run in proxy.runs] == [200]
    await proxy.aclose()


async def test_a_stream_that_ends_too_early_counts_as_a_failure_of_the_upstream() -> None:
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "hel"}}]}\n\n'
    with answering(Reply(200, half, {"content-type": "text/event-stream"})) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat())
        (run,) = proxy.runs
        assert b"the upstream ended before its answer did" in reply.body
        assert (run.state, proxy.runs.counts["upstream_failures", ""]) == ("failed", 1)
        await proxy.aclose()


async def test_upstreams_have_their_paths_and_others_are_told_so(upstream: LocalOpenAI) -> None:
    root = upstream.base_url.removesuffix("/v1")
    proxy = Proxy({"openai": root})
    assert (await ask(proxy, "POST", f"/openai{CHAT}", chat())).status == 200
    assert upstream.requests[0].path == CHAT
    lost = await ask(proxy, "POST", CHAT, chat())
    assert (lost.status, b"/openai/" in lost.body) == (404, True)
    mounted = Proxy(root)
    reply = await ask(mounted, "POST", f"/llm{CHAT}", chat(), root_path="/llm")
    assert reply.header("x-agent-monitor").startswith("watched")
    await proxy.aclose()
    await mounted.aclose()


async def test_cookies_of_one_client_are_not_sent_for_the_next() -> None:
    with answering(Reply(200, b"{}", {"set-cookie": "session=secret; Path=/"})) as server:
        proxy = proxy_of(server)
        first = await ask(proxy, "POST", CHAT, chat(stream=False))
        await ask(proxy, "POST", CHAT, chat(stream=False))
        assert first.header("set-cookie") == "session=secret; Path=/"
        assert "cookie" not in server.requests[1].headers
        await proxy.aclose()


async def test_a_refusal_and_a_redirect_of_the_upstream_pass_unchanged() -> None:
    refused = error_reply(429, "slow down")
    for reply in (refused, Reply(307, b"", {"location": "https://example.org/"})):
        with answering(reply) as server:
            proxy = proxy_of(server)
            got = await ask(proxy, "POST", CHAT, chat())
            assert (got.status, got.body) == (reply.status, reply.body)
            assert got.header("x-agent-monitor").startswith(f"unwatched; status {reply.status}")
            await proxy.aclose()


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_request_for_a_whole_answer_that_is_refused_is_made_once(status: int) -> None:
    refused = error_reply(status, "the model m does not exist")
    with answering(refused) as server:
        proxy = proxy_of(server)
        got = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert (got.status, got.body, len(server.requests)) == (status, refused.body, 1)
        await proxy.aclose()


async def test_an_upstream_that_is_not_there_is_an_error_of_the_format() -> None:
    proxy = Proxy("http://127.0.0.1:9")
    reply = await ask(proxy, "POST", CHAT, chat())
    assert reply.status == 502
    assert "could not be reached" in reply.json["error"]["message"]
    assert (await ask(proxy, "GET", "/v1/models")).status == 502
    await proxy.aclose()


async def test_an_upstream_that_is_silent_too_long_is_a_timeout() -> None:
    with answering(Stall()) as server:
        proxy = proxy_of(server, silence_s=0.1)
        assert (await ask(proxy, "POST", CHAT, chat())).status == 504
        await proxy.aclose()


async def test_a_relayed_answer_that_breaks_off_is_cut_off() -> None:
    with answering(text("hel"), Cut()) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", "/v1/x;/responses", chat())
        assert b"hel" in reply.body
        assert not reply.whole
        await proxy.aclose()


async def test_a_request_that_is_too_long_is_relayed_whole_and_said(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, most_body=1_000)
    long = chat("x" * 5_000)
    reply = await ask(proxy, "POST", CHAT, long)
    assert reply.header("x-agent-monitor") == "unwatched; the request is too long"
    assert upstream.requests[0].body == long
    await proxy.aclose()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "m"}', b"\xff", b'{"model": "m", "messages": [7]}'])
async def test_a_request_that_cannot_be_read_is_relayed_and_said(upstream: LocalOpenAI, body: bytes) -> None:
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", CHAT, body)
    assert reply.header("x-agent-monitor").startswith("unwatched; ")
    assert len(upstream.requests) == 1
    await proxy.aclose()


async def test_a_malformed_stream_passes_as_it_is_and_is_said() -> None:
    garbage = b"data: {\xff\n\ndata: [1]\n\n: hm\n\nnonsense\r\n\r\n"
    with answering(text("hel"), Raw(garbage), text("lo"), finish()) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat())
        assert garbage in reply.body
        assert reply.body.endswith(b"data: [DONE]\n\n")
        (run,) = proxy.runs
        assert run.unwatched
        await proxy.aclose()


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress, lambda body: zlib.compress(body, wbits=-15)])
async def test_a_packed_answer_is_unpacked_and_watched(packed: Callable[[bytes], bytes]) -> None:
    chant = json.dumps({"choices": [{"index": 0, "message": {"content": "I will now read the file again. " * 40}}]})
    coding = "gzip" if packed is gzip.compress else "deflate"
    with answering(Reply(200, packed(chant.encode()), {"content-encoding": coding})) as server:
        proxy = proxy_of(server, on_loop="observe")
        reply = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert reply.body.decode() == chant
        assert not reply.header("content-encoding")
        assert reply.header("x-agent-monitor").startswith("watched")
        assert proxy.runs.counts["detections", "content_repetition"]
        await proxy.aclose()


async def test_an_answer_packed_in_a_form_of_its_own_is_relayed_and_said() -> None:
    with answering(Reply(200, b"\x8b\x02", {"content-encoding": "br"})) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert reply.body == b"\x8b\x02"
        assert reply.header("x-agent-monitor").startswith("unwatched; the answer is packed with br")
        await proxy.aclose()


async def test_a_damaged_packed_answer_is_an_error_that_may_pass() -> None:
    with answering(Reply(200, gzip.compress(b"{}" * 50)[:20], {"content-encoding": "gzip"})) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert (reply.status, reply.header("x-should-retry")) == (502, "")
        await proxy.aclose()


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
async def test_a_stream_is_known_by_its_content_and_its_loop_is_cut(kind: str) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "I will now read the file again. "}}]}\n\n'
    with answering(Reply(200, event * 200, {"content-type": kind})) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat())
        assert len(reply.body) < 40 * len(event)
        assert reply.body.endswith(b"data: [DONE]\n\n")
        await proxy.aclose()


@pytest.mark.parametrize("body", [b"no JSON", b"data: {oops\n\n", b'data: x\n\ndata: {"choices": []}\n\n'])
async def test_no_header_says_watched_of_what_was_not_read(body: bytes) -> None:
    with answering(Reply(200, body, {"content-type": "text/event-stream"})) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat())
        assert body in reply.body
        assert reply.header("x-agent-monitor").startswith("unwatched; ")
        whole = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert not whole.header("x-agent-monitor").startswith("watched")
        await proxy.aclose()


async def test_an_answer_in_one_piece_that_loops_is_cut_and_says_so() -> None:
    with answering(*[text("I will now read the file again. ")] * 400, finish()) as server:
        proxy = proxy_of(server)
        reply = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert reply.header("x-agent-monitor").startswith("stopped; loop_detected")
        assert reply.header("content-type") == "application/json"
        said = reply.json["choices"][0]["message"]["content"]
        assert "stopped this answer: it repeated itself" in said
        assert len(said) < 2_000
        strict = proxy_of(server, on_loop="error")
        assert "loop_detected" in (await ask(strict, "POST", CHAT, chat(stream=False))).json["error"]["message"]
        seen = proxy_of(server, on_loop="observe")
        assert (await ask(seen, "POST", CHAT, chat())).body.endswith(b"data: [DONE]\n\n")
        for one in (proxy, strict, seen):
            await one.aclose()


async def test_a_name_of_a_run_that_is_none_is_refused(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", CHAT, chat(), headers={"x-agent-monitor-run": "a/b <script>"})
    assert (reply.status, "x-agent-monitor-run" in reply.json["error"]["message"]) == (400, True)
    assert upstream.requests == []
    await proxy.aclose()


@pytest.mark.parametrize(
    "address",
    ["", "api.openai.com", "ftp://x", "https://", "https://u:p@x", "https://x/v1", "https://x?key=1", "http://x:99999"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        Proxy(address)
