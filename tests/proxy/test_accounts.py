"""What keys and runs may spend."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from monitor import Price
from monitor.errors import BudgetUnreachable, ConfigError
from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.shared import SQLiteBudgets
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Pause, Script, finish, rate_limited, text, usage
from tests.proxy.asked import ask, chat

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
ALICE = {"authorization": "Bearer sk-alice"}
KEYS = KeyNames({"alice": digest_of("sk-alice")})
_chance = random.Random(7)
LONG: Script = [
    step
    for _ in range(400)
    for step in (text("".join(_chance.choices(string.ascii_lowercase, k=9)) + " "), Pause(0.001))
]
"""As slow as a model at most: the store is asked for more while it streams."""


def proxy_of(server: LocalOpenAI, store: SQLiteBudgets, **options: Any) -> Proxy:
    return Proxy(server.base_url.removesuffix("/v1"), budget=store, keys=KEYS, **options)


async def spent(store: SQLiteBudgets, name: str) -> tuple[int, int]:
    state = next(state for state in await store.states(name) if state.name == name)
    return state.spent.tokens, state.held.tokens


async def test_an_answer_ends_where_the_budget_of_its_key_does_one_slice_over_at_most() -> None:
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([[*LONG, finish()]]) as server:
        proxy = proxy_of(server, store, key_tokens=300, slice_tokens=100)
        reply = await ask(proxy, "POST", CHAT, chat(), headers=ALICE)
        (run,) = proxy.runs
        assert run.last_stop is not None
        assert run.last_stop["reason"] == "token_limit"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        used, held = await spent(store, "proxy/alice")
        assert 200 < used <= 400
        assert held == 0
        await proxy.aclose()


async def test_what_the_service_reports_is_what_is_spent_and_another_proxy_goes_on_with_it() -> None:
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([[text("hello"), finish(usage=usage(500, output=100))]]) as server:
        first, second = (proxy_of(server, store, key_tokens=3_500) for _ in range(2))
        for number, proxy in enumerate((first, second), 1):
            assert b"hello" in (await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).body
            assert await spent(store, "proxy/alice") == (600 * number, 0)
        await store.set_limit("proxy/alice", tokens=1_200)
        assert b"hello" not in (await ask(second, "POST", CHAT, chat(), headers=ALICE)).body
        await first.aclose()
        await second.aclose()


@pytest.mark.parametrize("question", ["tell me " * 2_000, "tell me " * 20_000], ids=["short", "read in a thread"])
async def test_the_request_is_spent_though_its_service_reports_no_usage(question: str) -> None:
    """A stream of OpenAI reports it only if the client asks; one that was cut never does."""
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([[text("hello"), finish(usage=None)]]) as server:
        proxy = proxy_of(server, store)
        await ask(proxy, "POST", CHAT, chat(question), headers=ALICE)
        used, held = await spent(store, "proxy/alice")
        words = len(question.split())
        assert words / 2 < used < words * 2
        assert held == 0
        (run,) = proxy.runs
        assert (run.tokens, run.estimated) == (used, True)
        await proxy.aclose()


async def test_a_key_that_its_service_refuses_makes_no_row() -> None:
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([[rate_limited()], [text("hello"), finish()]]) as server:
        proxy = proxy_of(server, store, key_tokens=5_000, run_tokens=5_000)
        assert (await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).status == 429
        assert not await store.states()
        assert (await ask(proxy, "POST", CHAT, chat(), headers=ALICE)).status == 200
        key, run = (await store.states("proxy"))[1:]
        assert (key.name, key.tokens, run.tokens) == ("proxy/alice", 5_000, 5_000)
        await proxy.aclose()


@pytest.mark.parametrize("name", ["key_tokens", "run_tokens"])
async def test_a_limit_that_can_pay_no_request_is_refused_at_the_start(name: str) -> None:
    most: Any = {name: 99}
    with pytest.raises(ConfigError, match=f"{name} is 99, but a request holds slice_tokens, 100"):
        Proxy("http://127.0.0.1:9", budget=SQLiteBudgets(":memory:"), slice_tokens=100, **most)


async def test_a_request_with_two_keys_spends_from_no_budget() -> None:
    """Else a client with one key and a random other one would have a new budget each time."""
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        proxy = proxy_of(server, SQLiteBudgets(":memory:"))
        reply = await ask(proxy, "POST", CHAT, chat(), headers={**ALICE, "x-api-key": "another"})
        assert (reply.status, server.requests) == (400, [])
        assert "more than one key" in reply.json["error"]["message"]
        assert (await ask(proxy, "POST", CHAT, chat(), headers={**ALICE, "x-api-key": "sk-alice"})).status == 200
        await proxy.aclose()


async def test_runs_have_limits_of_their_own_below_their_key() -> None:
    store = SQLiteBudgets(":memory:")
    with LocalOpenAI([[text("hello"), finish(usage=usage(900, output=100))]]) as server:
        proxy = proxy_of(server, store, run_tokens=1_050, slice_tokens=50)
        for name, answered in (("one", True), ("one", False), ("two", True)):
            headers = {**ALICE, "x-agent-monitor-run": name}
            assert (b"hello" in (await ask(proxy, "POST", CHAT, chat(), headers=headers)).body) == answered
        assert (await spent(store, "proxy/alice"))[0] == 2_000
        await proxy.aclose()


async def test_a_limit_in_dollars_without_a_price_is_said() -> None:
    store = SQLiteBudgets(":memory:")
    await store.set_limit("proxy", usd=1.0)
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        proxy = proxy_of(server, store)
        reply = await ask(proxy, "POST", CHAT, chat(stream=False), headers=ALICE)
        assert "has a limit in US dollars" in reply.json["error"]["message"]
        priced = proxy_of(server, store, prices=Price(1.0, 2.0))
        assert b"hello" in (await ask(priced, "POST", CHAT, chat(), headers=ALICE)).body
        await proxy.aclose()
        await priced.aclose()


async def test_without_its_store_no_call_is_made_and_the_client_reads_nothing_of_the_store() -> None:
    class Gone(SQLiteBudgets):
        async def reserve(self, *args: Any, **more: Any) -> Any:
            raise BudgetUnreachable("/srv/budgets.db cannot be used")

    with LocalOpenAI([[text("hello"), finish()]]) as server:
        proxy = proxy_of(server, Gone(":memory:"), budget_wait_s=0)
        reply = await ask(proxy, "POST", CHAT, chat(stream=False))
        assert reply.status == 503
        assert reply.header("x-should-retry") == ""
        assert reply.header("x-agent-monitor").startswith("stopped; budget_unreachable")
        assert "its store does not answer" in reply.json["error"]["message"]
        assert b"/srv/" not in reply.body
        (run,) = proxy.runs
        assert "/srv/budgets.db" in str(run.last_stop), "operators read the whole error"
        assert server.requests == []
        await proxy.aclose()


def test_limits_need_a_store() -> None:
    with pytest.raises(ConfigError, match="need budget="):
        Proxy("http://127.0.0.1:9", run_tokens=5)
