"""The machine of kills: a run whose process dies at any of its commits, and goes on in another one.

A life ends when the run ends, when it is paused, or when its process is killed. The kills of a
sweep are numbered by the commits of all lives together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio.lowlevel

import monitor
from monitor.errors import StoreError
from monitor.messages import ApprovalAnswer, AssistantMessage, CallState, UserMessage
from monitor.models import ModelRequest
from monitor.sessions import (
    Changes,
    Committed,
    InMemorySession,
    Node,
    NodeKind,
    RunStage,
    said_of,
)
from monitor.sessions.sqlite_session import SqlSession
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals
from monitor.tools.base import Tool
from tests.runs.context.test_run_context_compaction import SUMMARY

RUN: Final = "r"
TASK: Final = "do it"
MOST_LIVES: Final = 12


@dataclass(frozen=True)
class Kill:
    """A process dies at its commit number `at`, counted over all lives from 0."""

    at: int
    after: bool
    """The commit is on the disk."""


class KilledStore:
    """A session whose process dies at a commit."""

    def __init__(self, store: SqlSession, commits: list[Changes], kills: Sequence[Kill]) -> None:
        """`commits`: those of the lives before."""
        self.store = store
        self.commits = commits
        self._kills = {one.at: one for one in kills}
        self.dead = False
        """The process is gone: nothing after it is stored, so no tool is entered."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, changes: Changes) -> Committed:
        kill = self._kills.get(len(self.commits))
        if self.dead or (kill is not None and not kill.after):
            self.die()
        done = await self.store.commit(changes)
        self.commits.append(changes)
        if kill is not None:
            self._kills.clear()
            self.die()
        return done

    def die(self) -> None:
        if not self.dead:
            self.commits.append(Changes())  # the number of this commit is used up
        self.dead = True
        raise StoreError("the process is gone")


@dataclass
class World:
    """The effects of the tools, which no crash undoes."""

    effects: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """For each effect, the keys under which it was made."""

    def tools(self, names: Collection[str]) -> list[Tool]:
        """The tools of these names. Others are not made: that takes longer than a turn."""

        async def put(n: int, context: monitor.ToolContext, steps: int = 0) -> str:
            """Put: made again it has no second effect."""
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            self.effects[f"put {n}"].append(context.idempotency_key)
            return f"put {n}"

        async def act(n: int, context: monitor.ToolContext) -> str:
            """Act: made again it has a second effect."""
            self.effects[f"act {n}"].append(context.idempotency_key)
            return f"acted {n}"

        async def pay(n: int, context: monitor.ToolContext) -> str:
            """Pay, if a person agrees."""
            self.effects[f"pay {n}"].append(context.idempotency_key)
            return f"paid {n}"

        async def send(n: int, context: monitor.ToolContext) -> str:
            """Send, if a person agrees."""
            self.effects[f"send {n}"].append(context.idempotency_key)
            return f"sent {n}"

        def look(q: str) -> str:
            """Look something up."""
            return f"found {q}"

        def read(n: int) -> str:
            """Read something of n tokens."""
            return "word" * n

        async def hint(n: int, context: monitor.ToolContext, later: bool = False) -> str:
            """Hint: the person beside the run says something."""
            say = context.run.follow_up if later else context.run.steer
            receipt = await say(f"hint {n}", by="Ada", id=f"hint {n}")
            self.effects[receipt.id].append(context.idempotency_key)
            return f"hinted {n}"

        options: dict[Any, dict[str, Any]] = {
            put: {"idempotent": True},
            act: {},
            pay: {"idempotent": True, "needs_approval": True},
            send: {"needs_approval": True},
            look: {"idempotent": True},
            read: {"idempotent": True},
            hint: {"idempotent": True},
        }
        return [monitor.tool(**how)(one) for one, how in options.items() if one.__name__ in names]


Script = Sequence[Any]
"""The answers of a model: each a text, or a list of calls as names with arguments."""


