"""Random trees of agents under one guard: one after the other or side by side, in tasks and in
threads, with calls that fail and are tried again, agents that are cancelled, and a run that is
stopped at any moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.events import Envelope, RunStarted, RunTerminated, TurnEnded
from tests.examples import FEWER_EACH

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason
STOPS = {
    None: None,
    "abort": Reason.ABORTED,
    "abort from a thread": Reason.ABORTED,
    "chant": Reason.LOOP_DETECTED,
    "turns": Reason.MAX_TURNS,
    "tokens": Reason.TOKEN_LIMIT,
    "bug": Reason.ERROR,
}
"""What ends the run, and the reason that it then has. `bug`: the caller's own code raises."""


@dataclass(frozen=True)
class Agent:
    """An agent: its turns before its answer, each with one call for each of its children."""

    turns: int
    children: tuple[Agent, ...] = ()
    at_once: bool = False
    in_thread: bool = False
    fails: int = 0
    """Its first model call fails so often, and is made again."""
    cancelled: bool = False
    """It is cancelled in its first turn, and its siblings go on."""


def agents(depth: int) -> st.SearchStrategy[Agent]:
    children = st.lists(agents(depth - 1), max_size=3).map(tuple) if depth else st.just(())
    return st.builds(
        Agent,
        turns=st.integers(1, 2),
        children=children,
        at_once=st.booleans(),
        in_thread=st.booleans(),
        fails=st.integers(0, 1),
        cancelled=st.sampled_from([False, False, False, True]),
    )


class Bug(Exception):
    """An exception of the caller's."""


@dataclass
class World:
    """What the services have seen, and when the run is stopped."""

    guard: monitor.Guard[Any]
    stop: str | None
    at: int
    """The object at which the run is stopped."""
    objects: int = 0
    opened: int = 0
    closed: int = 0
    late: int = 0
    """Model calls that were made after the stop."""
    overwritten: int = 0
    """Calls that were no longer open when their result came."""
    events: list[Envelope] = field(default_factory=list)

    def receive(self, envelope: Envelope, /) -> None:
        self.events.append(envelope)

    def asked(self) -> None:
        """A model call is made."""
        self.opened += 1
        self.late += self.guard.stop is not None

    def acts(self) -> bool:
        """One more object is written. Whether it is the one at which the run is stopped."""
        self.objects += 1
        return self.objects == self.at

    def ends_here(self) -> list[Chunk]:
        """Stop the run, perhaps by the pieces that are returned."""
        if self.stop == "abort":
            self.guard.abort("enough")
        elif self.stop == "bug":
            raise Bug
        return [TextDelta("Let me check the file again. ")] * 400 if self.stop == "chant" else []


class AsyncCall(AsyncIterator[Chunk]):
    """A streamed answer of a service."""

    def __init__(self, world: World, pieces: list[Chunk], *, fails: bool) -> None:
        world.asked()
        self._world, self._pieces, self._fails = world, pieces, fails
        self._open = True

    async def __anext__(self) -> Chunk:
        await anyio.lowlevel.checkpoint()
        if self._fails:
            await self.aclose()
            raise ConnectionResetError("gone")
        if not self._pieces:
            await self.aclose()
            raise StopAsyncIteration
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        self._world.closed += self._open
        self._open = False


class SyncCall(Iterator[Chunk]):
    """The same without an event loop."""

    def __init__(self, world: World, pieces: list[Chunk], *, fails: bool) -> None:
        world.asked()
        self._world, self._pieces, self._fails = world, pieces, fails
        self._open = True

    def __next__(self) -> Chunk:
        if self._fails:
            self.close()
            raise ConnectionResetError("gone")
        if not self._pieces:
            self.close()
            raise StopIteration
        return self._pieces.pop(0)

    def close(self) -> None:
        self._world.closed += self._open
        self._open = False


def answer(number: int, calls: int) -> list[Chunk]:
    """One answer: text, a call for each child, 10 tokens."""
    made = [ToolCall(f"c{child}", "ask", {"turn": number, "child": child}) for child in range(calls)]
    return [TextDelta(f"{number} is a step. "), *made, UsageReport(input_tokens=6, output_tokens=4), FINISHED]


FINISHED = TurnFinished(monitor.FinishReason.DONE)


async def turn_of(guard: monitor.Guard[Any], world: World, pieces: list[Chunk], *, fails: bool) -> monitor.outcome.Turn:
    async with guard.watch(lambda: AsyncCall(world, pieces, fails=fails)) as watched:
        async for _ in watched:
            if world.acts():
                if world.stop == "abort from a thread":
                    await anyio.to_thread.run_sync(partial(world.guard.abort, "enough"))
                pieces[:0] = world.ends_here()
    return watched.turn


def turn_in_thread(
    guard: monitor.Guard[Any], world: World, pieces: list[Chunk], *, fails: bool
) -> monitor.outcome.Turn:
    with guard.watch(lambda: SyncCall(world, pieces, fails=fails)) as watched:
        for _ in watched:
            if world.acts():
                if world.stop == "abort from a thread":
                    world.guard.abort("enough")
                pieces[:0] = world.ends_here()
    return watched.turn


