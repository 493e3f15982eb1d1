"""What a session promises and what it costs: power cuts, kills, turns, speed, size, a long tree.

    python -m bench.sessions [--quick] [--only PART] [--cuts 2000] [--kills 300]

Power cuts are simulated by an SQLite whose writes and syncs are logged (`pip install apsw`). The
same number of cuts is made without the syncs of a commit, to show that a loss would be seen. Peers
are measured where they are installed. Exits with 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import anyio
from rich.console import Console
from rich.table import Table

from bench import _report
from bench._flips import Flips, flips
from bench._kills import Kills
from bench._power import Careless, Cuts, cuts
from bench._session_cost import RUNS, cost
from bench._session_peers import PEERS, SERVER_PEERS, installed, postgres, timed
from monitor.chunks import ToolCall, ToolResult
from monitor.events import FirstChunk, ToolFinished, ToolStarted, TurnEnded, TurnStarted
from monitor.messages import AssistantMessage, CallRecord, CallState, Text, UserMessage, call_key
from monitor.outcome import Turn
from monitor.sessions import Changes, Compacted, RunRecord, SQLiteSession, compaction, context_edit, message

GOAL_CONTEXT_MS: Final = 50
GOAL_SIZE: Final = 1.5
GOAL_READER: Final = 1.05
GOAL_TAKEOVER_MS: Final = 100
GOAL_TURN_MS: Final = 0.5
MESSAGE_CHARS: Final = 400
ANSWER_CHARS, RESULT_CHARS = 400, 3_000
"""A turn of an agent: what it says, and what its tool answers. In recorded runs of coding agents a
result has some thousand characters.
"""
PARTS: Final = ("power", "flips", "kills", "cost", "speed", "size", "context", "reader")
READER: Final = """
import sys, time
from monitor.sessions import SessionReader
with SessionReader(sys.argv[1]) as session:
    print("open", flush=True)
    seen = 0
    while True:
        count = len(session.context().messages)
        assert count >= seen, "a message that was there has gone"
        seen = count
        time.sleep(0.1)
