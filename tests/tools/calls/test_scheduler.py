"""Calls between two model turns: order, deadlines, cancellations, and one result for each."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import StoreError, ToolError, ToolErrorKind
from monitor.messages import OPEN, ApprovalRequest, CallRecord, CallState
from monitor.testing import FakeClock
from monitor.tools import InMemoryLedger, Scheduler, ToolAnswer, ToolContext, tool
from monitor.tools.approvals.approval import Approvals
from monitor.tools.base import Admission, CallListener, Tool, ToolKind
from monitor.tools.calls.call import CallsOfRun
from monitor.tools.registry import Registry

pytestmark = pytest.mark.anyio


class Heard(CallListener):
    """What the scheduler told, in order."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.said: list[tuple[Any, ...]] = []

    def changed(self, record: CallRecord) -> None:
        self.records.append(record)

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self.said.append(("output", call.id, stream, text))

    def progressed(self, call: ToolCall, done: float | None, total: float | None, note: str) -> None:
        self.said.append(("progress", call.id, done, total, note))

    def dropped(self, call: ToolCall, why: str) -> None:
        self.said.append(("dropped", call.id, why))

    def states(self, call_id: str) -> list[str]:
        return [record.state.value for record in self.records if record.call_id == call_id]


def question(call: ToolCall) -> ApprovalRequest:
    return ApprovalRequest(
        id=f"ask {call.id}",
        run="r",
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        schema_hash="",
        bound_to="",
        why="the test asks",
    )


class Decided(Approvals):
    """A gate that answers as it was given, when it is released."""

    def __init__(self, **decisions: Admission) -> None:
        self.decisions = decisions
        self.released: dict[str, anyio.Event] = {name: anyio.Event() for name in decisions}

    def admit(self, entry: Any, arguments: Mapping[str, Any], context: ToolContext) -> Admission | ApprovalRequest:
        return question(context.call) if context.call.id in self.decisions else Admission()

    async def ask(self, request: ApprovalRequest, entry: Any, arguments: Mapping[str, Any]) -> Admission:
        await self.released[request.call_id].wait()
        return self.decisions[request.call_id]


def call(name: str, id: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def registry(*tools: Any) -> Registry:
    return Registry(tools)


def texts(results: list[ToolResult]) -> list[str]:
    return [result.text for result in results]


# --- states


@pytest.mark.feature("GT-04", "GT-14")
async def test_every_step_of_a_call_is_stored_before_it_happens_and_told():
    ledger, heard = InMemoryLedger(), Heard()
    seen: list[str] = []

    async def look(context: ToolContext) -> str:
        record = await ledger.find(context.idempotency_key)
        assert record is not None
        seen.append(record.state)
        return "found"

    scheduler = Scheduler(registry(look), run_id="r", ledger=ledger, listener=heard, clock=FakeClock(5.0))
    (result,) = await scheduler.carry_out([call("look", "a")], turn=3)
    assert seen == [CallState.RUNNING]
    assert heard.states("a") == ["intended", "running", "done"]
    last = heard.records[-1]
    assert (last.run, last.turn, last.index, last.attempt, last.text) == ("r", 3, 0, 1, "found")
    assert (last.started_at_s, last.ended_at_s) == (5.0, 5.0)
    assert result.duration_s == 0.0
    assert await ledger.open_calls("r") == []


@pytest.mark.feature("GT-05")
async def test_all_arguments_are_checked_before_anything_runs():
    ran: list[int] = []

    def note(n: int) -> None:
        ran.append(n)

    class Sly:
        """A tool that notes when it is checked."""

        spec = tool(name="sly")(lambda: 1).spec

        def check(self, arguments: Mapping[str, Any]) -> None:
            ran.append(-1)
            raise ToolError("no", kind="invalid_arguments")

        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
            raise AssertionError

    results = await Scheduler(registry(note, Sly())).carry_out(
        [call("note", "a", n=1), call("note", "b", n="x"), call("sly", "c")]
    )
    assert ran == [-1, 1]
    assert [result.error_kind for result in results] == [None, "invalid_arguments", "invalid_arguments"]


@pytest.mark.feature("GT-09", "GT-10")
@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ToolError("x"), "execution_failed"),
        (ToolError("x", kind="not_found"), "not_found"),
        (ToolError("x", kind="outside_workspace"), "outside_workspace"),
        (FileNotFoundError("x"), "not_found"),
        (PermissionError("x"), "permission"),
        (TimeoutError("x"), "timeout"),
        (ValueError("x"), "unhandled"),
        (ExceptionGroup("", [ToolError("a", kind="not_found"), FileNotFoundError("b")]), "not_found"),
        (ExceptionGroup("", [ToolError("a"), ValueError("b")]), "unhandled"),
    ],
)
async def test_an_error_has_its_kind_and_keeps_the_id_and_the_name_of_its_call(raised: Exception, kind: str):
    @tool
    def it() -> None:
        raise raised

    (result,) = await Scheduler(registry(it)).carry_out([call("it", "id-7")])
    assert (result.id, result.name, result.is_error, result.error_kind) == ("id-7", "it", True, kind)
    assert result.duration_s is not None


