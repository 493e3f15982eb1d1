"""Several proxies behind one balancer: one page, one set of runs, one operator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import httpx2
import pytest

from monitor.errors import StoreError, TerminateReason
from monitor.proxy import Proxy
from monitor.proxy import runs as peers
from monitor.proxy.runs import Peers, ProxiedRun, ProxiedRuns, merged
from monitor.shared import RowNews, SharedRow, rows_at
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Stall, finish, text
from monitor.verdicts import Stop
from tests import databases
from tests.proxy.asked import BEARER, TOKEN, chat, looping
from tests.proxy.served import serving

pytestmark = pytest.mark.anyio
KEY = {"authorization": "Bearer sk-a-key-that-nobody-has-named"}
RUN = {**KEY, "x-agent-monitor-run": "night-7"}


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with databases.valkey() as address:
        yield address


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LOOK_S", 0.01)


@asynccontextmanager
async def two(
    store: str, *answers: Any, **options: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Clients of two proxies behind one balancer, in front of one service."""
    async with AsyncExitStack() as stack:
        room = uuid4().hex  # the server of the store is that of other tests too
        server = stack.enter_context(LocalOpenAI(list(answers) or [[text("hello"), finish()]]))
        clients = list[httpx2.AsyncClient]()
        for _ in range(2):
            made = Proxy(
                server.base_url.removesuffix("/v1"), token=TOKEN, rows=rows_at(store), budget_name=room, **options
            )
            address = await stack.enter_async_context(serving(made))
            clients.append(await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=60)))
        yield clients[0], clients[1]


async def ask(client: httpx2.AsyncClient, body: Any, headers: Any = RUN) -> httpx2.Response:
    return await client.post("/v1/chat/completions", json=body, headers=headers)