def answered(guard: monitor.Guard[Any], world: World, call: ToolCall, result: str) -> None:
    """The result of a call, which must be open until then."""
    world.overwritten += guard.root.stop is None and call not in guard.open_calls
    guard.tool_result(call, result)


async def run(guard: monitor.Guard[Any], world: World, agent: Agent, scope: anyio.CancelScope | None = None) -> None:
    fails = agent.fails
    for number in range(agent.turns):
        calls = len(agent.children)
        turn = await turn_of(guard, world, answer(number, calls), fails=bool(fails))
        while fails and turn.model_error is not None:
            fails -= 1
            turn = await turn_of(guard, world, answer(number, calls), fails=bool(fails))
        if turn.stopped is not None:
            return
        if scope is not None:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        asked = zip(turn.tool_calls, agent.children, strict=True)
        if agent.at_once:
            async with anyio.create_task_group() as group:
                for call, child in asked:
                    group.start_soon(ask, guard, world, call, child, number)
        else:
            for call, child in asked:
                await ask(guard, world, call, child, number)
        if isinstance(guard.check(), monitor.Stop):
            return
    await turn_of(guard, world, answer(agent.turns, 0), fails=False)


async def ask(guard: monitor.Guard[Any], world: World, call: ToolCall, agent: Agent, number: int) -> None:
    if agent.in_thread:
        await anyio.to_thread.run_sync(ask_in_thread, guard, world, call, agent, number)
        return
    with anyio.CancelScope() as scope:
        async with guard.child(call.id, call=call) as child:
            await run(child, world, agent, scope if agent.cancelled else None)
    answered(guard, world, call, f"turn {number}: done by {call.id}")


def ask_in_thread(guard: monitor.Guard[Any], world: World, call: ToolCall, agent: Agent, number: int) -> None:
    with guard.child(call.id, call=call) as child:
        run_in_thread(child, world, agent)
    answered(guard, world, call, f"turn {number}: done by {call.id}")


def run_in_thread(guard: monitor.Guard[Any], world: World, agent: Agent) -> None:
    for number in range(agent.turns):
        turn = turn_in_thread(guard, world, answer(number, len(agent.children)), fails=False)
        if turn.stopped is not None:
            return
        for call, child in zip(turn.tool_calls, agent.children, strict=True):
            ask_in_thread(guard, world, call, child, number)
        if isinstance(guard.check(), monitor.Stop):
            return
    turn_in_thread(guard, world, answer(agent.turns, 0), fails=False)


def limits(stop: str | None, at: int) -> monitor.Condition | None:
    match stop:
        case "turns":
            return monitor.MaxTurns(max(1, at // 4))
        case "tokens":
            return monitor.TokenLimit(10 * max(1, at // 4))
    return None


async def watched_tree(agent: Agent, stop: str | None, at: int) -> World:
    guard: monitor.Guard[Any]
    world = World(None, stop, at)  # type: ignore[arg-type] # set below: the guard tells the world
    world.guard = guard = monitor.Guard(agent="boss", stop_when=limits(stop, at), sinks=[world])
    with anyio.fail_after(60):
        try:
            async with guard:
                await run(guard, world, agent)
        except* Bug:
            pass
    return world


def turns_of(agent: Agent, *, in_task: bool = True, first: bool = True) -> int:
    """The turns of an agent and those below it, if nothing stops them. Nobody cancels the first,
    nor one in a thread.
    """
    in_task = in_task and (first or not agent.in_thread)
    if agent.cancelled and in_task and not first:
        return 1
    return agent.turns * (1 + sum(turns_of(child, in_task=in_task, first=False) for child in agent.children)) + 1


@FEWER_EACH
@given(agent=agents(3), stop=st.sampled_from([*STOPS]), at=st.integers(1, 60))
async def test_a_tree_of_agents_is_one_run(agent: Agent, stop: str | None, at: int) -> None:
    world = await watched_tree(agent, stop, at)
    outcome = world.guard.outcome
    # one ending for each agent; a child begins after its parent, and ends before it
    began = [one.identity for one in world.events if isinstance(one.event, RunStarted)]
    ended = [one.identity.run for one in world.events if isinstance(one.event, RunTerminated)]
    assert sorted(ended) == sorted({one.run for one in began})
    assert isinstance(world.events[-1].event, RunTerminated)
    order = [one.run for one in began]
    for identity in began[1:]:
        assert identity.root == order[0]
        assert identity.parent is not None
        assert order.index(identity.parent) < order.index(identity.run)
        assert ended.index(identity.run) < ended.index(identity.parent)
    # no model call after the stop; every stream is closed; no open call is lost
    assert (world.late, world.overwritten) == (0, 0)
    assert world.opened == world.closed
    # the run's counts are those of its agents; a call that is made again is the same turn
    turns = [(one.identity.run, one.event.turn) for one in world.events if isinstance(one.event, TurnEnded)]
    assert outcome.usage.total_tokens == sum(turn.usage.total_tokens for _, turn in turns)
    assert outcome.turns == len({(run, turn.number) for run, turn in turns})
    # the run ends for the reason that stopped it, or well
    if outcome.reason is not Reason.STREAM_ENDED:
        assert outcome.reason is STOPS[stop]
    if stop is None:
        assert outcome.ok
        assert outcome.turns == turns_of(agent)
