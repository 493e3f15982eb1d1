"""The proxy's own pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from monitor.errors import ConfigError
from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.proxy.keys import NOBODY
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Stall, finish, text
from tests.proxy.asked import BEARER, TOKEN, Reply, ask, chat, looping

pytestmark = pytest.mark.anyio
CHAT, PAGES = "/v1/chat/completions", "/agent-monitor/"


@pytest.fixture
def upstream() -> Iterator[LocalOpenAI]:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        yield server


def proxy_of(server: LocalOpenAI, **options: Any) -> Proxy:
    return Proxy(server.base_url.removesuffix("/v1"), token=TOKEN, **options)


@pytest.mark.parametrize("path", ["metrics", "runs", "events", "runs/no-key/x"])
@pytest.mark.parametrize("given", [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}])
async def test_pages_with_data_need_the_token(path: str, given: dict[str, str]) -> None:
    proxy = Proxy("http://127.0.0.1:9", token=TOKEN)
    reply = await ask(proxy, "GET", f"{PAGES}{path}", headers=given)
    assert (reply.status, list(reply.json)) == (401, ["error"])


async def test_the_health_and_the_empty_page_need_none() -> None:
    proxy = Proxy("http://127.0.0.1:9", token=TOKEN)
    assert (await ask(proxy, "GET", f"{PAGES}health")).json == {"ok": True, "held": 0}
    page = await ask(proxy, "GET", PAGES)
    assert b"<script>" in page.body
    assert "default-src 'none'" in page.header("content-security-policy")
    assert "unsafe" not in page.header("content-security-policy")
    assert TOKEN.encode() not in page.body


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "x", 404), ("POST", "runs", 405), ("PUT", "", 405)])
async def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    assert (await ask(Proxy("http://127.0.0.1:9"), method, f"{PAGES}{path}")).status == status


async def test_metrics_are_lines_that_prometheus_reads(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    await ask(proxy, "POST", CHAT, chat())
    await ask(proxy, "POST", CHAT, looping(5))
    text_ = (await ask(proxy, "GET", f"{PAGES}metrics", headers=BEARER)).body.decode()
    samples = [line for line in text_.splitlines() if not line.startswith("#")]
    name, labels, number = r"agent_monitor_proxy_[a-z_]+", r'(\{[a-z]+="(\\.|[^"\\])*"\})?', r"[0-9.]+"
    assert all(re.fullmatch(f"{name}{labels} {number}", line) for line in samples)
    assert 'agent_monitor_proxy_requests_total{format="openai-chat"} 2' in samples
    assert 'agent_monitor_proxy_stops_total{reason="loop_detected"} 1' in samples
    assert 'agent_monitor_proxy_loops_over_turns_total{detector="tool_call_repetition"} 1' in samples
    await proxy.aclose()


async def test_a_run_is_shown_and_stopped_by_an_operator() -> None:
    with LocalOpenAI([[text("hel"), Stall()]]) as server:
        proxy = proxy_of(server)
        path = f"{PAGES}runs/no-key/mine"
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ask(proxy, "POST", CHAT, chat(), headers={"x-agent-monitor-run": "mine"}))
            await anyio.to_thread.run_sync(server.wait_request)
            assert (await ask(proxy, "GET", path, headers=BEARER)).json["active"] == 1
            assert (await ask(proxy, "POST", f"{path}?do=go", headers=BEARER)).status == 409
            assert (await ask(proxy, "POST", f"{path}?do=fly", headers=BEARER)).status == 400
            assert (await ask(proxy, "POST", f"{path}?do=stop", headers=BEARER)).status == 200
        run = (await ask(proxy, "GET", path, headers=BEARER)).json
        assert (run["state"], run["last_stop"]["reason"]) == ("stopped", "aborted")
        assert (await ask(proxy, "POST", f"{path}?do=stop", headers=BEARER)).status == 409
        await server.wait_closed_async(0)
        await proxy.aclose()


async def test_only_the_newest_runs_are_kept(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, most_runs=3)
    for number in range(6):
        await ask(proxy, "POST", CHAT, chat(f"Task {number}"))
    assert len((await ask(proxy, "GET", f"{PAGES}runs", headers=BEARER)).json["runs"]) == 3
    await proxy.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer sk-alice"}, 200),
        ({"x-api-key": "sk-alice"}, 200),
        ({"authorization": "Bearer sk-bob"}, 401),
        ({}, 401),
        ({"authorization": "Bearer sk-alice", "x-api-key": "sk-bob"}, 400),
    ],
)
async def test_only_named_keys_pass_where_that_was_chosen(headers: dict[str, str], status: int) -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        names = KeyNames({"alice": digest_of("sk-alice")}, only=True)
        proxy = Proxy(server.base_url.removesuffix("/v1"), keys=names)
        assert (await ask(proxy, "POST", CHAT, chat(), headers=headers)).status == status
        await proxy.aclose()
        assert len(server.requests) == (status == 200)


def test_a_table_without_names_lets_nobody_pass_and_is_refused() -> None:
    with pytest.raises(ConfigError, match="nobody could"):
        KeyNames(only=True)


def test_a_key_has_its_name_or_a_hash_that_nobody_can_check() -> None:
    names = KeyNames({"alice": digest_of("sk-alice")})
    assert names.name_of(b"sk-alice") == "alice"
    assert names.name_of(b"sk-bob") == names.name_of(b"sk-bob") != KeyNames().name_of(b"sk-bob")
    assert (names.name_of(None), names.name_of(b"")) == (NOBODY, NOBODY)


@pytest.mark.parametrize(
    "table",
    [
        {"alice": "sk-alice"},
        {"a/b": digest_of("x")},
        {"key-1": digest_of("x")},
        {"a": digest_of("x"), "b": digest_of("x")},
    ],
)
def test_a_table_of_keys_has_names_and_digests(table: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        KeyNames(table)
    assert "sk-alice" not in str(raised.value)


def test_a_token_that_is_given_is_not_empty() -> None:
    with pytest.raises(ConfigError, match="the token is empty"):
        Proxy("http://127.0.0.1:9", token="")


async def test_a_live_page_ends_when_the_server_begins_to_shut_down() -> None:
    proxy = Proxy("http://127.0.0.1:9", token=TOKEN)
    replies: list[Reply] = []

    async def look() -> None:
        replies.append(await ask(proxy, "GET", f"{PAGES}events", headers=BEARER))

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        await anyio.lowlevel.checkpoint()
        proxy.close_pages()
    assert replies[0].whole
    late = await ask(proxy, "GET", f"{PAGES}events", headers=BEARER)
    assert late.whole


async def test_a_proxy_that_drains_says_so_in_its_readiness_and_still_answers(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    assert (await ask(proxy, "GET", f"{PAGES}ready")).json == {"ready": True}
    await proxy.drain(60)
    reply = await ask(proxy, "GET", f"{PAGES}ready")
    assert (reply.status, reply.json["ready"]) == (503, False)
    assert "running answers" in reply.json["why"]
    assert (await ask(proxy, "GET", f"{PAGES}health")).status == 200
    assert (await ask(proxy, "POST", CHAT, chat())).status == 200
    await proxy.aclose()


async def test_an_answer_that_outlasts_the_drain_gets_the_end_of_its_format() -> None:
    with LocalOpenAI([[text("hello"), Stall()]]) as server:
        proxy, replies = proxy_of(server), list[Reply]()
        async with anyio.create_task_group() as group:

            async def asked() -> None:
                replies.append(await ask(proxy, "POST", CHAT, chat()))

            group.start_soon(asked)
            await anyio.to_thread.run_sync(server.wait_request)
            await anyio.wait_all_tasks_blocked()
            await proxy.drain(0)
        await server.wait_closed_async(0)
        await proxy.aclose()
    [reply] = replies
    assert "the proxy shuts down" in reply.body.decode()
    assert reply.body.decode().endswith("data: [DONE]\n\n")


async def test_a_request_for_a_web_socket_is_refused_in_words(upstream: LocalOpenAI) -> None:
    headers = {"connection": "upgrade", "upgrade": "WebSocket"}
    reply = await ask(proxy_of(upstream), "GET", "/v1/responses", headers=headers)
    assert reply.status == 501
    assert b"use the streams of HTTP" in reply.body
    assert upstream.requests == []


async def test_histograms_count_what_is_below_each_bound(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    await ask(proxy, "POST", CHAT, chat())
    await ask(proxy, "POST", CHAT, looping(5))
    lines = (await ask(proxy, "GET", f"{PAGES}metrics", headers=BEARER)).body.decode().splitlines()
    value = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert value['agent_monitor_proxy_first_byte_seconds_bucket{le="+Inf"}'] == "2"
    assert value["agent_monitor_proxy_added_seconds_count"] == "1"
    assert value["agent_monitor_proxy_stopped_answer_bytes_count"] == "1"
    assert value['agent_monitor_proxy_upstream_status_total{status="200"}'] == "1"
    for name in ("first_byte_seconds", "added_seconds", "stopped_answer_bytes"):
        counts = [int(value[key]) for key in value if key.startswith(f"agent_monitor_proxy_{name}_bucket")]
        assert counts == sorted(counts)
    await proxy.aclose()
