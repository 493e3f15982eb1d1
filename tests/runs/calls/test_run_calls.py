"""Calls in a run: what the model, the reader of the run and the next run get."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import anyio
import pytest

import monitor
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Nudged,
    RunTerminated,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolStarted,
)
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallState
from monitor.testing import ScriptedModel, call
from monitor.tools import Approval, InMemoryLedger, PendingApprovals, Tool, ToolGroup, ToolWarning, tool
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look, text_of_user

pytestmark = pytest.mark.anyio


CHUNKS = monitor.events.ChunkReceived
"""What the model writes is shown to the reader as it is."""


def states(run: Drive) -> list[str]:
    return [f"{event.record.tool} {event.record.state.value}" for event in run.of(ToolCallChanged)]


# --- events


@pytest.mark.feature("GT-04", "GT-14")
async def test_each_step_of_a_call_is_an_event_and_the_result_has_its_duration():
    run = await drive([call("look", q="x")], "done", tools=[look])
    assert states(run) == ["look intended", "look running", "look done"]
    assert run.of(ToolCallChanged)[0].turn == 1
    assert run.of(ToolFinished)[0].result.duration_s == 0.0


async def test_secrets_in_arguments_are_masked_in_events_and_the_tool_gets_them():
    got: list[str] = []

    async def login(user: str, password: str) -> None:
        got.append(password)

    run = await drive([call("login", user="me", password="hunter2")], "done", tools=[login])
    assert got == ["hunter2"]
    assert [event.record.arguments["password"] for event in run.of(ToolCallChanged)] == ["**********"] * 3
    assert not any("hunter2" in monitor.events.event_codec.dumps(e) for e in run.events if not isinstance(e, CHUNKS))


@pytest.mark.feature("GT-08")
async def test_output_and_progress_of_a_tool_are_events():
    async def build(context: monitor.ToolContext) -> str:
        await context.output("compiling")
        context.progress(1, 2, "halfway")
        return "built"

    run = await drive([call("build")], "done", tools=[build])
    assert [(event.stream, event.text) for event in run.of(ToolOutput)] == [("stdout", "compiling")]
    assert [(event.done, event.total, event.note) for event in run.of(ToolProgressed)] == [(1, 2, "halfway")]


@pytest.mark.feature("GT-08")
async def test_the_reader_of_a_run_sees_output_while_the_tool_still_runs():
    seen = anyio.Event()

    async def build(context: monitor.ToolContext) -> str:
        await context.output("compiling")
        with anyio.fail_after(60):
            await seen.wait()
        return "built"

    supervisor = monitor.Supervisor(ScriptedModel([call("build")], "done"), tools=[build])
    kinds: list[type] = []
    async with supervisor.stream("do it") as run:
        async for event in run:
            kinds.append(type(event))
            if isinstance(event, ToolOutput):
                seen.set()
    assert run.outcome.ok
    assert kinds.index(ToolOutput) < kinds.index(ToolFinished)


@pytest.mark.feature("GT-08")
async def test_a_tool_that_writes_more_than_is_read_waits_for_the_reader():
    written = read = most = 0

    async def build(context: monitor.ToolContext) -> str:
        nonlocal written
        for _ in range(2_000):
            await context.output("x")
            written += 1
        return "built"

    supervisor = monitor.Supervisor(ScriptedModel([call("build")], "done"), tools=[build])
    async with supervisor.stream("do it") as run:
        async for event in run:
            if isinstance(event, ToolOutput):
                read += 1
                await anyio.lowlevel.checkpoint()
                most = max(most, written - read)
    assert read == written == 2_000
    assert most < 300


async def test_a_run_that_is_left_while_a_tool_runs_ends_the_tool():
    ended: list[str] = []

    async def build(context: monitor.ToolContext) -> str:
        try:
            await context.output("compiling")
            await anyio.sleep_forever()
        finally:
            ended.append("build")
        return ""

    supervisor = monitor.Supervisor(ScriptedModel([call("build")], "done"), tools=[build])
    async with supervisor.stream("do it") as run:
        async for event in run:
            if isinstance(event, ToolOutput):
                break
    assert ended == ["build"]
    assert run.outcome.reason is Reason.CLOSED_BY_CALLER
    assert run.history[-1].results[0].error_kind == "cancelled"  # type: ignore[union-attr]


async def test_an_abort_while_tools_run_gives_each_its_result():
    async def forever() -> None:
        await anyio.sleep_forever()

    async def stop(context: monitor.ToolContext) -> None:
        context.run.abort("enough")

    run = await drive([call("forever"), call("stop")], "never", tools=[forever, stop])
    assert run.outcome.reason is Reason.ABORTED
    assert run.results()[0].vetoed
    assert len(run.of(ToolFinished)) == len(run.of(ToolStarted)) == 2
    assert "forever cancelled" in states(run)


# --- the ledger, and ids


async def test_a_run_writes_into_the_ledger_that_it_is_given_under_its_id():
    ledger = InMemoryLedger()
    supervisor = monitor.Supervisor(
        ScriptedModel([call("look", q="x")], "done"), tools=[look], calls=monitor.runs.ToolCalls(ledger=ledger)
    )
    await supervisor.run("do it", run_id="mine")
    (record,) = ledger._records.values()
    assert (record.run, record.tool, record.state, record.text) == ("mine", "look", "done", "found x")


async def test_two_runs_of_one_supervisor_have_keys_of_their_own():
    keys: list[str] = []

    async def pay(context: monitor.ToolContext) -> None:
        keys.append(context.idempotency_key)

    for _ in range(2):
        supervisor = monitor.Supervisor(
            ScriptedModel([call("pay")], "done"), tools=[pay], calls=monitor.runs.ToolCalls(ledger=InMemoryLedger())
        )
        await supervisor.run("do it")
    assert len(set(keys)) == 2


# --- many calls in one response


async def test_a_cycle_of_228_calls_in_one_response_runs_no_tool():
    ran: list[str] = []

    async def read(path: str) -> str:
        ran.append(path)
        return "same"

    calls = [call("read", path=path) for _ in range(76) for path in "abc"]
    run = await drive(calls, "never", tools=[read])
    assert run.outcome.reason is Reason.LOOP_DETECTED
    assert ran == []
    assert run.of(ToolCallChanged) == []


# --- approval


def answered(decision: Any, **fields: Any) -> Any:
    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(id=request.id, decision=decision, **fields)

    return ask


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.feature("GT-06")
async def test_the_model_reads_why_a_call_was_refused_and_that_is_no_error_for_limits():
    refused = [[call("pay", amount=n)] for n in range(4)]
    run = await drive(
        *refused,
        "then not",
        tools=[pay],
        calls=monitor.runs.ToolCalls(approver=answered("denied", reason="too much", by="Ada")),
        stop_when=monitor.MaxConsecutiveErrors(2),
        detectors=None,
    )
    assert run.outcome.reason is Reason.GOAL
    (result,) = run.results(0)
    assert result.text == "[agent-monitor] This call was not made: Ada refused it. The reason: too much"
    assert (result.vetoed, result.error_kind) == (True, "denied")
    assert states(run)[:3] == ["pay intended", "pay awaiting_approval", "pay denied"]
    assert [type(event) for event in run.events if isinstance(event, ApprovalRequested | ApprovalAnswered)] == [
        ApprovalRequested,
        ApprovalAnswered,
    ] * 4


@pytest.mark.feature("GT-06")
async def test_waiting_for_a_person_is_not_charged_to_the_deadline():
    run: Drive

    async def ask(request: ApprovalRequest) -> bool:
        run.clock.advance(10_000)
        return True

    run = Drive(
        [call("pay", amount=1)],
        "done",
        tools=[pay],
        calls=monitor.runs.ToolCalls(approver=ask),
        stop_when=monitor.Timeout(60),
    )
    await run.go()
    assert run.outcome.reason is Reason.GOAL
    assert run.results(0)[0].text == "paid 1"


async def test_a_run_without_an_approver_goes_on_and_the_call_is_refused():
    run = await drive([call("pay", amount=1)], "then not", tools=[pay])
    assert run.outcome.ok
    assert "nobody can approve it here" in run.results(0)[0].text


@pytest.mark.parametrize("through_json", [False, True])
async def test_a_run_is_paused_at_a_question_and_the_next_one_makes_the_approved_call_first(through_json: bool):
    made: list[int] = []

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        made.append(amount)
        return f"paid {amount}"

    pending = PendingApprovals()
    first = await drive(
        [call("look", q="x"), call("pay", amount=5)],
        "never",
        tools=[look, pay],
        calls=monitor.runs.ToolCalls(approver=pending),
    )
    assert first.outcome.reason is Reason.PAUSED
    assert "waits for an approval" in first.outcome.detail
    assert [result.is_error for result in first.results()] == [False, True]
    (request,) = first.outcome.pending
    assert monitor.Outcome.from_dict(first.outcome.to_dict()).pending == (request,)
    assert (request.tool, request.arguments, made) == ("pay", {"amount": 5}, [])
    answer = ApprovalAnswer(id=request.id, decision="approved", bound_to=request.bound_to)
    if through_json:
        pending = PendingApprovals(requests=[request], answers=[answer])
    else:
        pending.answer(answer)
    model = ScriptedModel("all is paid")
    supervisor = monitor.Supervisor(model, tools=[look, pay], calls=monitor.runs.ToolCalls(approver=pending))
    outcome = await supervisor.run("go on", history=first.run.history)
    assert outcome.ok
    assert made == [5]
    results = model.requests[0].messages[1].results  # type: ignore[union-attr]
    assert [result.text for result in results] == ["found x", "paid 5"]


async def test_a_question_that_was_answered_with_no_is_told_in_the_next_run():
    pending = PendingApprovals()
    first = await drive([call("pay", amount=5)], "never", tools=[pay], calls=monitor.runs.ToolCalls(approver=pending))
    (request,) = first.outcome.pending
    pending.answer(ApprovalAnswer(id=request.id, decision="denied", reason="no money", by="Ada"))
    model = ScriptedModel("then not")
    await monitor.Supervisor(model, tools=[pay], calls=monitor.runs.ToolCalls(approver=pending)).run(
        "go on", history=first.run.history
    )
    assert "no money" in model.requests[0].messages[1].results[0].text  # type: ignore[union-attr]


# --- which tools


@pytest.mark.feature("SH-03")
async def test_a_part_of_the_tools_can_be_offered_in_each_turn():
    def offer(turn: int, names: Sequence[str]) -> Sequence[str]:
        return names[turn - 1 : turn]

    tools = [tool(name=name)(lambda: 1) for name in ("a", "b", "c")]
    run = await drive([call("b")], [call("b")], "done", tools=tools, calls=monitor.runs.ToolCalls(offer=offer))
    assert [run.offered(number)[1:] for number in range(3)] == [["a"], ["b"], ["c"]]
    assert run.results(0)[0].text == "[agent-monitor] This call was not made: b is not available in this turn."
    assert run.results(1)[0].text == "1"


async def test_an_offer_of_tools_that_are_not_there_is_a_mistake_of_the_caller():
    with pytest.raises(monitor.ConfigError, match="offer answered"):
        await drive("x", tools=[look], calls=monitor.runs.ToolCalls(offer=lambda turn, names: ["none"]))


@pytest.mark.feature("SH-03")
async def test_more_than_20_tools_are_warned_of():
    tools = [tool(name=f"t{n}")(lambda: 1) for n in range(21)]
    with pytest.warns(ToolWarning, match="more than 20 tools"):
        await drive("done", tools=tools)
    await drive("done", tools=tools, calls=monitor.runs.ToolCalls(offer=lambda turn, names: names[:5]))


class Server:
    """A toolset that is opened and closed."""

    def __init__(self, *names: str, fails: str = "") -> None:
        self.changed = 0
        self.names = list(names)
        self.fails = fails
        self.log: list[str] = []

    def tools(self) -> Sequence[Tool]:
        return [tool(name=name)(partial(self.grow, name)) for name in self.names]

    def grow(self, name: str) -> str:
        self.names.append(f"{name}x")
        self.changed += 1
        return "grown"

    async def __aenter__(self) -> Self:
        self.log.append("open")
        if self.fails == "open":
            raise ConnectionError("no server")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append("close")
        if self.fails == "hang":
            await anyio.sleep_forever()


async def test_a_toolset_is_opened_with_the_run_closed_with_it_and_may_change_meanwhile():
    server = Server("a")
    run = await drive([call("a")], "done", tools=[look, server, ToolGroup([look], prefix="x_")])
    assert run.offered(0)[1:] == ["look", "a", "x_look"]
    assert run.offered(1)[1:] == ["look", "a", "ax", "x_look"]
    assert server.log == ["open", "close"]


async def test_a_toolset_that_does_not_open_ends_the_run_and_those_that_did_are_closed():
    first, second = Server("a"), Server("b", fails="open")
    run = await drive("never", tools=[first, second])
    assert run.outcome.reason is Reason.ERROR
    assert "no server" in run.outcome.detail
    assert (first.log, second.log) == (["open", "close"], ["open"])


async def test_a_toolset_that_does_not_close_is_left_after_a_grace():
    server, other = Server("a", fails="hang"), Server("b")
    with anyio.fail_after(60):
        run = await drive("done", tools=[other, server], close_grace_s=0.05)
    assert run.outcome.ok
    assert other.log == ["open", "close"]


async def test_a_tool_says_what_identifies_its_calls_for_the_detectors():
    @tool(loop_key=lambda given: given["path"])
    async def read(path: str, note: str) -> str:
        return "the same content"

    calls = [[call("read", path="a", note=str(n))] for n in range(30)]
    run = await drive(*calls, "never", tools=[read])
    assert run.outcome.reason is Reason.LOOP_DETECTED
    free = await drive(
        *calls[:12], "done", tools=[tool(name="read")(read.fn)], detectors=[monitor.ToolCallRepetition()]
    )
    assert free.outcome.ok


# --- a hold


LOOPS = [[call("look", q="x")] for _ in range(14)]


def held(*answers: Any) -> tuple[Any, list[ApprovalRequest]]:
    asked: list[ApprovalRequest] = []
    left = list(answers)

    async def ask(request: ApprovalRequest) -> Any:
        asked.append(request)
        return left.pop(0)(request) if callable(left[0]) else left.pop(0)

    return ask, asked


def say(decision: Any, reason: str = "") -> Any:
    return lambda request: ApprovalAnswer(id=request.id, decision=decision, reason=reason)


async def test_a_run_that_loops_is_held_and_stopped_by_the_person_who_sees_the_evidence():
    approver, asked = held(say("denied", "this leads nowhere"))
    run = await drive(
        SENTENCE * 300,
        SENTENCE * 300,
        "never",
        policy=monitor.Ladder(hold=True),
        calls=monitor.runs.ToolCalls(approver=approver),
    )
    assert run.outcome.reason is Reason.LOOP_DETECTED
    assert "the run was held, and was stopped by the person who was asked: this leads nowhere" in run.outcome.detail
    (request,) = asked
    assert request.call_id == ""
    assert request.evidence is not None
    assert SENTENCE.strip()[:40] in request.evidence.evidence.excerpt


async def test_a_run_that_is_held_goes_on_or_gets_a_message_as_the_person_says():
    approver, asked = held(True, say("approved", "read the other file"), say("approved"))
    loops = [SENTENCE * 300] * 4
    run = await drive(*loops, "good", policy=monitor.Ladder(hold=True), calls=monitor.runs.ToolCalls(approver=approver))
    assert run.outcome.reason is Reason.GOAL
    assert len(asked) == 3
    assert [event.text for event in run.of(Nudged)][1:] == ["read the other file"]
    said = [text_of_user(message) for message in run.run.history if getattr(message, "synthetic", False)]
    assert "read the other file" in said


async def test_a_run_that_nobody_can_hold_stops():
    run = await drive(SENTENCE * 300, SENTENCE * 300, "never", policy=monitor.Ladder(hold=True))
    assert run.outcome.reason is Reason.LOOP_DETECTED
    assert "nobody can say how it goes on" in run.outcome.detail


async def test_deadlines_stand_still_while_a_run_is_held():
    run: Drive

    async def ask(request: ApprovalRequest) -> bool:
        run.clock.advance(10_000)
        return True

    options: dict[str, Any] = {
        "policy": monitor.Ladder(hold=True),
        "calls": monitor.runs.ToolCalls(approver=ask),
        "stop_when": monitor.Timeout(60),
    }
    run = Drive(SENTENCE * 300, SENTENCE * 300, "good", **options)
    await run.go()
    assert run.outcome.reason is Reason.GOAL


async def test_a_run_can_be_paused_while_it_is_held():
    pending = PendingApprovals()
    run = await drive(
        SENTENCE * 300,
        SENTENCE * 300,
        "never",
        policy=monitor.Ladder(hold=True),
        calls=monitor.runs.ToolCalls(approver=pending),
    )
    assert run.outcome.reason is Reason.PAUSED
    assert run.outcome.detail.startswith("held: ")
    assert run.outcome.pending[0].evidence is not None


# --- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_parallel_tools": 0}, "parallel=0"),
        ({"max_parallel_tools": True}, "parallel=True"),
        ({"ledger": InMemoryLedger}, "ledger takes objects"),
        ({"approval": "auto"}, "approval is one of"),
        ({"approver": 3}, "approver takes"),
        ({"offer": ["a"]}, "offer takes a function"),
    ],
)
def test_an_option_that_makes_no_sense_is_said_at_once(options: dict[str, Any], says: str):
    with pytest.raises(monitor.ConfigError, match=says):
        monitor.Supervisor(ScriptedModel(), **options)


async def test_the_last_event_is_the_end_of_the_run_also_when_a_call_is_refused():
    run = await drive(
        [call("pay", amount=1)], "ok", tools=[pay], calls=monitor.runs.ToolCalls(approval=Approval(mode="plan"))
    )
    assert isinstance(run.events[-1], RunTerminated)
    assert run.of(ToolCallChanged)[-1].record.state is CallState.DENIED
