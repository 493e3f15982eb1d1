"""The live page in a real browser: it follows the runs, and shows hostile content as data."""

from __future__ import annotations

import asyncio
import time
from itertools import product
from pathlib import Path

import pytest

from monitor.proxy import ProxiedRun, Proxy
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text
from tests.proxy.asked import TOKEN, ask, looping
from tests.proxy.served import serving
from tests.report.browser import CHROMIUM, Tab, browser

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]
HOSTILE = "<img src=x onerror=document.title='owned'>"


async def test_the_page_follows_the_runs_and_runs_nothing_of_theirs(tmp_path: Path) -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), token=TOKEN)
        async with serving(proxy) as address:

            def look() -> None:
                with browser(tmp_path) as tab:
                    tab.ask("Page.navigate", url=f"{address}/agent-monitor/#token={TOKEN}")
                    wait_for(tab, "document.getElementById('sum')?.textContent.startsWith('0 runs')")
                    request = {**looping(5), "model": HOSTILE}
                    request["messages"][1]["tool_calls"][0]["function"]["name"] = HOSTILE
                    asyncio.run_coroutine_threadsafe(ask(proxy, "POST", "/v1/chat/completions", request), loop).result(
                        20
                    )
                    wait_for(tab, "document.querySelectorAll('#runs tr').length === 1")
                    shown = tab.run("document.getElementById('runs').textContent")
                    assert HOSTILE in shown
                    assert tab.run("document.querySelectorAll('img').length") == 0
                    assert tab.run("document.title") == "Runs behind agent-monitor"

            loop = asyncio.get_running_loop()
            await asyncio.to_thread(look)


LONG = {"reason": "loop_detected", "detail": "the tool read_file was called with the same arguments. " * 6}
RUNS = (
    ProxiedRun("alice/one", "alice", "4f1d9a6be07c4c35", task="Fix the failing test of the parser, " * 4, stops=1),
    ProxiedRun("alice/two", "alice", "x" * 100, model="anthropic/claude-sonnet-4.5-20260101", state="held", held=1),
    ProxiedRun("bob/three", "bob", "short", task="Say hello", tokens=1_234_567, cost_usd=None, state="running"),
)


async def test_the_page_is_readable_at_any_width(tmp_path: Path) -> None:
    proxy = Proxy("http://127.0.0.1:1", token=TOKEN)
    for run in RUNS:
        shown = proxy.runs.begin(run.key, run.name, "openai-chat", run.model or "gpt-5")
        shown.task, shown.state, shown.held, shown.cost_usd = run.task, run.state, run.held, run.cost_usd
        shown.last_stop = {**LONG, "source": "x", "excerpt": "read_file(path) " * 20}
    async with serving(proxy) as address:

        def look() -> None:
            with browser(tmp_path) as tab:
                for width, scheme in product((390, 1440), GROUND):
                    tab.show_as(width=width, dark=scheme == "dark")
                    tab.ask("Page.navigate", url=f"{address}/agent-monitor/#token={TOKEN}")
                    wait_for(tab, "document.querySelectorAll('#runs tr').length === 3")
                    assert tab.run("document.scrollingElement.scrollWidth") <= width
                    wide = "Array.from(document.querySelectorAll('.wide'), (one) => one.scrollWidth - one.clientWidth)"
                    assert tab.run(wide) == [0]
                    rows = "document.querySelectorAll('#runs tr')"
                    assert max(tab.run(f"Array.from({rows}, (row) => row.getBoundingClientRect().height)")) < 450
                    why = "document.querySelectorAll('td.why')"
                    assert min(tab.run(f"Array.from({why}, (why) => why.getBoundingClientRect().width)")) > 200
                    assert tab.run("document.getElementById('runs').textContent.includes('?')")
                    assert tab.run("getComputedStyle(document.body).backgroundColor") == GROUND[scheme]

        await asyncio.to_thread(look)


GROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}


def wait_for(tab: Tab, condition: str) -> None:
    until = time.monotonic() + 60
    while not tab.run(condition):
        assert time.monotonic() < until, condition
        time.sleep(0.02)