async def until(client: httpx2.AsyncClient, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The one run that a proxy shows, when it is so."""
    with anyio.fail_after(60):
        async with client.stream("GET", "/agent-monitor/events", headers=BEARER) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: "):
                    runs = httpx2.Response(200, text=line[6:]).json()["runs"]
                    if len(runs) == 1 and what(runs[0]):
                        return dict(runs[0])
    raise AssertionError("the page ended")


async def test_the_page_of_any_proxy_shows_one_run_that_came_by_both(valkey: str) -> None:
    async with two(valkey) as (one, other):
        for client in (one, other, one):
            assert (await ask(client, chat(), KEY)).status_code == 200
        seen = [await until(client, lambda run: run["requests"] == 3 and not run["active"]) for client in (one, other)]
        assert seen[0] == seen[1]
        assert (seen[0]["state"], seen[0]["task"]) == ("ended", "Go on")
        whole = (await other.get("/agent-monitor/runs", headers=BEARER)).json()
        assert (whole["proxies"], whole["away"]) == (2, False)


@pytest.mark.parametrize("said", ["go", "stop"])
async def test_a_run_that_waits_at_one_proxy_is_answered_at_the_other(valkey: str, said: str) -> None:
    async with two(valkey, on_loop="hold") as (one, other), anyio.create_task_group() as group:
        answers: list[httpx2.Response] = []

        async def wait() -> None:
            answers.append(await ask(one, looping(5)))

        group.start_soon(wait)
        run = await until(other, lambda run: run["state"] == "held")
        done = await other.post(f"/agent-monitor/runs/{run['id']}?do={said}", headers=BEARER)
        assert done.status_code == 200
        await until(one, lambda run: run["state"] in {"ended", "stopped"})
        assert ("hello" in answers[0].text) == (said == "go")
        if said == "go":  # the next request comes to the other proxy, and is not held for this loop
            assert "hello" in (await ask(other, looping(6))).text


async def test_an_answer_that_goes_on_at_one_proxy_is_stopped_at_the_other(valkey: str) -> None:
    answers: list[httpx2.Response] = []
    async with two(valkey, [text("hello"), Stall()]) as (one, other), anyio.create_task_group() as group:

        async def wait() -> None:
            answers.append(await ask(one, chat()))

        group.start_soon(wait)
        run = await until(other, lambda run: run["active"] == 1)
        assert (await other.post(f"/agent-monitor/runs/{run['id']}?do=stop", headers=BEARER)).status_code == 200
        run = await until(other, lambda run: run["state"] == "stopped")
        assert run["last_stop"]["reason"] == "aborted"
    assert "an operator stopped it" in answers[0].text


async def test_a_word_for_a_run_that_is_over_is_refused_and_does_not_wait_for_its_next_request(valkey: str) -> None:
    async with two(valkey, on_loop="hold", hold_s=0.2) as (one, other):
        await ask(one, chat())
        run = await until(other, lambda run: run["state"] == "ended")
        assert (await other.post(f"/agent-monitor/runs/{run['id']}?do=stop", headers=BEARER)).status_code == 409
        assert "hello" in (await ask(one, chat())).text


async def test_without_the_store_each_proxy_goes_on_by_itself_and_says_so(tmp_path: Path) -> None:
    async with two(str(tmp_path / "no" / "such" / "folder")) as (one, _):
        assert "hello" in (await ask(one, chat())).text
        whole = (await one.get("/agent-monitor/runs", headers=BEARER)).json()
        assert (len(whole["runs"]), whole["proxies"], whole["away"]) == (1, 1, True)


class Table:
    """A store of rows with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.fails = False
        self.about_to: Callable[[], object] = lambda: None
        """Called before each step."""
        self.rows: list[SharedRow] = []

    async def swap(self, room: str, written: Any, /, *, after: int, keep_s: float, most: int) -> RowNews:
        self.about_to()
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise StoreError("gone")
        for name, value in written.items():
            self.rows = [row for row in self.rows if row.name != name]
            self.rows.append(SharedRow(name, value, self.version + 1, self.now_s))
        return RowNews([row for row in self.rows if row.version > after], self.version, self.now_s)

    @property
    def version(self) -> int:
        return max((row.version for row in self.rows), default=0)

    async def aclose(self) -> None:
        return


def peers_on(table: Table, most: int = 10) -> tuple[Peers, ProxiedRuns]:
    runs = ProxiedRuns(most, lambda: table.now_s)
    return Peers(table, "room", runs, most=most), runs


async def test_the_answers_of_a_proxy_that_is_silent_are_lost_and_not_for_ever_running() -> None:
    table = Table()
    (dead, its_runs), (here, _) = peers_on(table), peers_on(table)
    its_runs.begin("alice", "night", "chat", "m")
    await dead.look()
    await here.look()
    assert (here.run("alice/night") or {})["state"] == "running"
    table.now_s += peers.SILENT_S + 1
    await here.look()
    run = here.run("alice/night") or {}
    assert (run["state"], run["active"], here.proxies) == ("lost", 0, 1)
    assert not here.goes_on("alice/night", held=False)


async def test_what_was_not_written_while_the_store_was_away_is_written_later() -> None:
    table = Table()
    (one, its_runs), (other, _) = peers_on(table), peers_on(table)
    await one.look()
    table.fails = True
    its_runs.leave(its_runs.begin("alice", "night", "chat", "m"))
    await one.look()
    assert one.away
    table.fails = False
    await one.look()
    await other.look()
    assert not one.away
    assert other.run("alice/night") is not None


async def test_what_was_not_written_because_the_request_was_cancelled_is_written_later() -> None:
    table = Table()
    (one, its_runs), (other, _) = peers_on(table), peers_on(table)
    its_runs.leave(its_runs.begin("alice", "night", "chat", "m"))
    with anyio.CancelScope() as scope:
        table.about_to = scope.cancel
        await one.look()
    assert not table.rows
    table.about_to = lambda: None
    await one.look()
    await other.look()
    assert other.run("alice/night") is not None


async def test_loops_that_were_stopped_before_a_proxy_began_are_no_outage_of_now() -> None:
    table = Table()
    (one, its_runs), (late, late_runs), (there, runs) = peers_on(table), peers_on(table), peers_on(table)
    await there.look()
    for number in range(10):
        run = its_runs.begin("alice", str(number), "chat", "m")
        run.end("stopped", Stop(TerminateReason.LOOP_DETECTED, "it repeats itself", "Loops"))
        its_runs.leave(run)
    await one.look()
    await there.look()
    await late.look()
    assert (len(runs.outages()), len(late_runs.outages())) == (1, 0)


async def test_an_answer_is_stopped_here_also_if_the_others_cannot_hear_of_it() -> None:
    table, stopped = Table(), list[str]()
    proxy, (other, its_runs) = Proxy("http://127.0.0.1:9", token=TOKEN, rows=table), peers_on(table)
    proxy.runs.begin("alice", "night", "chat", "m").aborts.append(stopped.append)
    its_runs.begin("alice", "night", "chat", "m")
    await other.look()
    async with serving(proxy) as address, httpx2.AsyncClient(base_url=address, timeout=60) as client:
        await until(client, lambda run: run["active"] == 2)
        table.fails = True
        said = await client.post("/agent-monitor/runs/alice/night?do=stop", headers=BEARER)
    assert (said.status_code, len(stopped)) == (503, 1)


async def test_old_words_are_not_obeyed_by_a_proxy_that_starts_and_new_ones_once() -> None:
    table, said = Table(), list[str]()
    (one, _), (other, _) = peers_on(table), peers_on(table)
    other.obey = lambda run, word, why: said.append(f"{run} {word} {why}")
    await one.say("alice/old", "stop", "old")
    await other.look()
    await one.say("alice/new", "go", "new")
    await other.look()
    await other.look()
    assert said == ["alice/new go new"]


async def test_rows_that_are_no_rows_of_ours_are_passed_over() -> None:
    table = Table()
    (here, _), (one, its_runs) = peers_on(table), peers_on(table)
    odd = ["", "no JSON", "[]", "null", "{}", '{"proxy": "x"}', '{"proxy": "x", "run": "r", "part": {}}', "[" * 10_000]
    for number, value in enumerate(odd):
        await table.swap("room", {f"run/x/{number}": value, f"word/{number}": value}, after=0, keep_s=1, most=10)
    its_runs.begin("alice", "night", "chat", "m")
    await one.look()
    await here.look()
    assert [run["id"] for run in here.all_runs()] == ["alice/night"]


async def test_the_runs_of_others_that_are_known_have_a_bound() -> None:
    table = Table()
    (here, _), (one, its_runs) = peers_on(table, most=3), peers_on(table)
    for number in range(5):
        its_runs.begin("alice", str(number), "chat", "m")
    await one.look()
    await here.look()
    assert {run["name"] for run in here.all_runs()} == {"2", "3", "4"}


def test_a_run_at_several_proxies_is_one_run_with_the_sum_of_their_counts() -> None:
    first = ProxiedRun("a/b", "a", "b", began_s=1, last_s=2, requests=2, tokens=10, cost_usd=1.0, task="Tidy up")
    later = ProxiedRun("a/b", "a", "b", began_s=2, last_s=9, requests=1, tokens=5, cost_usd=0.5, state="ended")
    both = merged([first.to_dict(), later.to_dict()])
    assert (both["requests"], both["tokens"], both["cost_usd"], both["began_s"], both["last_s"]) == (3, 15, 1.5, 1, 9)
    assert (both["task"], both["state"]) == ("Tidy up", "running")
    unknown = ProxiedRun("a/b", "a", "b", cost_usd=None, last_s=10, state="stopped", held=1)
    both = merged([first.to_dict(), later.to_dict(), unknown.to_dict()])
    assert (both["cost_usd"], both["state"]) == (None, "held")
