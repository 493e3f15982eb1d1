"""The Claude Agent SDK: its own program runs, against a local service."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="the framework is not installed: claude_agent_sdk")

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, tool

import monitor
from monitor.integrations.claude_agent import watch
from monitor.testing import LocalAnthropic
from tests.integrations.wires import ANTHROPIC, CHANT

pytestmark = pytest.mark.asyncio
LOOK = "mcp__local__look"


def options(url: str, home: Path, answer: Any = lambda: "nothing") -> ClaudeAgentOptions:
    @tool("look", "Looks.", {"q": str})
    async def look(given: Mapping[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": answer()}]}

    quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "IS_SANDBOX")
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home)}
    return ClaudeAgentOptions(
        model="local",
        cwd=home,
        env=env | dict.fromkeys(quiet, "1"),
        system_prompt="Be brief.",
        permission_mode="bypassPermissions",
        include_partial_messages=True,
        setting_sources=[],
        mcp_servers={"local": create_sdk_mcp_server("local", tools=[look])},
    )


async def told(client: ClaudeSDKClient, guard: Any) -> list[Any]:
    if guard is None:
        return [message async for message in client.receive_response()]
    async with watch(client, guard) as watched:
        return [message async for message in watched]


def kinds(messages: list[Any]) -> list[Any]:
    return [
        (type(one).__name__, getattr(one, "event", {}).get("type"), getattr(one, "subtype", None)) for one in messages
    ]


async def test_a_good_answer_gives_the_same_messages_with_the_guard_as_without(tmp_path: Path):
    scripts = [ANTHROPIC.calls(LOOK, {"q": "a"}, "toolu_1"), ANTHROPIC.says("It is ", "done.")] * 2
    seen: list[Any] = []
    with LocalAnthropic(scripts) as server:
        async with monitor.Guard() as guard:
            for one in (None, guard):
                async with ClaudeSDKClient(options(server.base_url, tmp_path)) as client:
                    await client.query("go")
                    messages = await told(client, one)
                seen.append((kinds(messages), messages[-1].result, messages[-1].num_turns))
        assert len(server.requests) == 4
    assert seen[0] == seen[1]
    assert guard.outcome.ok
    assert guard.outcome.turns == 2
    assert guard.outcome.text == "It is done."
    assert guard.outcome.usage.total_tokens == 2 * 10
    assert {one.what: one.guarded for one in guard.coverage()}["results"]


async def test_a_chant_is_cut_at_once_and_the_client_can_be_asked_again(tmp_path: Path):
    with LocalAnthropic([ANTHROPIC.chants(), ANTHROPIC.says("It is ", "done.")]) as server:
        async with ClaudeSDKClient(options(server.base_url, tmp_path)) as client:
            async with monitor.Guard() as guard:
                await client.query("go")
                await told(client, guard)
            await server.wait_closed_async(0)
            assert server.requests[0].events_sent < 1_500
            assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
            assert guard.outcome.closed
            assert guard.outcome.text.startswith(CHANT)
            async with monitor.Guard() as guard:
                await client.query("again")
                await told(client, guard)
            assert guard.outcome.text == "It is done."


async def test_a_loop_of_equal_calls_with_equal_results_is_seen_over_the_turns(tmp_path: Path):
    scripts = [ANTHROPIC.calls(LOOK, {"q": "a"}, f"toolu_{number}") for number in range(20)]
    with LocalAnthropic(scripts) as server:
        async with ClaudeSDKClient(options(server.base_url, tmp_path)) as client, monitor.Guard() as guard:
            await client.query("go")
            await told(client, guard)
        assert len(server.requests) < 9
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert "gave the same result" in guard.outcome.detail


async def test_equal_calls_with_changing_results_are_no_loop(tmp_path: Path):
    numbers = itertools.count(1)
    scripts = [ANTHROPIC.calls(LOOK, {"q": "a"}, f"toolu_{number}") for number in range(6)]
    with LocalAnthropic([*scripts, ANTHROPIC.says("It is ", "done.")]) as server:
        told_by = options(server.base_url, tmp_path, lambda: f"{next(numbers)} of 6 files are copied")
        async with ClaudeSDKClient(told_by) as client, monitor.Guard() as guard:
            await client.query("go")
            await told(client, guard)
    assert guard.outcome.ok, guard.outcome.detail
    assert guard.outcome.turns == 7


async def test_a_limit_of_turns_ends_the_answer(tmp_path: Path):
    scripts = [ANTHROPIC.calls(LOOK, {"q": str(number)}, f"toolu_{number}") for number in range(20)]
    with LocalAnthropic(scripts) as server:
        guard = monitor.Guard(stop_when=monitor.MaxTurns(2))
        async with ClaudeSDKClient(options(server.base_url, tmp_path)) as client, guard:
            await client.query("go")
            await told(client, guard)
        assert len(server.requests) <= 3
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS
    assert guard.outcome.turns == 2
