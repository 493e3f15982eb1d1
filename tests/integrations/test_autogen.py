"""AutoGen: its stream, teams of several agents, and its own ways to end a run."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("autogen_agentchat", reason="the framework is not installed: autogen_agentchat")
pytest.importorskip("autogen_ext.models.openai", reason="the framework is not installed: autogen_ext")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TerminatedException
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from pydantic import BaseModel

import monitor
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.errors import AdapterError, ConfigError, FinishReason, TerminateReason
from monitor.integrations.autogen import AutoGenAdapter, GuardedClient, GuardTermination, Stopped
from monitor.testing import LocalOpenAI
from tests.integrations.programs import autogen as program
from tests.integrations.wires import OPENAI

GO = [UserMessage(content="go", source="user")]


def nothing(q: str) -> str:
    """Finds nothing."""
    return f"nothing about {q} was found in the archive"


def result(content: Any, finish_reason: Any = "stop", tokens: int = 0) -> CreateResult:
    return CreateResult(content=content, finish_reason=finish_reason, usage=RequestUsage(tokens, tokens), cached=False)


def read(*items: Any) -> list[Any]:
    adapter = AutoGenAdapter(0)
    return [one for item in items for one in adapter.decode(item)] + list(adapter.finish())


def test_text_and_thinking_are_told_apart():
    assert read("<think>Hm", ", yes.", "</think>", "Yes.", result("Yes.", tokens=3)) == [
        ReasoningDelta("Hm"),
        ReasoningDelta(", yes."),
        TextDelta("Yes."),
        UsageReport(input_tokens=3, output_tokens=3),
        TurnFinished(FinishReason.DONE, "stop"),
    ]


def test_a_whole_answer_without_pieces_is_text():
    assert read(result("Yes.", "length")) == [TextDelta("Yes."), TurnFinished(FinishReason.LENGTH, "length")]


def test_calls_are_read_from_the_result():
    calls = [FunctionCall(id="a", name="look", arguments='{"q": 1}'), FunctionCall(id="", name="look", arguments="")]
    first, second, _ = read(result(calls, "function_calls"))
    assert (first.id, first.name, first.arguments) == ("a", "look", {"q": 1})
    assert (second.id, second.arguments) == ("call_0_1", {})
    assert isinstance(second, ToolCall)


def test_an_object_of_another_library_is_refused():
    with pytest.raises(AdapterError, match="expected a str or a CreateResult of AutoGen, not int"):
        AutoGenAdapter().decode(1)


@pytest.mark.asyncio
async def test_agents_of_a_team_share_the_guard_and_each_result_is_seen_before_the_next_agent():
    guard = monitor.Guard()
    with LocalOpenAI(OPENAI.looks(20)) as server:
        async with guard:
            first = program.client_of(server.base_url, guard)
            second = first.also(program.client_of(server.base_url, monitor.Guard()).wrapped)
            ours = GuardTermination(first, second)
            look = nothing
            members: list[Any] = [AssistantAgent("a", first, tools=[look]), AssistantAgent("b", second, tools=[look])]
            for member in members:  # the name of the tool in the script
                member._workbench[0]._tools[0]._name = "look"
            team = RoundRobinGroupChat(members, termination_condition=ours | MaxMessageTermination(100))
            done = await team.run(task="go")
            await first.close()
            await second.close()
        assert len(server.requests) == 5
    assert done.stop_reason is not None
    assert done.stop_reason.startswith("loop_detected: look was called 5 times in a row with the same arguments")
    assert ours.stop is not None
    assert ours.stop.evidence is not None
    assert [one.detail for one in guard.coverage() if one.what == "results"] == ["4 of 4 calls have their result"]


@pytest.mark.asyncio
async def test_a_condition_says_its_reason_once_and_again_after_a_reset():
    guard = monitor.Guard(stop_when=monitor.MaxTurns(1))
    with LocalOpenAI([OPENAI.says("One.")]) as server:
        async with guard:
            client = program.client_of(server.base_url, guard)
            ours = GuardTermination(client)
            assert await ours([]) is None
            await client.create(GO)
            await client.create(GO)
            message = await ours([])
            assert message is not None
            assert message.content.startswith("max_turns: ")
            assert ours.terminated
            with pytest.raises(TerminatedException):
                await ours([])
            await ours.reset()
            assert await ours([]) is not None
            await client.close()
        assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_half_a_text_is_no_json_so_an_agent_with_a_declared_output_gets_the_exception():
    class Answer(BaseModel):
        done: bool

    guard = monitor.Guard()
    async with guard:
        guard.abort("enough")
        client = program.client_of("http://127.0.0.1:9", guard)
        GuardTermination(client)
        with pytest.raises(Stopped, match="aborted: enough"):
            await client.create(GO, json_output=Answer)
        await client.close()


@pytest.mark.asyncio
async def test_the_token_of_autogen_ends_the_stream_as_a_cancellation():
    guard = monitor.Guard()
    token = CancellationToken()
    with LocalOpenAI([OPENAI.waits()]) as server:
        with pytest.raises(BaseException) as raised:  # noqa: PT011, PT012 - a cancellation is no Exception
            async with guard:
                client = program.client_of(server.base_url, guard)
                async for _ in client.create_stream(GO, cancellation_token=token):
                    token.cancel()
        await server.wait_closed_async(0)
    assert type(raised.value).__name__ == "CancelledError"
    assert guard.outcome.reason is TerminateReason.CANCELLED


def test_only_guarded_clients_can_end_a_team():
    with pytest.raises(ConfigError, match="takes the GuardedClient"):
        GuardTermination(monitor.Guard())  # type: ignore[arg-type]


def test_what_the_wrapped_client_knows_is_handed_on():
    client = program.client_of("http://127.0.0.1:9", monitor.Guard())
    assert isinstance(client, GuardedClient)
    assert client.model_info["function_calling"]
    assert client.total_usage() == client.actual_usage() == RequestUsage(0, 0)
