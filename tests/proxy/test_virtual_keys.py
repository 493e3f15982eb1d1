"""Keys that the operator gives to clients, the keys that services get, and a second service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.proxy import Proxy, VirtualKey, VirtualKeys, digest_of, read_keys
from monitor.proxy.keys import RequestRate, new_key, write_keys
from monitor.shared import SQLiteBudgets
from monitor.testing import FakeClock, LocalOpenAI
from monitor.testing.openai_steps import Reply, finish, text
from tests.proxy.asked import ask, chat

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
SECRET = "am-alices-own-key"
ALICE = {"authorization": f"Bearer {SECRET}"}
ANSWER = [text("hello"), finish()]
PATHS = [CHAT, "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent", "/v1/files"]


def alice(**more: Any) -> VirtualKeys:
    return VirtualKeys([VirtualKey(name="alice", digest=digest_of(SECRET), **more)])


async def asked(
    keys: VirtualKeys, path: str = CHAT, body: Any = None, headers: Mapping[str, str] = ALICE, **options: Any
) -> tuple[Any, LocalOpenAI]:
    with LocalOpenAI([ANSWER]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), virtual_keys=keys, **options)
        reply = await ask(proxy, "POST", path, chat() if body is None else body, headers=headers)
        await proxy.aclose()
        return reply, server


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer other"}, 401),
        ({"x-api-key": SECRET[:-1]}, 401),
        ({**ALICE, "x-api-key": "other"}, 400),
    ],
)
async def test_no_other_key_passes(path: str, headers: Mapping[str, str], status: int) -> None:
    reply, server = await asked(alice(), path, headers=headers)
    assert reply.status == status
    assert reply.header("x-should-retry") == "false"
    assert server.requests == []


@pytest.mark.parametrize("now", [1_000_000_000.0, 1_000_000_001.0])
async def test_a_key_that_has_expired_does_not_pass(now: float) -> None:
    keys = alice(expires=datetime.fromtimestamp(1_000_000_000, UTC))
    reply, _ = await asked(keys, wall=lambda: now)
    assert (reply.status, "expired" in reply.body.decode()) == (401, True)
    reply, _ = await asked(keys, wall=lambda: 999_999_999.0)
    assert reply.status == 200


async def test_a_key_may_ask_for_its_models_only() -> None:
    keys = alice(models=("gpt-4o*", "m"))
    for model, status in (("m", 200), ("gpt-4o-mini", 200), ("gpt-5", 403), ("M", 403)):
        assert (await asked(keys, body={**chat(), "model": model}))[0].status == status
    for path in ("/v1/embeddings", "/v1/files"):  # what cannot be read may ask for any model
        reply, server = await asked(keys, path)
        assert (reply.status, server.requests) == (403, [])


async def test_a_request_too_many_in_a_minute_gets_429_and_passes_later() -> None:
    clock = FakeClock()
    with LocalOpenAI([ANSWER]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), virtual_keys=alice(requests_per_minute=2), clock=clock)
        for path in PATHS[:4]:
            statuses = [(await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).status for _ in range(2)]
            reply = await ask(proxy, "POST", path, chat(), headers=ALICE)
            assert (statuses, reply.status, reply.header("retry-after")) == ([200, 200], 429, "30")
            assert not reply.header("x-should-retry")
            clock.advance(60)
        await proxy.aclose()


def test_a_rate_comes_back_evenly() -> None:
    rate = RequestRate()
    assert [rate.wait_s("a", 6, 0.0) for _ in range(7)] == [0.0] * 6 + [10.0]
    assert rate.wait_s("b", 6, 0.0) == 0.0
    assert rate.wait_s("a", 6, 5.0) == 5.0
    assert rate.wait_s("a", 6, 10.0) == 0.0
    assert rate.wait_s("a", None, 10.0) == 0.0


@pytest.mark.parametrize("place", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "query"])
@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_the_service_gets_its_own_key_in_the_place_of_the_clients(place: str, path: str) -> None:
    headers = {} if place == "query" else {place: f"Bearer {SECRET}" if place == "authorization" else SECRET}
    where = f"{path}?a=1&k%65y={SECRET}" if place == "query" else path
    reply, server = await asked(alice(), where, headers=headers, service_keys={"": "sk-own/1"})
    assert reply.status in (200, 404)
    (request,) = server.requests
    shown = f"{request.headers} {request.path}"
    assert SECRET not in shown
    assert ("sk-own%2F1" if place == "query" else "sk-own/1") in shown


def test_a_key_of_a_service_needs_keys_of_clients() -> None:
    with pytest.raises(ConfigError, match="anybody else"):
        Proxy("http://127.0.0.1:1", service_keys={"": "sk-own"})
    with pytest.raises(ConfigError, match="no upstream 'x'"):
        Proxy("http://127.0.0.1:1", virtual_keys=alice(), service_keys={"x": "sk-own"})
    with pytest.raises(ConfigError, match="needs budget="):
        Proxy("http://127.0.0.1:1", virtual_keys=alice(tokens=5))


async def test_a_key_has_a_budget_of_its_own_which_a_new_file_changes() -> None:
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([ANSWER]) as server:
        proxy = Proxy(
            server.base_url.removesuffix("/v1"), virtual_keys=alice(tokens=2_000), budget=store, budget_wait_s=0
        )
        reply = await ask(proxy, "POST", CHAT, chat("word " * 9_000), headers=ALICE)
        assert "token_limit" in reply.header("x-agent-monitor")
        await proxy.renew(virtual_keys=alice(tokens=100_000))
        reply = await ask(proxy, "POST", CHAT, chat("word " * 9_000), headers=ALICE)
        assert "watched" in reply.header("x-agent-monitor")
        with pytest.raises(ConfigError, match="none could be paid"):
            await proxy.renew(virtual_keys=alice(tokens=5))
        await proxy.renew(virtual_keys=VirtualKeys([]))
        assert (await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).status == 401
        await proxy.aclose()
    await store.aclose()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", [500, 503, 529, None])
async def test_a_second_service_is_asked_before_the_first_byte(failure: int | None, *, stream: bool) -> None:
    first = [[Reply(failure, b"{}")]] if failure else [ANSWER]
    with LocalOpenAI(first) as one, LocalOpenAI([ANSWER]) as other:
        address = one.base_url.removesuffix("/v1") if failure else "http://127.0.0.1:9"
        proxy = Proxy(
            address,
            fallbacks=other.base_url.removesuffix("/v1"),
            virtual_keys=alice(),
            service_keys={"": "sk-one"},
            fallback_keys={"": "sk-other"},
        )
        reply = await ask(proxy, "POST", CHAT, chat(stream=stream), headers=ALICE)
        assert (reply.status, "hello" in reply.body.decode()) == (200, True)
        assert reply.header("x-agent-monitor").startswith("watched; fallback; run=")
        assert proxy.runs.counts["fallbacks", ""] == 1
        assert [request.headers["authorization"] for request in other.requests] == ["Bearer sk-other"]
        await proxy.aclose()


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429])
async def test_any_other_answer_of_the_first_service_is_the_answer(status: int) -> None:
    with LocalOpenAI([ANSWER if status == 200 else [Reply(status, b"{}")]]) as one, LocalOpenAI([ANSWER]) as other:
        proxy = Proxy(one.base_url.removesuffix("/v1"), fallbacks={"": other.base_url.removesuffix("/v1")})
        assert (await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).status == status
        assert other.requests == []
        await proxy.aclose()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    keys = [
        VirtualKey(name="a", digest=digest_of("1")),
        VirtualKey(
            name="b",
            digest=digest_of("2"),
            owner="ä",
            expires=datetime(2027, 1, 31, tzinfo=UTC),
            models=("x*",),
            tokens=5,
            requests_per_minute=1,
        ),
    ]
    write_keys(tmp_path / "keys.json", keys)
    assert read_keys(tmp_path / "keys.json").all == keys
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]
    (tmp_path / "keys.json").chmod(0o640)
    (tmp_path / "link").symlink_to("keys.json")
    write_keys(tmp_path / "link", keys[:1])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o640
    assert read_keys(tmp_path / "keys.json").all == keys[:1]


def test_a_file_by_hand_may_be_toml(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys.a]\ndigest = "{digest_of("1")}"\nexpires = 2027-01-31\nmodels = ["x"]\n', "utf-8")
    (key,) = read_keys(file).all
    assert (key.expires, key.models) == (datetime(2027, 1, 31, tzinfo=UTC), ("x",))
    with pytest.raises(ConfigError, match="only read"):
        write_keys(file, [key])


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "{}",
        '{"keys": []}',
        '{"keys": {"a": 1}}',
        '{"keys": {"a": {}}}',
        *(
            json.dumps({"keys": {"a": {"digest": digest_of("1"), **more}}})
            for more in (
                {"secret": "x"},
                {"digest": "my-secret"},
                {"expires": "soon"},
                {"expires": 5},
                {"models": "x"},
                {"models": [""]},
                {"models": [1]},
                {"tokens": 0},
                {"tokens": True},
                {"tokens": "5"},
                {"requests_per_minute": 1.5},
                {"owner": 1},
            )
        ),
        json.dumps({"keys": {"a": {"digest": digest_of("1")}, "b": {"digest": digest_of("1")}}}),
        json.dumps({"keys": {"a b": {"digest": digest_of("1")}}}),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_text(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(wrong, "utf-8")
    with pytest.raises(ConfigError) as refused:
        read_keys(file)
    assert "my-secret" not in str(refused.value)


def test_a_new_key_is_another_one_each_time() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) > 40