@pytest.mark.feature("GT-09")
async def test_an_answer_may_say_itself_that_it_is_an_error_and_has_a_line_that_stands_above():
    @tool
    def it() -> ToolAnswer:
        return ToolAnswer("No such host", is_error=True, status="exit code 7")

    (result,) = await Scheduler(registry(it)).carry_out([call("it", "a")])
    assert (result.text, result.error_kind) == ("exit code 7\nNo such host", "execution_failed")
    (unknown,) = await Scheduler(registry(it)).carry_out([call("that", "a")])
    assert unknown.error_kind == "unknown_tool"


async def test_what_a_ledger_raises_ends_the_batch_and_nothing_runs():
    class Full(InMemoryLedger):
        async def intend(self, records: Any) -> Any:
            raise StoreError("the disk is full")

    ran: list[int] = []
    finished: list[str] = []
    scheduler = Scheduler(registry(tool(name="it")(lambda: ran.append(1))), ledger=Full())
    with pytest.raises(StoreError, match="disk is full"):
        await scheduler.carry_out([call("it", "a")], lambda result, _: finished.append(result.id))
    assert (ran, finished) == ([], ["a"])


# --- the key


async def test_the_key_is_made_of_what_the_action_is_and_not_of_where_it_stands():
    keys: dict[str, str] = {}

    @tool
    async def pay(amount: int, context: ToolContext) -> None:
        keys[context.call.id] = context.idempotency_key

    one = Scheduler(registry(pay), run_id="r")
    await one.carry_out([call("pay", "x", amount=1), call("pay", "y", amount=2), call("pay", "z", amount=1)])
    other = Scheduler(registry(pay), run_id="r")
    await other.carry_out([call("pay", "q", amount=2)])
    await other.carry_out([ToolCall("w", "pay", {"amount": 1.0})])
    third = Scheduler(registry(pay), run_id="another")
    await third.carry_out([call("pay", "v", amount=1)])
    assert len({keys["x"], keys["y"], keys["z"], keys["v"]}) == 4
    assert (keys["q"], keys["w"]) == (keys["y"], keys["x"])


async def test_a_run_that_goes_on_elsewhere_counts_the_calls_that_it_has_made_before():
    keys: list[str] = []

    @tool
    async def pay(context: ToolContext) -> None:
        keys.append(context.idempotency_key)

    first = Scheduler(registry(pay), run_id="r")
    await first.carry_out([call("pay", "a")])
    await first.carry_out([call("pay", "b")])
    later = Scheduler(registry(pay), run_id="r")
    later.remember([call("pay", "a")])
    await later.carry_out([call("pay", "b")])
    assert keys[2] == keys[1] != keys[0]


# --- after a crash


class Died(BaseException):
    """The process dies here."""


class Mortal(InMemoryLedger):
    """Survives a process that dies before or after it stores a state."""

    def __init__(self, state: CallState, *, after: bool) -> None:
        super().__init__()
        self.state: CallState | None = state
        self.after = after

    async def intend(self, records: Any) -> Any:
        known = await super().intend(records)
        if self.state is CallState.INTENDED:
            self.state = None
            raise Died
        return known

    async def advance(self, record: CallRecord) -> bool:
        dies = record.state is self.state
        stored = await super().advance(record) if self.after or not dies else False
        if dies:
            self.state = None
            self.dead = True
            raise Died
        return stored if not getattr(self, "dead", False) else True


