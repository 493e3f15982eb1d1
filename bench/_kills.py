"""Processes that are killed while they write, compact and carry out calls; each is followed by the
next.

python -m bench._kills NUMBER SEED     prints one JSON object
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import anyio

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import StoreError
from monitor.events import Nudged
from monitor.messages import AssistantMessage, CallRecord, CallState, Text, UserMessage, call_key
from monitor.sessions import Changes, Compacted, RunRecord, SessionReader, SQLiteSession, compaction, message

KILLS_OF_ONE_FILE = 15
RUN = "r"


@dataclass(slots=True)
class Kills:
    """What came of some kills."""

    kills: int = 0
    lost: int = 0
    """Kills after which an acknowledged node was missing."""
    damaged: int = 0
    """Kills after which the session did not open, or was not whole."""
    twice: int = 0
    """Effects that happened more than once."""
    unrecorded: int = 0
    """Effects of calls that the ledger does not know as entered."""
    nodes: int = 0
    effects: int = 0
    unknown: int = 0
    """Calls that were entered and killed: the next process did not run them again."""
    takeover_ms: list[float] = field(default_factory=list)
    """How long it took to open a session whose owner was killed."""
    takeover_cpu_ms: list[float] = field(default_factory=list)
    """The processor's part of it. The rest is waiting for the processor and the disk."""
    what: list[str] = field(default_factory=list)


async def work(path: Path, effects: int, told: int, seed: int) -> None:
    """Go on where the process before was killed, until this one is."""
    chance, began, cpu = random.Random(seed), time.perf_counter(), time.process_time()
    async with SQLiteSession(path) as session:
        took = (time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000
        os.write(told, f"open {took[0]:.3f} {took[1]:.3f}\n".encode())
        if not await session.runs():
            await session.commit(Changes(runs=[RunRecord(id=RUN)]))
        for record in await session.open_calls(RUN):
            if record.state is CallState.RUNNING:
                unknown = replace(record, state=CallState.UNKNOWN)
                await _end(session, unknown, "nobody knows how far it came", told)
            else:
                await _carry_out(session, record, effects, told)
        while True:
            await _turn(session, chance, effects, told)


async def _turn(session: SQLiteSession, chance: random.Random, effects: int, told: int) -> None:
    name = os.urandom(6).hex()
    calls = [ToolCall(f"{name}-{number}", "act", {"n": number}) for number in range(chance.randint(1, 3))]
    records = [
        CallRecord(run=RUN, call_id=one.id, tool="act", arguments=one.arguments, key=call_key(RUN, "act", one.id, 0))
        for one in calls
    ]
    said = AssistantMessage((Text("x" * chance.randint(1, 3_000)), *calls))
    done = await session.commit(Changes(nodes=[message(said, run=RUN, turn=1)], calls=records))
    _tell(told, [node.id for node in done.nodes])
    for record in records:
        await _carry_out(session, record, effects, told)
    if chance.random() < 0.3:
        summary = UserMessage((Text("s" * 500),), synthetic=True)
        kept = done.nodes[0].id
        short = Compacted(summary="s", shown=(summary,), first_kept_node_id=kept, tokens_before=2, tokens_after=1)
        _tell(told, [node.id for node in await session.append(compaction(short))])


async def _carry_out(session: SQLiteSession, record: CallRecord, effects: int, told: int) -> None:
    running = replace(record, state=CallState.RUNNING, attempt=record.attempt + 1)
    if await session.advance(running):
        os.write(effects, f"{record.key}\n".encode())  # the effect
        await _end(session, replace(running, state=CallState.DONE, text="done"), "done", told)


async def _end(session: SQLiteSession, record: CallRecord, text: str, told: int) -> None:
    node = message(ToolResult(record.call_id, "act", text), run=RUN, turn=1)
    step = Changes(nodes=[node], calls=[record], events=[Nudged(1.0, 1, "x")], events_run=RUN)
    _tell(told, [one.id for one in (await session.commit(step)).nodes])


def _tell(told: int, ids: Sequence[str]) -> None:
    os.write(told, "".join(f"{id}\n" for id in ids).encode())


def kills(number: int, *, seed: int = 0) -> Kills:
    """Kill `number` processes, and look at what each has left."""
    found, chance = Kills(), random.Random(seed)
    while found.kills < number:
        with tempfile.TemporaryDirectory() as folder:
            _one_file(found, Path(folder), chance, min(KILLS_OF_ONE_FILE, number - found.kills))
    return found


def _one_file(found: Kills, folder: Path, chance: random.Random, number: int) -> None:
    known: list[str] = []
    path, log = folder / "a.session", folder / "effects"
    for _ in range(number):
        read, told = os.pipe()
        process = os.fork()
        if not process:
            _child(path, log, told, chance.randrange(1 << 30))
        os.close(told)
        with os.fdopen(read, "rb") as pipe:
            first = pipe.readline()
            if known and first:
                _, wall, cpu = first.split()
                found.takeover_ms.append(float(wall))
                found.takeover_cpu_ms.append(float(cpu))
            time.sleep(chance.random() * 0.06)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            *lines, _ = (first + pipe.read()).split(b"\n")
        known += [line.decode() for line in lines if not line.startswith(b"open")]
        found.kills += 1
        _look(found, path, log, known)
    found.effects += len(_keys(log))


def _child(path: Path, log: Path, told: int, seed: int) -> None:
    try:
        effects = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        anyio.run(work, path, effects, told, seed)
    finally:
        os._exit(1)


def _keys(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def _look(found: Kills, path: Path, log: Path, known: Sequence[str]) -> None:
    if not path.exists() and not known:
        return
    try:
        with SessionReader(path) as reader:
            problems = reader.verify()
            there = {node.id for node in reader.nodes()}
            states = {record.key: record.state for record in reader.calls()}
    except StoreError as error:
        found.damaged += 1
        found.what.append(str(error))
        return
    found.damaged += bool(problems)
    found.what += [one.what for one in problems[:2]]
    found.lost += not there >= set(known)
    keys = _keys(log)
    found.twice += len(keys) - len(set(keys))
    found.unrecorded += sum(states.get(key, CallState.INTENDED) is CallState.INTENDED for key in keys)
    found.unknown += sum(state is CallState.RUNNING for state in states.values())
    found.nodes += len(there)


if __name__ == "__main__":
    json.dump(asdict(kills(int(sys.argv[1]), seed=int(sys.argv[2]))), sys.stdout)
