"""Steps that share a transaction leave what they leave one after the other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.errors import StoreError
from monitor.events import Nudged
from monitor.messages import ApprovalAnswer, CallState
from monitor.sessions import Changes, InMemorySession, RunRecord, SessionStore, SQLiteSession, message
from tests.sessions.making import assistant, call, request, result, says
from tests.sessions.test_sqlite_session import slow_session

pytestmark = pytest.mark.feature("AC-01")

Step = Callable[[SessionStore], Awaitable[Any]]


def step(method: str, *given: Any, **options: Any) -> Step:
    return lambda store: getattr(store, method)(*given, **options)


def steps_of(seed: int) -> list[Step]:
    """Steps of four runs in a mixed order. Some of them are refused."""
    chance = random.Random(seed)
    runs: list[list[Step]] = []
    for run in ("a", "b", "c", "d"):
        key = call(f"call-{run}", run=run)
        place: dict[str, Any] = {"branch": run, "events_run": run}
        begun = replace(key, state=CallState.RUNNING, attempt=1, started_at_s=1.0)
        seen = "seen " * chance.randrange(30)
        done = replace(begun, state=CallState.DONE, text=seen, ended_at_s=2.0)
        told = [Nudged(float(n), 1, f"{run} {n}") for n in range(chance.randrange(6))]
        record = RunRecord(id=run)
        changes = [
            Changes(runs=[record], nodes=[says(f"go {run}", run=run, turn=1)], **place),
            Changes(nodes=[message(assistant("I look.", f"call-{run}"), run=run, turn=1)], events=told, **place),
            Changes(calls=[key, begun], **place),
            Changes(nodes=[message(result("another"))], **place),  # refused: there is no such call
            Changes(nodes=[message(result(f"call-{run}", seen), run=run, turn=1)], calls=[done], **place),
            Changes(calls=[begun], **place),  # refused: the call has ended
            Changes(requests=[request(f"q-{run}", run=run)]),
            Changes(answers=[ApprovalAnswer(id=f"q-{run}", decision="approved")]),
            Changes(answers=[ApprovalAnswer(id=f"q-{run}", decision="denied")]),  # refused: it has its answer
        ]
        mine = [step("commit", one) for one in changes]
        mine.insert(chance.randrange(3, 7), step("intend", [key]))
        mine.insert(chance.randrange(3, 7), step("advance", begun))
        mine.append(step("switch_node", None, branch=f"{run}-anew"))
        runs.append(mine)
    mixed: list[Step] = []
    while runs:
        mine = chance.choice(runs)
        mixed.append(mine.pop(0))
        runs = [one for one in runs if one]
    return mixed


async def left_by(store: SessionStore) -> Any:
    """The content of a session, without what differs from one session to the next."""
    nodes = await store.nodes()
    number = {node.id: node.seq for node in nodes}
    return {
        "nodes": [
            (node.seq, number.get(node.parent or ""), node.kind, node.run, node.turn, node.body) for node in nodes
        ],
        "heads": {name: number.get(node or "") for name, node in (await store.heads()).items()},
        "calls": await store.calls(),
        "approvals": await store.approvals(),
        "events": [(one.seq, one.run, one.event) for one in await store.events()],
        "problems": await store.verify(),
    }


async def end_of(one: Step, store: SessionStore) -> str:
    try:
        await one(store)
    except StoreError as error:
        return f"{error}"
    return "stored"


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(4))
async def test_steps_in_one_transaction_leave_what_they_leave_one_by_one(tmp_path: Path, seed: int):
    steps = steps_of(seed)
    async with SQLiteSession(tmp_path / "alone.session") as alone, InMemorySession() as memory:
        await alone.append(says("first"))
        await memory.append(says("first"))
        one_by_one = [await end_of(one, alone) for one in steps]
        assert [await end_of(one, memory) for one in steps] == one_by_one
        assert one_by_one.count("stored") < len(steps)

        together, slow = await slow_session(tmp_path / "together.session")
        ends: dict[int, str] = {}

        async def take(number: int, one: Step) -> None:
            ends[number] = await end_of(one, together)

        async with anyio.create_task_group() as group:
            group.start_soon(end_of, step("switch_node", None, branch="holds the thread"), together)
            await anyio.to_thread.run_sync(slow.held.wait)
            for number, one in enumerate(steps):
                group.start_soon(take, number, one)
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            slow.slow = False
            slow.go.set()
        assert [ends[number] for number in range(len(steps))] == one_by_one
        assert together.commits == 3
        await together.switch_node(None, branch="x")
        found = await left_by(together)
        found["heads"] = {name: node for name, node in found["heads"].items() if name not in {"x", "holds the thread"}}
        assert found == await left_by(alone) == await left_by(memory)
        await together.aclose()
