"""The live page in a real browser: it follows the runs, and shows hostile content as data."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from monitor.proxy import Proxy
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


def wait_for(tab: Tab, condition: str) -> None:
    until = time.monotonic() + 20
    while not tab.run(condition):
        assert time.monotonic() < until, condition
        time.sleep(0.02)