@dataclass(frozen=True)
class Scenario:
    """A run, as it goes when nothing dies."""

    script: Script
    tools: Sequence[str] = ("put", "act", "look")
    nested: Mapping[str, Script] = field(default_factory=dict)
    """The scripts of the runs that `research` calls, by their tasks."""
    options: Callable[[], dict[str, Any]] = dict
    answers: Mapping[int, str] = field(default_factory=dict)
    """What the person says to `pay` and `send`, by their argument `n`; else "approved"."""
    pays_again: bool = False
    """A summary that was paid and not stored is asked for again."""
    loses: bool = False
    """A tool has effects that must not be made again, so a result may be lost."""


def calls(*made: tuple[str, dict[str, Any]]) -> list[Any]:
    return [call(name, **arguments) for name, arguments in made]


def _emit(name: str, value: str) -> tuple[str, dict[str, Any]]:
    return "emit_value", {"name": name, "value": value}


SCENARIOS: Final = {
    "plain": Scenario([[("put", {"n": 1})], [("put", {"n": 2})], "All is done."]),
    "answer alone": Scenario(["Just an answer."]),
    "parallel": Scenario(
        [
            [("put", {"n": 1, "steps": 3}), ("put", {"n": 2}), ("look", {"q": "x"}), ("put", {"n": 1, "steps": 3})],
            [("put", {"n": 1}), ("put", {"n": 3, "steps": 9})],
            "All is done.",
        ]
    ),
    "effects that are made once": Scenario(
        [[("act", {"n": 1}), ("put", {"n": 1})], [("act", {"n": 2})], "All is done."], loses=True
    ),
    "nested": Scenario(
        [[("research", {"task": "deep"}), ("put", {"n": 1})], [("research", {"task": "wide"})], "All is done."],
        tools=("put", "research"),
        nested={"deep": [[("put", {"n": 7})], "Found deep."], "wide": [[("put", {"n": 8})], "Found wide."]},
    ),
    "outputs": Scenario(
        [[_emit("first", "one")], "I have done it all.", [("put", {"n": 1}), _emit("second", "two")]],
        options=lambda: {"outputs": {"first": str, "second": str}},
    ),
    "terminate": Scenario(
        [[("put", {"n": 1})], [("terminate", {"status": "success", "reason": "it is done"})]],
    ),
    "approval": Scenario(
        [[("look", {"q": "x"}), ("pay", {"n": 1}), ("pay", {"n": 2})], [("pay", {"n": 3})], "All is done."],
        tools=("look", "pay"),
        answers={2: "denied"},
    ),
    "approval of effects that are made once": Scenario(
        [[("send", {"n": 1}), ("pay", {"n": 1})], "All is done."], tools=("send", "pay"), loses=True
    ),
    "compaction": Scenario(
        [
            [("read", {"n": 7_500}), ("read", {"n": 7_501}), ("read", {"n": 6_750})],
            [("read", {"n": 2_250}), ("put", {"n": 1})],
            [("read", {"n": 2_000})],
            "All is done.",
        ],
        tools=("read", "put"),
        options=lambda: {"window": 25_000},
        pays_again=True,
    ),
    "last turn": Scenario(
        [[("put", {"n": 1})], [("put", {"n": 2})], [_emit("first", "one")]],
        options=lambda: {"outputs": {"first": str}, "stop_when": monitor.MaxTurns(2)},
    ),
    "last turn in vain": Scenario(
        [[("put", {"n": 1})], [("put", {"n": 2})], "I cannot."],
        options=lambda: {"outputs": {"first": str}, "stop_when": monitor.MaxTurns(2)},
    ),
    "steering": Scenario(
        [
            [("put", {"n": 1}), ("hint", {"n": 1})],
            [("hint", {"n": 2, "later": True}), ("hint", {"n": 3})],
            [("hint", {"n": 4, "later": True})],
            "All is done.",
            [("put", {"n": 2}), ("terminate", {"status": "success", "reason": "that is all"})],
            "Everything is done.",
        ],
        tools=("put", "hint"),
    ),
    "messages that a limit returns": Scenario(
        [[("hint", {"n": 1}), ("hint", {"n": 2, "later": True})], [("hint", {"n": 3})]],
        tools=("hint",),
        options=lambda: {"stop_when": monitor.MaxTurns(2), "last_turn": None},
    ),
    "a limit": Scenario(
        [[("put", {"n": 1})], [("put", {"n": 2})]],
        options=lambda: {"stop_when": monitor.MaxTurns(2), "last_turn": None},
    ),
}