async def crash(ledger: InMemoryLedger, idempotent: bool, effects: list[str]) -> Scheduler:
    """A run whose process dies at the ledger's fault point, and the scheduler of the next one."""

    @tool(idempotent=idempotent)
    async def pay(context: ToolContext) -> str:
        effects.append(context.idempotency_key)
        return "paid"

    dead = Scheduler(registry(pay), run_id="r", ledger=ledger)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CallsOfRun, "store_rest", nothing)  # a dead process stores nothing more
        with pytest.raises(Died):
            await dead.carry_out([call("pay", "a")])
    ledger.dead = False  # type: ignore[attr-defined]
    alive = Scheduler(registry(pay), run_id="r", ledger=ledger)
    await alive.recover()
    return alive


async def nothing(*_: Any) -> None:
    pass


async def test_a_call_that_was_only_intended_runs_after_a_crash():
    effects: list[str] = []
    alive = await crash(Mortal(CallState.INTENDED, after=True), False, effects)
    (result,) = await alive.carry_out([call("pay", "a")])
    assert (result.text, len(effects)) == ("paid", 1)


@pytest.mark.parametrize(("state", "after", "before"), [(CallState.RUNNING, True, 0), (CallState.DONE, False, 1)])
async def test_a_call_that_was_running_at_a_crash_is_unknown_and_is_not_made_again(
    state: CallState, after: bool, before: int
):
    effects: list[str] = []
    alive = await crash(Mortal(state, after=after), False, effects)
    (result,) = await alive.carry_out([call("pay", "a")])
    assert result.vetoed
    assert "outcome of this call is unknown" in result.text
    assert len(effects) == before


async def test_an_idempotent_call_that_was_running_at_a_crash_is_made_once_more_with_the_same_key():
    effects: list[str] = []
    ledger = Mortal(CallState.DONE, after=False)
    alive = await crash(ledger, True, effects)
    (result,) = await alive.carry_out([call("pay", "a")])
    assert result.text == "paid"
    assert len(effects) == 2
    assert effects[0] == effects[1]
    record = await ledger.find(effects[0])
    assert record is not None
    assert (record.state, record.attempt) == ("done", 2)


async def test_a_call_that_was_done_before_a_crash_is_answered_and_not_made_again():
    effects: list[str] = []
    alive = await crash(Mortal(CallState.DONE, after=True), False, effects)
    (result,) = await alive.carry_out([call("pay", "a")])
    assert (result.text, len(effects)) == ("paid", 1)


async def test_of_two_processes_with_the_same_call_one_runs_it():
    ledger = InMemoryLedger()
    effects: list[str] = []
    both_know = anyio.Event()

    @tool
    async def pay() -> str:
        effects.append("paid")
        await both_know.wait()
        return "paid"

    first = Scheduler(registry(pay), run_id="r", ledger=ledger)
    second = Scheduler(registry(pay), run_id="r", ledger=ledger)
    results: dict[str, ToolResult] = {}

    async def run(name: str, scheduler: Scheduler) -> None:
        (results[name],) = await scheduler.carry_out([call("pay", "a")])
        both_know.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run, "first", first)
        group.start_soon(run, "second", second)
    assert effects == ["paid"]
    assert sorted(result.vetoed for result in results.values()) == [False, True]
    assert {record.state for record in ledger._records.values()} == {CallState.DONE}


# --- approval


async def test_a_call_starts_as_soon_as_it_is_approved_itself_and_the_results_keep_their_order():
    ran: list[str] = []
    gate = Decided(a=Admission(), b=Admission())

    @tool
    async def it(id: str) -> str:
        ran.append(id)
        gate.released["a"].set()
        return id

    gate.released["b"].set()
    scheduler = Scheduler(registry(it), gate=gate)
    results = await scheduler.carry_out([call("it", "a", id="a"), call("it", "b", id="b")])
    assert ran == ["b", "a"]
    assert texts(results) == ["a", "b"]


async def test_an_edit_waits_for_the_one_before_a_denied_edit():
    gate, ran = Decided(b=Admission(CallState.DENIED, "no")), list[str]()
    gate.released["b"].set()

    @tool(kind="edit")
    async def edit(id: str) -> None:
        ran.append(f"{id} begins")
        if id == "a":
            await anyio.wait_all_tasks_blocked()
        ran.append(f"{id} ends")

    await Scheduler(registry(edit), gate=gate).carry_out([call("edit", id, id=id) for id in "abc"])
    assert ran == ["a begins", "a ends", "c begins", "c ends"]


