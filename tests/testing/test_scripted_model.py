"""A model that says what a test tells it to."""

from __future__ import annotations

import anyio
import pytest

import monitor
from monitor.messages import AssistantMessage, Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import FakeClock, Pause, ScriptedModel, Stall, call

pytestmark = pytest.mark.anyio


def request(text: str = "x") -> ModelRequest:
    return ModelRequest((UserMessage((Text(text),)),))


async def said(model: ScriptedModel, asked: ModelRequest | None = None) -> list[monitor.chunks.Chunk]:
    return [chunk async for chunk in model.stream(asked or request())]


DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)


async def test_each_request_has_the_next_answer_and_ends_well():
    search = call("search", q="x")
    model = ScriptedModel("Hello", [search, "looking"])
    assert await said(model) == [monitor.chunks.TextDelta("Hello"), DONE]
    assert await said(model) == [search, monitor.chunks.TextDelta("looking"), DONE]


async def test_it_remembers_what_it_was_sent_and_whether_that_was_read():
    model = ScriptedModel("a", "b")
    await said(model, request("first"))
    await said(model, request("second"))
    assert [one.messages[0].content[0] for one in model.requests if isinstance(one.messages[0], UserMessage)] == [
        Text("first"),
        Text("second"),
    ]
    assert [stream.exhausted for stream in model.streams] == [True, True]


async def test_an_exception_stands_for_a_failed_call():
    model = ScriptedModel(["so far", ConnectionError("gone")])
    stream = model.stream(request())
    assert await anext(stream) == monitor.chunks.TextDelta("so far")
    with pytest.raises(ConnectionError, match="gone"):
        await anext(stream)


async def test_a_function_answers_by_what_it_is_sent():
    def echo(asked: ModelRequest) -> str:
        return f"{len(asked.messages)} messages"

    assert (await said(ScriptedModel(echo)))[0] == monitor.chunks.TextDelta("1 messages")
    model = ScriptedModel("plain", echo)
    await said(model)
    assert (await said(model))[0] == monitor.chunks.TextDelta("1 messages")


async def test_a_finish_of_the_scripts_own_stands_and_none_may_be_left_out():
    cut_off = monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)
    assert await said(ScriptedModel(["half", cut_off])) == [monitor.chunks.TextDelta("half"), cut_off]
    assert await said(ScriptedModel("half", finishes=False)) == [monitor.chunks.TextDelta("half")]


async def test_a_request_beyond_the_script_ends_the_run_and_says_so():
    model = ScriptedModel([call("nothing")])
    outcome = await monitor.Supervisor(model).run("x")
    assert outcome.reason is monitor.TerminateReason.ERROR
    assert "has 1 answers, and this is request 2" in outcome.detail


async def test_calls_have_ids_of_their_own_and_the_run_answers_them():
    first, second = call("look", at="door"), call("look", at="door")
    assert first.id != second.id
    model = ScriptedModel([first, second], "done")
    await monitor.Supervisor(model, tools=[look]).run("x")
    answered = model.requests[1].messages[1]
    assert isinstance(answered, AssistantMessage)
    assert [result.id for result in answered.results] == [first.id, second.id]


def look(at: str) -> str:
    """Look somewhere."""
    return "nothing"


async def test_a_stall_is_a_model_that_says_nothing_any_more():
    clock, pause = FakeClock(), Pause()
    model = ScriptedModel(["so far", pause, Stall()])
    run = monitor.Supervisor(model, stop_when=monitor.IdleTimeout(10), last_turn=None, clock=clock).stream("x")

    async def goes_on_and_waits() -> None:
        await pause.reached()
        pause.release()
        await anyio.wait_all_tasks_blocked()
        clock.advance(10)

    async with anyio.create_task_group() as tasks, run:
        tasks.start_soon(goes_on_and_waits)
        async for _ in run:
            pass
    assert (run.outcome.reason, run.outcome.text) == (monitor.TerminateReason.IDLE_TIMEOUT, "so far")