@dataclass
class Lived:
    """A run that has gone through all its lives."""

    outcome: monitor.Outcome
    world: World
    commits: int
    store: SqlSession
    requests: int
    """How many requests the models got."""


Opening = Callable[[], AbstractAsyncContextManager[SqlSession]]


def in_memory() -> Opening:
    """One session in memory, which all lives open."""
    store = InMemorySession()

    @asynccontextmanager
    async def open_it() -> AsyncIterator[SqlSession]:
        yield store

    return open_it


async def lived(scenario: Scenario, opening: Opening, *kills: Kill) -> Lived:
    """Let the run go through its lives, to its end."""
    world = World()
    tools = world.tools({*scenario.tools, "put"} if scenario.nested else scenario.tools)
    commits: list[Changes] = []
    requests: list[ModelRequest] = []
    for _ in range(MOST_LIVES):
        async with opening() as store:
            left = [kill for kill in kills if kill.at >= len(commits)]
            outcome = await _life(scenario, KilledStore(store, commits, left[:1]), tools, requests)
            if outcome is None:  # it was killed
                record = next((one for one in await store.runs() if one.id == RUN), None)
                if record is not None and record.state is RunStage.ENDED:  # by the commit at which it died
                    (outcome,) = [
                        one.event.outcome
                        for one in await store.events(RUN)
                        if isinstance(one.event, monitor.events.RunTerminated)
                        and one.event.outcome.reason is not monitor.TerminateReason.PAUSED
                    ]
                    outcome = replace(outcome, history=(await store.context()).messages)
            if outcome is not None and outcome.reason is not monitor.TerminateReason.PAUSED:
                return Lived(outcome, world, len(commits), store, len(requests))
    raise AssertionError(f"the run does not end within {MOST_LIVES} lives")


async def _life(
    scenario: Scenario, store: KilledStore, made: Sequence[Tool], requests: list[ModelRequest]
) -> monitor.Outcome | None:
    """How the run ended in this life. `None`: it was killed."""
    said = await _replies(store)
    approver = PendingApprovals(requests=[one.request for one in await store.approvals(only_open=True)])
    for request in [*approver.requests.values()]:
        decision: Any = scenario.answers.get(request.arguments["n"], "approved")
        approver.answer(ApprovalAnswer(id=request.id, decision=decision))
    tools = {one.spec.name: one for one in made}

    def model(script: Mapping[str, Script]) -> ScriptedModel:
        def answer(asked: ModelRequest) -> Any:
            requests.append(asked)
            if not asked.tools:
                return SUMMARY
            task = next(iter(script)) if len(script) == 1 else _words(asked.messages[0])
            number, said[task] = said[task], said[task] + 1
            one = script[task][number]
            return one if isinstance(one, str) else calls(*one)

        return ScriptedModel(answer)

    if scenario.nested:
        inner = monitor.Supervisor(model(scenario.nested), tools=[tools["put"]])
        tools["research"] = inner.as_tool(name="research", description="Looks things up.")
    supervisor = monitor.Supervisor(
        model({TASK: scenario.script}),
        tools=[tools[name] for name in scenario.tools],
        calls=monitor.runs.ToolCalls(approver=approver),
        session=store,
        **scenario.options(),
    )
    known = any(one.id == RUN for one in await store.runs())
    try:
        outcome = await (supervisor.resume() if known else supervisor.run(TASK, run_id=RUN))
    except StoreError:
        return None
    return None if store.dead else outcome