async def test_one_denial_does_not_touch_its_siblings():
    gate = Decided(a=Admission(CallState.DENIED, "no, because"))
    gate.released["a"].set()
    heard = Heard()
    it = tool(name="it")(lambda: "ran")
    results = await Scheduler(registry(it), gate=gate, listener=heard).carry_out([call("it", "a"), call("it", "b")])
    assert texts(results) == ["no, because", "ran"]
    assert (results[0].vetoed, results[0].error_kind) == (True, "denied")
    assert heard.states("a") == ["intended", "awaiting_approval", "denied"]
    assert {record.approval for record in heard.records if record.call_id == "a"} == {None, "ask a"}


async def test_approved_with_other_arguments_those_are_checked_and_used():
    gate = Decided(a=Admission(arguments={"n": 2}), b=Admission(arguments={"n": "x"}))
    for released in gate.released.values():
        released.set()

    @tool
    def it(n: int) -> int:
        return n

    results = await Scheduler(registry(it), gate=gate).carry_out([call("it", "a", n=1), call("it", "b", n=1)])
    assert results[0].text == "2"
    assert results[1].error_kind == "invalid_arguments"


# --- order


class Overlaps:
    """Which calls ran at the same time."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.beside: dict[str, set[str]] = {}
        self.begun: list[str] = []

    async def work(self, id: str) -> None:
        self.running.append(id)
        self.begun.append(id)
        for one in self.running:
            self.beside.setdefault(one, set()).update(self.running)
        for _ in range(20):  # all that may begin now, begins
            await anyio.lowlevel.checkpoint()
        self.running.remove(id)

    def tools(self) -> Registry:
        kinds: tuple[ToolKind, ...] = ("read", "edit", "execute", "other")
        made: list[Tool] = [tool(name=kind, kind=kind)(self.work) for kind in kinds]
        return Registry([*made, tool(name="alone", alone=True)(self.work)])


@pytest.mark.feature("GT-07")
async def test_reads_run_beside_reads_and_edits_and_executions_in_their_order():
    seen = Overlaps()
    names = ["read", "read", "edit", "execute", "read", "other", "read"]
    await Scheduler(seen.tools()).carry_out([call(name, str(n), id=str(n)) for n, name in enumerate(names)])
    assert seen.beside["0"] >= {"0", "1", "5"}
    assert {"2"} <= seen.beside["2"] <= {"2", "5"}
    assert {"3"} <= seen.beside["3"] <= {"3", "5"}
    assert {"4", "6"} <= seen.beside["4"] <= {"4", "6", "5"}


CONFLICTS = {("edit", "edit"), ("edit", "execute"), ("edit", "read"), ("execute", "execute"), ("execute", "read")}


@given(st.lists(st.sampled_from(["read", "edit", "execute", "other", "alone"]), max_size=9))
def test_no_two_calls_that_conflict_overlap_and_conflicting_calls_keep_their_order(names: list[str]):
    seen = Overlaps()

    async def main() -> None:
        calls = [call(name, str(n), id=str(n)) for n, name in enumerate(names)]
        results = await Scheduler(seen.tools()).carry_out(calls)
        assert [result.id for result in results] == [str(n) for n in range(len(names))]

    anyio.run(main)
    for n, name in enumerate(names):
        for m in range(n):
            pair = tuple(sorted((name, names[m])))
            if pair in CONFLICTS or "alone" in pair:
                assert str(m) not in seen.beside[str(n)]
                assert seen.begun.index(str(m)) < seen.begun.index(str(n))


@pytest.mark.feature("GT-07")
async def test_no_more_calls_run_at_once_than_the_limit():
    running = most = 0

    @tool
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1

    results = await Scheduler(registry(work), limit=3).carry_out([call("work", str(n)) for n in range(20)])
    assert most == 3
    assert texts(results) == ["done"] * 20


@pytest.mark.feature("GT-14")
async def test_a_batch_that_is_given_while_another_runs_waits_in_order():
    begun: list[str] = []
    go_on = anyio.Event()

    @tool
    async def work(id: str) -> str:
        begun.append(id)
        await go_on.wait()
        return id

    scheduler = Scheduler(registry(work))
    answers: list[str] = []

    async def give(id: str) -> None:
        answers.extend(texts(await scheduler.carry_out([call("work", id, id=id)])))

    async with anyio.create_task_group() as group:
        for id in "abc":
            group.start_soon(give, id)
            await anyio.wait_all_tasks_blocked()
        assert begun == ["a"]
        go_on.set()
    assert begun == answers == ["a", "b", "c"]


# --- cancellation


@pytest.mark.feature("GT-11", "GT-14")
async def test_an_abort_ends_the_running_batch_and_takes_the_waiting_one_out_and_says_so():
    scheduler = Scheduler(registry(tool(name="work")(anyio.sleep_forever)))
    answers: list[list[ToolResult]] = []

    async def give(id: str) -> None:
        answers.append(await scheduler.carry_out([call("work", id)]))

    async with anyio.create_task_group() as group:
        group.start_soon(give, "a")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(give, "b")
        await anyio.wait_all_tasks_blocked()
        scheduler.abort("somebody pressed stop")
    by_id = {results[0].id: results[0] for results in answers}
    assert by_id["a"].text == "[agent-monitor] This call was not carried out to its end: somebody pressed stop."
    assert by_id["b"].text == "[agent-monitor] This call was not made: somebody pressed stop."
    assert {result.error_kind for result in by_id.values()} == {"cancelled"}
    assert all(result.vetoed for result in by_id.values())


@pytest.mark.feature("GT-11")
@pytest.mark.parametrize("when", ["waiting for approval", "in the queue", "running"])
async def test_one_call_is_cancelled_wherever_it_stands_and_the_others_go_on(when: str):
    gate = Decided(a=Admission(), c=Admission())
    if when != "waiting for approval":
        gate.released["a"].set()
    go_on = anyio.Event()
    entered: list[str] = []

    @tool(name="it", alone=when == "in the queue")
    async def it(id: str) -> str:
        entered.append(id)
        await go_on.wait()
        return id

    heard = Heard()
    scheduler = Scheduler(registry(it), gate=gate, listener=heard)
    results: list[ToolResult] = []

    async def give() -> None:
        calls = [call("it", "c", id="c"), call("it", "a", id="a")]
        gate.released["c"].set()
        results.extend(await scheduler.carry_out(calls))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        assert scheduler.cancel("a", "nobody wants it")
        assert not scheduler.cancel("z")
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert not scheduler.cancel("a")
    assert results[0].text == "c"
    assert results[1].error_kind == "cancelled"
    assert "nobody wants it" in results[1].text
    assert sorted(entered) == (["a", "c"] if when == "running" else ["c"])
    assert heard.states("a")[-1] == "cancelled"


@pytest.mark.feature("GT-14", "GT-11")
async def test_a_cancelled_batch_that_waits_behind_another_is_answered_at_once():
    heard = Heard()
    scheduler = Scheduler(registry(tool(name="work")(anyio.sleep_forever)), ledger=InMemoryLedger(), listener=heard)
    answers: dict[str, list[ToolResult]] = {}
    finished: list[str] = []

    async def give(*ids: str) -> None:
        calls = [call("work", id) for id in ids]
        answers[ids[0]] = await scheduler.carry_out(calls, lambda result, _: finished.append(result.id))

    async with anyio.create_task_group() as group:
        group.start_soon(give, "a")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(give, "b", "c")
        await anyio.wait_all_tasks_blocked()
        assert scheduler.cancel("c", "nobody wants c")
        assert finished == ["c"]  # at once, though the batch still waits
        assert not scheduler.cancel("c")
        assert scheduler.cancel("b", "nobody wants b")
        await anyio.wait_all_tasks_blocked()
        assert list(answers) == ["b"]
        group.cancel_scope.cancel()
    assert texts(answers["b"]) == [f"[agent-monitor] This call was not made: nobody wants {id}." for id in "bc"]
    assert [result.error_kind for result in answers["b"]] == ["cancelled", "cancelled"]
    assert heard.states("b") == heard.states("c") == ["cancelled"]


@pytest.mark.feature("GT-14")
async def test_of_a_waiting_batch_the_calls_that_were_not_cancelled_are_made():
    go_on = anyio.Event()

    async def work(n: int) -> int:
        await go_on.wait()
        return n

    scheduler = Scheduler(registry(work), ledger=InMemoryLedger())
    answers: dict[str, list[ToolResult]] = {}

    async def give(*ids: str) -> None:
        answers[ids[0]] = await scheduler.carry_out([call("work", id, n=ord(id)) for id in ids])

    async with anyio.create_task_group() as group:
        group.start_soon(give, "a")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(give, "b", "c")
        await anyio.wait_all_tasks_blocked()
        scheduler.cancel("b", "nobody wants it")
        go_on.set()
    assert texts(answers["b"]) == ["[agent-monitor] This call was not made: nobody wants it.", str(ord("c"))]


@pytest.mark.feature("GT-11")
async def test_a_tool_that_answers_its_cancellation_says_the_reason_too():
    async def careful() -> ToolAnswer:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return ToolAnswer("half of it", is_error=True, error_kind=ToolErrorKind.CANCELLED)
        raise AssertionError

    scheduler = Scheduler(registry(careful))
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out([call("careful", "a")]))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        scheduler.cancel("a", "nobody wants it")
    assert "nobody wants it" in results[0].text


@pytest.mark.feature("GT-11")
async def test_the_reason_of_a_sibling_that_ends_the_program_reaches_the_others():
    told: list[ToolResult] = []

    async def stop() -> None:
        raise SystemExit("out of disk")

    async def work() -> None:
        await anyio.sleep_forever()

    with pytest.raises(SystemExit):
        await Scheduler(registry(stop, work)).carry_out(
            [call("work", "a"), call("stop", "b")], lambda result, _: told.append(result)
        )
    (cut,) = [result for result in told if result.id == "a"]
    assert "another call of the same answer raised SystemExit: out of disk" in cut.text


async def test_a_call_cancelled_before_its_batch_starts_is_not_made():
    scheduler = Scheduler(registry(tool(name="it")(lambda: "ran")))
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out([call("it", "b")]))

    async with anyio.create_task_group() as group:
        await scheduler._lock.acquire()
        group.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        scheduler.cancel("b", "too late")
        scheduler._lock.release()
    assert "too late" in results[0].text


@pytest.mark.feature("GT-11")
async def test_after_a_cancellation_from_outside_every_call_has_its_result_and_its_end_in_the_ledger():
    ledger, heard = InMemoryLedger(), Heard()
    finished: list[ToolResult] = []

    @tool(alone=True)
    async def forever() -> None:
        await anyio.sleep_forever()

    scheduler = Scheduler(registry(forever), run_id="r", ledger=ledger, listener=heard)
    with anyio.CancelScope() as scope:

        async def strike() -> None:
            await anyio.wait_all_tasks_blocked()
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(strike)
            await scheduler.carry_out(
                [call("forever", "a"), call("forever", "b")], lambda result, _: finished.append(result)
            )
    assert scope.cancelled_caught
    assert [result.id for result in finished] == ["a", "b"]
    assert heard.states("a") == ["intended", "running", "cancelled"]
    assert heard.states("b") == ["intended", "cancelled"]
    assert await ledger.open_calls("r") == []


async def test_an_answer_that_a_tool_gives_although_it_is_cancelled_counts():
    @tool
    async def careful() -> ToolAnswer:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return ToolAnswer("half of it", is_error=True, error_kind="cancelled", status="killed by TERM")  # type: ignore[arg-type]
        raise AssertionError

    scheduler = Scheduler(registry(careful))
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out([call("careful", "a")]))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        scheduler.cancel("a")
    said = "killed by TERM; the reason: it was cancelled\nhalf of it"
    assert (results[0].text, results[0].error_kind) == (said, "cancelled")


# --- deadlines


async def on_clock(scheduler: Scheduler, clock: FakeClock, calls: list[ToolCall], *steps: float) -> list[ToolResult]:
    """Carry out `calls` while the clock moves in `steps`."""
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out(calls))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        for step in steps:
            await anyio.wait_all_tasks_blocked()
            clock.advance(step)
    assert clock.pending == 0
    return results


async def test_a_call_that_takes_too_long_is_an_error_that_names_its_limit():
    clock = FakeClock()
    slow = tool(name="slow", timeout_s=5)(anyio.sleep_forever)
    (result,) = await on_clock(Scheduler(registry(slow), clock=clock), clock, [call("slow", "a")], 4.9, 0.2)
    assert (result.text, result.error_kind) == ("Error: slow did not answer within 5 s", "timeout")
    assert result.duration_s == pytest.approx(5.1)


@pytest.mark.parametrize(
    ("steps", "busy_until", "says"),
    [((4, 4, 4, 4), 12, "did not end within 15 s"), ((4, 4, 6), 4, "made no progress for 5 s")],
)
async def test_progress_extends_a_deadline_up_to_the_hard_one_and_both_are_named(
    steps: tuple[float, ...], busy_until: float, says: str
):
    clock, heard = FakeClock(), Heard()
    rounds = 0

    @tool(timeout_s=5, hard_timeout_s=15)
    async def build(context: ToolContext) -> None:
        nonlocal rounds
        done = 0
        while True:
            now = clock.now()
            rounds += 1
            while clock.now() == now:  # noqa: ASYNC110 - the clock has no event
                await anyio.sleep(0.001)
            done += 1
            if now < busy_until:
                context.progress(done, 3, "a step")

    scheduler = Scheduler(registry(build), clock=clock, listener=heard)
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out([call("build", "a")]))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        for number, step in enumerate(steps, 1):
            while rounds < number:  # noqa: ASYNC110 - a tool counts them
                await anyio.sleep(0.001)
            await anyio.wait_all_tasks_blocked()
            clock.advance(step)
    assert says in results[0].text
    assert "its limits are 5 s without progress and 15 s in all" in results[0].text
    assert heard.said[0] == ("progress", "a", 1, 3, "a step")


async def test_without_a_clock_a_deadline_counts_in_the_time_of_the_event_loop():
    slow = tool(name="slow", timeout_s=0.01)(anyio.sleep_forever)
    quick = tool(name="quick", timeout_s=60)(lambda: "quick")
    results = await Scheduler(registry(slow, quick)).carry_out([call("slow", "a"), call("quick", "b")])
    assert [result.error_kind for result in results] == ["timeout", None]


@pytest.mark.feature("GT-11")
async def test_the_answer_of_a_thread_that_nobody_waits_for_is_dropped_and_that_is_said():
    clock, heard = FakeClock(), Heard()
    begun, go_on = threading.Event(), threading.Event()

    @tool(timeout_s=5)
    def stubborn() -> str:
        begun.set()
        go_on.wait(250)
        return "late"

    scheduler = Scheduler(registry(stubborn), clock=clock, listener=heard)
    results: list[ToolResult] = []

    async def give() -> None:
        results.extend(await scheduler.carry_out([call("stubborn", "a")]))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        while clock.pending == 0 or not begun.is_set():  # noqa: ASYNC110 - the clock has no event
            await anyio.sleep(0.001)
        clock.advance(5)
    assert heard.states("a") == ["intended", "running", "unknown"]
    assert results[0].error_kind == "timeout"
    go_on.set()
    while not scheduler.calls.late:  # noqa: ASYNC110 - it comes from a thread
        await anyio.sleep(0.001)
    scheduler.say_late()
    assert heard.said == [("dropped", "a", "Error: stubborn did not answer within 5 s")]


async def test_the_last_words_of_a_tool_that_ran_out_of_time_stand_below_the_error():
    clock = FakeClock()

    @tool(timeout_s=5)
    async def build() -> ToolAnswer:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return ToolAnswer("compiled 3 of 9", is_error=True)
        raise AssertionError

    (result,) = await on_clock(Scheduler(registry(build), clock=clock), clock, [call("build", "a")], 5)
    assert result.text == "Error: build did not answer within 5 s\ncompiled 3 of 9"


# --- retries


@pytest.mark.parametrize(("idempotent", "tries"), [(True, 2), (False, 1)])
async def test_only_a_call_of_an_idempotent_tool_is_made_again(idempotent: bool, tries: int):
    keys: list[str] = []
    heard = Heard()

    @tool(idempotent=idempotent)
    async def flaky(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("reset")
        return "there"

    (result,) = await Scheduler(registry(flaky), listener=heard).carry_out([call("flaky", "a")])
    assert len(keys) == tries
    assert len(set(keys)) == 1
    assert result.is_error is not idempotent
    assert [record.attempt for record in heard.records if record.state is CallState.RUNNING] == list(
        range(1, tries + 1)
    )


async def test_what_a_tool_refuses_itself_is_not_tried_again():
    tries: list[int] = []

    @tool(idempotent=True)
    def it() -> None:
        tries.append(1)
        raise ToolError("no such page", kind="not_found")

    await Scheduler(registry(it)).carry_out([call("it", "a")])
    assert tries == [1]


# --- output


@pytest.mark.feature("GT-08")
async def test_a_tool_shows_output_and_progress_while_it_runs_also_from_a_thread():
    heard = Heard()

    @tool
    async def build(context: ToolContext) -> str:
        await context.output("compiling\n")
        await context.output("careful\n", "stderr")
        context.progress(1, 2)
        return "built"

    @tool
    def threaded(context: ToolContext) -> str:
        context.progress(note="in a thread")
        anyio.from_thread.run(context.output, "hello")
        return "built"

    await Scheduler(registry(build, threaded), listener=heard).carry_out([call("build", "a"), call("threaded", "b")])
    assert [one for one in heard.said if one[1] == "a"] == [
        ("output", "a", "stdout", "compiling\n"),
        ("output", "a", "stderr", "careful\n"),
        ("progress", "a", 1, 2, ""),
    ]
    assert [one[0] for one in heard.said if one[1] == "b"] == ["progress", "output"]


# --- the law


def ways() -> list[str]:
    good = ["ok", "thread", "alone"]
    return [*good, "error", "crash", "denied", "expired", "unknown", "wrong", "slow", "cancel", "leak"]


@given(st.lists(st.sampled_from(ways()), max_size=14), st.integers(1, 5), st.booleans(), st.integers(0, 6))
def test_whatever_happens_each_call_has_exactly_one_result_in_the_order_of_the_calls(
    kinds: list[str], limit: int, abort: bool, strike_after: int
):
    ledger, heard = InMemoryLedger(), Heard()
    told: list[str] = []

    @tool
    async def leak() -> None:
        error: BaseException | None = None
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except BaseException as kept:
                error = kept
                raise
        assert error is not None
        raise error

    @tool
    async def crash() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("no")

    @tool
    async def error() -> None:
        raise ToolError("no")

    tools = registry(
        leak,
        crash,
        error,
        tool(name="ok", kind="read")(anyio.lowlevel.checkpoint),
        tool(name="thread", kind="edit")(lambda: 1),
        tool(name="denied")(lambda: 1),
        tool(name="expired")(lambda: 1),
        tool(name="wrong")(lambda n: n),
        tool(name="slow", timeout_s=0.001, idempotent=True)(anyio.sleep_forever),
        tool(name="cancel")(anyio.sleep_forever),
        tool(name="alone", alone=True)(anyio.lowlevel.checkpoint),
    )

    class Gate(Decided):
        def admit(self, entry: Any, arguments: Any, context: ToolContext) -> Admission | ApprovalRequest:
            return question(context.call) if context.call.name in {"denied", "expired"} else Admission()

        async def ask(self, request: ApprovalRequest, entry: Any, arguments: Any) -> Admission:
            await anyio.lowlevel.checkpoint()
            return Admission(CallState(request.tool), "no")

    async def main() -> None:
        scheduler = Scheduler(tools, run_id="r", ledger=ledger, listener=heard, gate=Gate(), limit=limit)
        calls = [call(kind, str(n)) for n, kind in enumerate(kinds)]
        results: list[ToolResult] = []

        async def give() -> None:
            results.extend(await scheduler.carry_out(calls, lambda result, _: told.append(result.id)))

        async with anyio.create_task_group() as group:
            group.start_soon(give)
            for _ in range(strike_after):
                await anyio.lowlevel.checkpoint()
            if abort:
                scheduler.abort("stop")
            while not (results or not calls or len(told) == len(calls)):
                for n, kind in enumerate(kinds):
                    if kind == "cancel":
                        scheduler.cancel(str(n))
                await anyio.sleep(0.001)
        assert [result.id for result in results] == [one.id for one in calls]
        assert await ledger.open_calls("r") == []

    anyio.run(main)
    assert sorted(told, key=int) == [str(n) for n in range(len(kinds))]
    for n in range(len(kinds)):
        states = heard.states(str(n))
        assert states.count("intended") <= 1
        assert sum(CallState(state) not in OPEN for state in states) == 1
        assert CallState(states[-1]) not in OPEN


async def test_the_key_is_made_of_the_arguments_as_the_tool_reads_them():
    """A default that was left out, and a number written as a text, make no other action."""
    keys: list[str] = []

    @tool(name="save")
    def save(context: ToolContext, path: str, count: int = 1) -> None:
        keys.append(context.idempotency_key)

    forms: list[dict[str, Any]] = [
        {"path": "a"},
        {"path": "a", "count": 1},
        {"count": "1", "path": "a"},
        {"path": "a", "count": 2},
    ]
    for form in forms:
        await Scheduler({"save": save}, run_id="r").carry_out([ToolCall("1", "save", form)])
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