"""
_console = Console()


@dataclass(slots=True, frozen=True)
class Amounts:
    """How much of everything."""

    cuts: int = 2_000
    kills: int = 300
    flips: int = 400
    appends: int = 2_000
    crowds: tuple[int, ...] = (1, 20, 200)
    peer_appends: int = 1_000
    turns: int = 10_000
    nodes: int = 100_000
    rounds: int = 15
    cost_turns: int = 30


QUICK: Final = Amounts(
    cuts=60,
    kills=5,
    flips=20,
    appends=200,
    crowds=(1, 20),
    peer_appends=60,
    turns=150,
    nodes=3_000,
    rounds=2,
    cost_turns=5,
)


@dataclass(slots=True)
class Results:
    """What was measured."""

    power: Cuts | None = None
    control: Cuts | None = None
    """The same with `synchronous=NORMAL`."""
    flips: Flips | None = None
    kills: Kills | None = None
    cost: list[dict[str, Any]] = field(default_factory=list)
    speed: list[dict[str, Any]] = field(default_factory=list)
    sizes: list[dict[str, Any]] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        found = []
        if self.power and self.control:
            found += [
                _goal("acknowledged nodes lost by power cuts", self.power.lost, 0),
                _goal("sessions damaged by power cuts", self.power.damaged, 0),
                _goal("without syncs no cut lost anything: the cuts prove nothing", not self.control.lost, 0),
            ]
        if self.flips:
            found.append(_goal("flipped bits that give other data in silence", self.flips.silent, 0))
        if self.kills:
            found += [
                _goal("acknowledged nodes lost by kills", self.kills.lost, 0),
                _goal("sessions damaged by kills", self.kills.damaged, 0),
                _goal("effects that happened twice", self.kills.twice, 0),
                _goal("effects that the ledger does not know", self.kills.unrecorded, 0),
                _goal("opening a killed owner's session, p99 ms", p99(self.kills.takeover_ms), GOAL_TAKEOVER_MS),
            ]
        ms = {row["way"]: row["ms"] for row in self.cost}
        for way, without in (("a session each", "no session"), ("one session, as subagents", "subagents, no session")):
            if ms:
                goal = f"a turn of {RUNS} runs side by side, {way}, more than without, ms"
                found.append(_goal(goal, ms[way] - ms[without], GOAL_TURN_MS))
        for row in self.sizes:
            if row["goal"]:
                found.append(_goal(f"{row['what']}: file size by text", row["ratio"], GOAL_SIZE))
        if self.context:
            found.append(_goal(f"context of {self.context['nodes']:,} nodes, ms", self.context["ms"], GOAL_CONTEXT_MS))
        if self.reader:
            found.append(_goal("an append beside a reader, by one without", self.reader["ratio"], GOAL_READER))
        return found

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "goals": self.goals()}


def _goal(goal: str, value: float, limit: float) -> dict[str, Any]:
    return {"goal": goal, "value": round(float(value), 3), "limit": limit, "passed": value <= limit}


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else sum(values)


def measure(amounts: Amounts, parts: Sequence[str] = PARTS) -> Results:
    """All parts."""
    results = Results()
    if "power" in parts:
        results.power = cuts(amounts.cuts, logs=max(2, amounts.cuts // 100))
        results.control = cuts(max(20, amounts.cuts // 20), synchronous="NORMAL", logs=2)
    if "kills" in parts:
        command = [sys.executable, "-m", "bench._kills", str(amounts.kills), "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        results.kills = Kills(**json.loads(done.stdout))
    if "flips" in parts:
        results.flips = anyio.run(flips, amounts.flips)
    for part, work in {"cost": costs, "speed": speed, "size": sizes, "context": context, "reader": reader}.items():
        if part in parts:
            anyio.run(work, amounts, results)
    return results


def texts(number: int, chars: int, seed: int = 0) -> list[str]:
    """Texts of words, each another one."""
    chance = random.Random(seed)
    words = [f"{chance.choice('bcdfglmnprst')}{chance.choice('aeiou')}" * chance.randint(1, 4) for _ in range(500)]
    return [" ".join(chance.choices(words, k=chars // 2))[:chars] for _ in range(number)]


# ------------------------------------------------------------------ what a turn costs


async def costs(amounts: Amounts, results: Results) -> None:
    """Runs side by side, with sessions and without, in turn."""
    results.cost = await cost(amounts.cost_turns, max(2, amounts.rounds // 3))


# ------------------------------------------------------------------ speed


async def speed(amounts: Amounts, results: Results) -> None:
    """Appends of one message, each acknowledged by itself."""
    for runs in amounts.crowds:
        with tempfile.TemporaryDirectory() as folder:
            async with SQLiteSession(Path(folder) / "a.session") as session:
                took: list[float] = []
                share = texts(max(1, amounts.appends // runs), MESSAGE_CHARS)

                async def one(name: str, session: Any = session, share: Any = share, took: Any = took) -> None:
                    async def append(text: str) -> None:
                        await session.append(message(UserMessage((Text(text),))), branch=name)

                    took += await timed(append, share)

                began = time.perf_counter()
                async with anyio.create_task_group() as group:
                    for number in range(runs):
                        group.start_soon(one, f"run {number}")
                results.speed.append(_speed(f"session, {runs} runs", took, time.perf_counter() - began))
                results.speed[-1]["commits"] = session.commits
    for name in installed():
        with tempfile.TemporaryDirectory() as folder:
            async with PEERS[name](Path(folder)) as append:
                began = time.perf_counter()
                took = await timed(append, texts(amounts.peer_appends, MESSAGE_CHARS))
                results.speed.append(_speed(name, took, time.perf_counter() - began))
    servers = installed(SERVER_PEERS)
    with postgres() if servers else nullcontext() as address:
        for server_name in servers if address is not None else ():
            async with SERVER_PEERS[server_name](str(address)) as append:
                began = time.perf_counter()
                took = await timed(append, texts(amounts.peer_appends, MESSAGE_CHARS))
                results.speed.append(_speed(server_name, took, time.perf_counter() - began))


def _speed(what: str, took: Sequence[float], seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "appends": len(took),
        "per_s": round(len(took) / seconds),
        "p50_ms": round(median(took) * 1000, 2),
        "p99_ms": round(p99(took) * 1000, 2),
    }


# ------------------------------------------------------------------ size


async def sizes(amounts: Amounts, results: Results) -> None:
    """Bytes of a closed session by the bytes of its text."""
    for events in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.session"
            text = await _turns(path, amounts.turns, events=events)
            what = f"{amounts.turns:,} turns with calls" + (", and five events each" if events else "")
            results.sizes.append(_size(what, path, text, goal=amounts.turns >= 1_000))
    given = texts(amounts.peer_appends, MESSAGE_CHARS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.session"
        async with SQLiteSession(path) as session:
            await session.append(*(message(UserMessage((Text(text),))) for text in given))
        results.sizes.append(_size(f"{len(given):,} messages, session", path, sum(map(len, given))))
    for name in installed():
        with tempfile.TemporaryDirectory() as folder:
            async with PEERS[name](Path(folder)) as append:
                await timed(append, given)
            if not [*Path(folder).iterdir()]:  # noqa: ASYNC240 - nothing else runs
                continue  # it keeps nothing
            what = f"{len(given):,} messages, {name}"
            results.sizes.append(_size(what, Path(folder) / "peer.db", sum(map(len, given))))


def _size(what: str, path: Path, text: int, *, goal: bool = False) -> dict[str, Any]:
    size = sum(one.stat().st_size for one in path.parent.iterdir())
    return {
        "what": what,
        "mb": round(size / 1e6, 2),
        "text_mb": round(text / 1e6, 2),
        "ratio": size / text,
        "goal": goal,
    }


async def _turns(path: Path, turns: int, *, events: bool) -> int:
    """A run of turns with one call each, as a supervised run stores it. Characters of its text."""
    answers, answered = texts(turns, ANSWER_CHARS, 1), texts(turns, RESULT_CHARS, 2)
    async with SQLiteSession(path, connect=_without_syncs) as session:
        await session.commit(Changes(runs=[RunRecord(id=RUN)]))
        for turn in range(turns):
            await _turn(session, turn, answers[turn], answered[turn], events=events)
    return sum(map(len, answers)) + sum(map(len, answered))


RUN: Final = "0" * 32


def _without_syncs(path: Path) -> Careless:
    """The size is the same, and is there sooner."""
    return Careless(sqlite3.connect(path, isolation_level=None), "OFF")


async def _turn(session: SQLiteSession, turn: int, said: str, answered: str, *, events: bool) -> None:
    call = ToolCall(f"call_{turn:020}", "read_file", {"path": f"src/module_{turn}.py"})
    result = ToolResult(call.id, call.name, answered)
    key = call_key(RUN, call.name, call.arguments, 0)
    record = CallRecord(run=RUN, call_id=call.id, tool=call.name, arguments=call.arguments, key=key, turn=turn)
    asked = message(AssistantMessage((Text(said), call)), run=RUN, turn=turn, tokens=100)
    await session.commit(Changes(nodes=[asked], calls=[record]))
    running = replace(record, state=CallState.RUNNING, attempt=1, started_at_s=3.5)
    await session.advance(running)
    done = replace(running, state=CallState.DONE, text=result.text, ended_at_s=4.5)
    answer = message(result, run=RUN, turn=turn, tokens=700)
    happened = (
        TurnStarted(1.5, turn, turn),
        FirstChunk(2.25, turn, 0.75),
        ToolStarted(3.5, turn, call),
        ToolFinished(4.5, turn, result, 1.0),
        TurnEnded(4.75, Turn(number=turn, text=said, tool_calls=(call,))),
    )
    await session.commit(Changes(nodes=[answer], calls=[done], events=happened if events else (), events_run=RUN))


# ------------------------------------------------------------------ a long tree, and a reader


async def context(amounts: Amounts, results: Results) -> None:
    """What the model is shown of a long path with 50 compactions and 200 edits."""
    parts, each = 50, amounts.nodes // 50
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteSession(Path(folder) / "a.session") as session:
            for _ in range(parts):
                given = texts(each - 5, 200)
                nodes = await session.append(*(message(UserMessage((Text(text),))) for text in given))
                short = UserMessage((Text("short"),))
                await session.append(*(context_edit(nodes[-number].id, short) for number in range(1, 5)))
                summary = UserMessage((Text("summary"),), synthetic=True)
                kept = nodes[-min(200, len(nodes))].id
                done = Compacted(
                    summary="s", shown=(summary,), first_kept_node_id=kept, tokens_before=2, tokens_after=1
                )
                await session.append(compaction(done))
            await session.append(*(message(UserMessage((Text(text),))) for text in texts(300, 200)))
            took = []
            found = await session.context()
            for _ in range(9):
                began = time.perf_counter()
                await session.context()
                took.append((time.perf_counter() - began) * 1000)
            tracemalloc.start()
            await session.context()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            count = len(await session.nodes())
    results.context = {
        "nodes": count,
        "shown": len(found.messages),
        "ms": round(median(took), 2),
        "worst_ms": round(max(took), 2),
        "peak_mb": round(peak / 1e6, 2),
    }


async def reader(amounts: Amounts, results: Results) -> None:
    """Appends beside a process that reads the context ten times a second, and without it."""
    ratios: list[float] = []
    given = texts(max(20, amounts.appends // 10), MESSAGE_CHARS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.session"
        async with SQLiteSession(path) as session:

            async def append(text: str) -> None:
                await session.append(message(UserMessage((Text(text),))))

            await timed(append, given)
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else goes on here
                [sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True
            )
            try:
                assert process.stdout is not None
                await anyio.to_thread.run_sync(process.stdout.readline)
                for number in range(amounts.rounds):
                    order: Sequence[bool] = (True, False) if number % 2 else (False, True)
                    took = {beside: await _paused(process, partial(timed, append, given), beside) for beside in order}
                    ratios.append(median(took[True]) / median(took[False]))
                consistent = process.poll() is None
            finally:
                process.kill()
                process.communicate()
    results.reader = {"ratio": round(median(ratios), 3), "rounds": len(ratios), "consistent": consistent}
    assert consistent, "the reader saw a session that was not whole"


async def _paused(process: Any, work: Callable[[], Any], beside: bool) -> list[float]:  # noqa: FBT001 - of a table
    import signal  # noqa: PLC0415 - where there are signals

    process.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
    took: list[float] = await work()
    process.send_signal(signal.SIGCONT)
    return took


# ------------------------------------------------------------------ tables


def show(results: Results) -> None:
    """Tables, and the goals."""
    for name, found in (("FULL", results.power), ("NORMAL, for comparison", results.control)):
        if found:
            where = ", ".join(f"{phase} {count}" for phase, count in sorted(found.phases.items()))
            _console.print(
                f"power cuts, synchronous={name}: {found.cuts} cuts, {found.lost} lost something,"
                f" at worst {found.worst} nodes, {found.damaged} damaged ({where})"
            )
            for what in found.what[:3]:
                _console.print(f"  {what}", markup=False)
    if results.flips:
        _console.print(f"flipped bits: {asdict(results.flips)}")
    if results.kills:
        one = results.kills
        _console.print(
            f"kills: {one.kills}, {one.effects} effects, {one.twice} twice, {one.unknown} not known to have ended,"
            f" {one.lost} lost something, {one.damaged} damaged; opened again in"
            f" {median(one.takeover_ms or [0]):.0f} ms, of which the processor works"
            f" {median(one.takeover_cpu_ms or [0]):.0f} ms"
        )
    if results.cost:
        table = Table("a turn", "ms", "processor ms")
        for row in results.cost:
            table.add_row(row["way"], str(row["ms"]), str(row["cpu_ms"]))
        _console.print(table)
    if results.speed:
        table = Table("appends", "a second", "p50 ms", "p99 ms", "commits")
        for row in results.speed:
            table.add_row(*(str(row.get(name, "")) for name in ("what", "per_s", "p50_ms", "p99_ms", "commits")))
        _console.print(table)
    if results.sizes:
        table = Table("size", "MB", "text MB", "ratio")
        for row in results.sizes:
            table.add_row(row["what"], str(row["mb"]), str(row["text_mb"]), f"{row['ratio']:.2f}")
        _console.print(table)
    for name in ("context", "reader"):
        if getattr(results, name):
            _console.print(f"{name}: {getattr(results, name)}")
    for goal in results.goals():
        said = "PASS" if goal["passed"] else "FAIL"
        _console.print(f"{said}  {goal['goal']}: {goal['value']} (at most {goal['limit']})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sessions", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; writes nothing")
    parser.add_argument("--cuts", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=300)
    options = parser.parse_args(arguments)
    amounts = QUICK if options.quick else Amounts(cuts=options.cuts, kills=options.kills)
    results = measure(amounts, options.only or PARTS)
    show(results)
    if not options.quick and not options.only:
        _report.write("sessions", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())