def _words(message: Any) -> str:
    return "".join(part.text for part in message.content)


async def _replies(store: Any) -> Counter[str]:
    """How many answers of the model are stored, by the task of their run."""
    tasks = {one.id: one.data["task"] for one in await store.runs()}
    nodes: Sequence[Node] = await store.nodes()
    return Counter(
        tasks[node.run]
        for node in nodes
        if node.run in tasks and node.kind is NodeKind.MESSAGE and isinstance(said_of(node), AssistantMessage)
    )


# ---------------------------------------------------------------------- what must hold


def plainly(outcome: monitor.Outcome) -> dict[str, Any]:
    """What two outcomes of one run have in common: all but times, ids of calls, and attempts."""
    data = outcome.to_dict()
    for name in ("elapsed_s", "closed_after_s", "pending", "chunks_after_decision", "evidence"):
        data.pop(name, None)
    data["history"] = [shown(one) for one in outcome.history]
    return data


def shown(message: UserMessage | AssistantMessage) -> Any:
    """A message without the ids of its calls."""
    parts = [
        (part.name, part.arguments) if isinstance(part, monitor.chunks.ToolCall) else part for part in message.content
    ]
    results = [(one.name, one.text, one.is_error, one.vetoed) for one in getattr(message, "results", ())]
    return type(message).__name__, parts, results


async def check(scenario: Scenario, whole: Lived, other: Lived) -> None:
    """Raise `AssertionError` unless `other`, which was killed, is as good as `whole`."""
    keys = {effect: {*under} for effect, under in whole.world.effects.items()}
    made = {effect: {*under} for effect, under in other.world.effects.items()}
    records = await other.store.calls()
    for effect, under in made.items():
        assert under <= keys[effect], f"{effect} was made under another key"
        if effect.split()[0] in {"act", "send"}:
            assert len(other.world.effects[effect]) == 1, f"{effect} was made twice"
    told = {f"{one.tool} {one.arguments['n']}" for one in records if one.state is CallState.UNKNOWN}
    assert made.keys() | told == keys.keys(), "an effect is lost"
    assert not [one for one in records if one.open], "a call is left open"
    states = Counter(one.state for one in records if one.state is CallState.UNKNOWN)
    if not scenario.loses:
        assert not states
        asked, wanted = plainly(other.outcome), plainly(whole.outcome)
        if scenario.pays_again:
            for name in ("usage", "compaction_usage"):
                asked.pop(name), wanted.pop(name)
        assert asked == wanted
    assert (other.outcome.reason, other.outcome.text) == (whole.outcome.reason, whole.outcome.text)
    assert {one.key for one in records} == {one.key for one in await whole.store.calls()}
    assert [shown(one) for one in (await other.store.context()).messages] == plainly(other.outcome)["history"]
    assert await other.store.approvals(only_open=True) == ()
    for run in await other.store.runs(hidden=True):
        assert run.state is RunStage.ENDED, f"the run {run.purpose} has not ended"
    assert await agreement(other.store) == []
    assert await other.store.verify() == ()


async def agreement(store: SqlSession) -> list[str]:
    """Where the ledger and the tree disagree: calls that have ended without a result in the tree,
    and the other way round.
    """
    nodes = await store.nodes()
    answered: Counter[tuple[str | None, str]] = Counter()
    for node in nodes:
        if node.kind is NodeKind.MESSAGE:
            said: Any = said_of(node)
            results = said.results if isinstance(said, AssistantMessage) else [said]
            answered.update((node.run, one.id) for one in results if isinstance(one, monitor.chunks.ToolResult))
    return [
        f"{record.tool} {record.arguments} is {record.state}"
        for record in await store.calls()
        if record.open is bool(answered[record.run, record.call_id])
    ]
