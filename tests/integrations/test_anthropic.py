"""The tool runner of Anthropic's SDK behind a guard, against a local server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic, beta_async_tool

import monitor
from monitor.errors import ConfigError
from monitor.integrations.anthropic import Stopped, guarded_runner
from monitor.testing import LocalAnthropic
from tests.integrations.wires import ANTHROPIC

pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ASKED: Any = {"max_tokens": 99, "model": "m", "messages": [{"role": "user", "content": "Look."}], "stream": True}


async def run(server: LocalAnthropic, guard: monitor.Guard[Any], answer: Callable[[], str]) -> str:
    """Run to its end. The text of the last turn."""

    @beta_async_tool
    async def look(q: str) -> str:
        """Looks."""
        return answer()

    text = ""
    async with AsyncAnthropic(api_key="x", base_url=server.base_url, max_retries=0) as client, guard:
        runner = client.beta.messages.tool_runner(**ASKED, tools=[look])
        async for events in guarded_runner(runner, guard):
            text = ""
            async for event in events:
                text += event.text if event.type == "text" else ""
    return text


async def test_a_tool_that_polls_well_is_left_alone_and_its_results_are_seen():
    looked = [0]

    def poll() -> str:
        looked[0] += 1
        return f"{looked[0]} of 12 files are copied"

    guard = monitor.Guard()
    with LocalAnthropic(ANTHROPIC.looks(12)) as server:
        assert await run(server, guard, poll) == "It is done."
    assert (looked[0], guard.outcome.turns, guard.outcome.ok) == (12, 13, True)
    covered = {one.what: one.detail for one in guard.coverage()}
    assert covered["results"] == "12 of 12 calls have their result"


async def test_a_loop_of_calls_ends_before_the_next_request():
    guard = monitor.Guard()
    with LocalAnthropic(ANTHROPIC.looks(20)) as server:
        with pytest.raises(Stopped, match="loop_detected"):
            await run(server, guard, lambda: "nothing was found")
        assert len(server.requests) == 5
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED


async def test_a_chant_is_cut_while_it_is_written():
    guard = monitor.Guard()
    with LocalAnthropic([ANTHROPIC.chants()]) as server:
        with pytest.raises(Stopped):
            await run(server, guard, lambda: "")
        await server.wait_closed_async(0)
        assert server.requests[0].events_sent < 500


async def test_a_nudge_stands_behind_the_results():
    guard = monitor.Guard(policy=monitor.Ladder())
    with LocalAnthropic(ANTHROPIC.looks(20)) as server:
        with pytest.raises(Stopped):
            await run(server, guard, lambda: "nothing was found")
        blocks = [request.body["messages"][-1]["content"] for request in server.requests[1:]]
    kinds = [[block["type"] for block in one] for one in blocks]
    assert ["tool_result", "text"] in kinds
    assert any("look" in block.get("text", "") for one in blocks for block in one)


async def test_a_failed_call_is_the_sdks_own_exception():
    guard = monitor.Guard()
    with LocalAnthropic([ANTHROPIC.refuses()]) as server, pytest.raises(anthropic.AuthenticationError):
        await run(server, guard, lambda: "")


async def test_a_synchronous_runner_is_refused():
    with pytest.raises(ConfigError, match="AsyncAnthropic"):
        async for _ in guarded_runner(iter(()), monitor.Guard()):
            pass
