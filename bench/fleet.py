"""Many runs on 4 workers, and 30 kills: what ends, what happens twice, what is overspent.

python -m bench.fleet                                  every engine that is installed: half an hour
python -m bench.fleet --only dbos/sqlite --runs 40     one of them; writes nothing

In the row of two hosts, each second kill hits PostgreSQL or Valkey.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from bench import _report
from bench.fleets import base
from monitor.fleet import FleetJob, NextTurn, Receipt, decide, enter, session_id, take_turn
from monitor.fleet.jobs import ATTEMPT, marked, receipts_of
from monitor.sessions import RunStage

WORKERS = 4
BETWEEN_KILLS_S = (0.3, 2.5)
SHARE = 0.95
"""The budget is this part of what all runs need, so that the last ones are refused."""
MOST_S = 10.0
"""For each run: what takes longer has not ended."""

_console = Console()


@dataclass(slots=True)
class Row:
    """What came of one engine."""

    engine: str
    packages: dict[str, str]
    runs: int
    workers: int
    kills: int = 0
    """Of workers."""
    crashes: int = 0
    """Of servers."""
    seconds: float = 0.0
    ended_once: int = 0
    """Runs whose session has exactly one end, as its newest step."""
    not_ended: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    differs: int = 0
    """Runs that reached their goal with other receipts than a run that nothing disturbs."""
    damaged: int = 0
    """Sessions that are not whole."""
    lost_attempts: int = 0
    """Steps that a dead worker had begun."""
    effects: int = 0
    notes_twice: int = 0
    """Effects of the call that cannot be repeated, which happened twice with one key."""
    puts_twice: int = 0
    """Keys of the call that may be repeated, with which other texts were stored."""
    repeated: int = 0
    """Calls that were made again with their key, because nobody knew how far they came."""
    paid_twice: int = 0
    """Calls of the model that were made again, because the answer was lost."""
    limit: int = 0
    spent: int = 0
    """By the account of the budget."""
    used: int = 0
    """Tokens that the model has written, also in attempts that were lost."""
    held_at_end: int = 0
    slice: int = base.SLICE_TOKENS

    @property
    def overshoot_slices(self) -> float:
        """What was spent beyond the limit, in slices."""
        return max(0, self.spent - self.limit) / self.slice

    @property
    def paid_beyond(self) -> int:
        """Calls of the model that were made again, beyond one for each turn that was cut off: a
        worker makes several at once.
        """
        return max(0, self.paid_twice - self.lost_attempts)

    def goals(self) -> list[dict[str, Any]]:
        """What must hold."""
        rows = [
            ("runs that have not ended exactly once", self.runs - self.ended_once, 0),
            ("effects that happened twice", self.notes_twice + self.puts_twice, 0),
            ("runs whose receipts differ from an undisturbed run", self.differs, 0),
            ("sessions that are not whole", self.damaged, 0),
            ("model calls paid twice, beyond one for each turn that a kill cut off", self.paid_beyond, 0),
            ("slices beyond the budget", round(self.overshoot_slices, 2), 1),
            ("tokens that stay held", self.held_at_end, 0),
        ]
        return [
            {"goal": f"{self.engine}: {what}", "value": value, "limit": limit, "passed": value <= limit}
            for what, value, limit in rows
        ]


class Workers:
    """The processes. One that dies is started again: under its name, or under a new one where there
    are several hosts.
    """

    def __init__(self, engine: base.Engine, address: str, folder: Path, number: int) -> None:
        self._command = [sys.executable, "-m", engine.worker, address]
        self._apart = _APART if engine.hosts else []
        self._hosts = base.hosts(folder)
        self._renames = bool(engine.hosts)
        self._log = folder / "workers.log"
        self._started = 0
        self._running: dict[str, _Process] = {}
        for _ in range(number if engine.worker else 0):
            self._start(f"worker-{self._started}", self._hosts[self._started % len(self._hosts)])

    def _start(self, name: str, host: Path) -> None:
        base.ready(host, name).unlink(missing_ok=True)
        self._started += 1
        with self._log.open("ab") as log:
            process = subprocess.Popen([*self._apart, *self._command, str(host), name], stdout=log, stderr=log)
        self._running[name] = _Process(process, host)

    def _start_again(self, name: str) -> None:
        dead = self._running.pop(name)
        base.ready(dead.host, name).unlink(missing_ok=True)
        self._start(f"worker-{self._started}" if self._renames else name, dead.host)

    def kill(self, chance: random.Random) -> bool:
        """Kill one that is at work, and start it again. False: none is."""
        at_work = sorted(file for host in self._hosts for file in host.glob(base.ready(host, "*").name))
        if not at_work:
            return False
        file = chance.choice(at_work)
        if (one := self._running.get(file.stem)) is not None:
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
            self._start_again(file.stem)
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
        file.unlink()
        return True

    def revive(self) -> None:
        """Start those again that have died by themselves."""
        for name in [name for name, one in self._running.items() if one.process.poll() is not None]:
            self._start_again(name)

    def end(self) -> str:
        """Kill all. Answers with what they said."""
        for one in self._running.values():
            one.process.kill()
            one.process.wait()
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""


@dataclass(slots=True)
class _Process:
    process: subprocess.Popen[bytes]
    host: Path


_APART = [unshare, "--net"] if (unshare := shutil.which("unshare")) and os.geteuid() == 0 else []
"""Before the command of a worker: it sees no network, only files. Needs root; without, workers of
several hosts have folders of their own all the same.
"""


async def undisturbed(folder: Path) -> tuple[list[tuple[Any, ...]], int]:
    """The facts of the receipts of a run without any engine, and the tokens that it needs."""
    base.share(folder, base.Servers(""))
    known, sessions, id = base.supervisors(folder), base.sessions(folder), session_id("undisturbed")
    await enter(sessions, id, FleetJob(supervisor=base.NAME, version="1", task=base.task("undisturbed")))
    receipts = [await take_turn(known, sessions, id, 1)]
    while isinstance(following := decide(receipts[-1]), NextTurn):
        receipts.append(await take_turn(known, sessions, id, following.turn))
    if not receipts[-1].ok:
        raise RuntimeError(f"the undisturbed run has failed: {receipts[-1].detail}")
    return [facts(one) for one in receipts], receipts[-1].usage.total_tokens


def facts(receipt: Receipt) -> tuple[Any, ...]:
    """What must be the same however often workers died. Nodes and runs have their own names."""
    return receipt.turn, receipt.turns, receipt.next, receipt.reason, receipt.usage


async def measure(engine: base.Engine, runs: int, workers: int, kills: int, seed: int) -> Row:
    """One row."""
    row = Row(engine.name, {one: version(one) for one in engine.packages}, runs, workers)
    with tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True) as made:
        wanted, needs = await undisturbed(Path(made) / "undisturbed")
        folder = Path(made) / "fleet"
        row.limit = round(runs * needs * SHARE)
        with engine.server(folder) as servers:
            for place in (folder, *(folder / f"host-{n}" for n in range(engine.hosts))):
                base.share(place, servers)
            await base.budgets(folder).set_limit(base.NAME, tokens=row.limit)
            began = time.perf_counter()
            ended = await _carried_out(engine, servers, folder, row, kills=kills, chance=random.Random(seed))
            row.seconds = round(time.perf_counter() - began, 1)
            await anyio.sleep(base.LEASE_S + 0.5)
            await _count(row, folder, wanted, ended)
    return row


async def _carried_out(
    engine: base.Engine, servers: base.Servers, folder: Path, row: Row, *, kills: int, chance: random.Random
) -> base.Ended:
    ended: base.Ended = {}
    over = anyio.Event()

    async def carry_out() -> None:
        ended.update(await engine.carry_out(servers.address, folder, [f"run {n}" for n in range(row.runs)]))
        over.set()

    with anyio.move_on_after(MOST_S * (row.runs + row.workers)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry_out)
            running = await anyio.to_thread.run_sync(Workers, engine, servers.address, folder, row.workers)
            try:
                while not over.is_set():
                    with anyio.move_on_after(chance.uniform(*BETWEEN_KILLS_S)):
                        await over.wait()
                    if row.kills + row.crashes < kills and not over.is_set():
                        if servers.crashes and row.crashes < row.kills:
                            await anyio.to_thread.run_sync(servers.crashes[row.crashes % len(servers.crashes)])
                            row.crashes += 1
                        else:
                            row.kills += running.kill(chance)
                    running.revive()
            finally:
                said = running.end()
                for line in [one for one in said.splitlines() if "Error" in one or "rror:" in one][-3:]:
                    _console.print(f"  {line[:200]}", markup=False)
    return ended


async def _count(row: Row, folder: Path, wanted: list[tuple[Any, ...]], ended: base.Ended) -> None:
    reasons: Counter[str] = Counter()
    sessions = base.sessions(folder)
    for n in range(row.runs):
        id = session_id(f"run {n}")
        async with sessions.open(id) as store:
            row.damaged += bool(await store.verify())
            receipts = receipts_of(await store.active_path())
            states = [one.state for one in await store.runs()]
            begun = sum(marked(one, ATTEMPT) is not None for one in await store.nodes())
            row.lost_attempts += begun - len(receipts)
        ends = [one for one in receipts if one.next == "end"]
        once = len(ends) == 1 and receipts[-1] is ends[0] and states == [RunStage.ENDED] and ended.get(id) == ends[0]
        row.ended_once += once
        if not once:
            row.not_ended.append(f"{id}: {[one.next for one in receipts]} {[str(one) for one in states]}")
        reasons[receipts[-1].reason if receipts else "nothing"] += 1
        row.differs += bool(ends) and ends[0].ok and [facts(one) for one in receipts] != wanted
    row.reasons = dict(reasons)
    _count_traces(row, base.hosts(folder))
    (state,) = [one for one in await base.budgets(folder).states(base.NAME) if one.name == base.NAME]
    row.spent, row.held_at_end = state.spent.tokens, state.held.tokens


def _count_traces(row: Row, hosts: Sequence[Path]) -> None:
    def lines(name: str) -> list[str]:
        return [line for host in hosts for line in base.Log(host / name).lines()]

    puts, notes, calls = lines("put.log"), lines("note.log"), lines("calls.log")
    stored = {(file.name, file.read_text()) for host in hosts for file in (host / "effects").glob("*")}
    row.effects = len(set(puts)) + len(set(notes))
    row.notes_twice = len(notes) - len(set(notes))
    row.repeated = len(puts) - len(set(puts))
    row.puts_twice = abs(len(stored) - len(set(puts)))
    row.paid_twice = len(calls) - len(set(calls))
    row.used = sum(int(one) for one in lines("tokens.log")) // 8


_SHOWN = (
    "runs",
    "workers",
    "kills",
    "crashes",
    "lost_attempts",
    "paid_twice",
    "ended_once",
    "effects",
    "repeated",
    "limit",
    "spent",
)


def show(rows: Sequence[Row]) -> None:
    """The tables."""
    table = Table("what", *(row.engine for row in rows))
    for name in _SHOWN:
        table.add_row(name.replace("_", " "), *(str(getattr(row, name)) for row in rows))
    table.add_row("effects twice", *(str(row.notes_twice + row.puts_twice) for row in rows))
    table.add_row("tokens written", *(str(row.used) for row in rows))
    table.add_row("seconds", *(str(row.seconds) for row in rows))
    reasons = (", ".join(f"{count} {reason}" for reason, count in sorted(row.reasons.items())) for row in rows)
    table.add_row("ended by", *reasons)
    _console.print(table)
    for row in rows:
        for what in row.not_ended[:3]:
            _console.print(f"  {what}", markup=False)
        for goal in row.goals():
            said = "PASS" if goal["passed"] else "FAIL"
            _console.print(f"{said}  {goal['goal']}: {goal['value']} (at most {goal['limit']})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=(__doc__ or "").splitlines()[0])
    known = base.engines()
    parser.add_argument("--only", choices=sorted(known), action="append", help="this engine alone; writes nothing")
    parser.add_argument("--runs", type=int, help="by default the engine's own number")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--kills", type=int, help="by default the engine's own number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", help="write the results under this name, also with --only")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.only or sorted(known):
        if (why := known[name].ready) is not None:
            _console.print(f"{name}: {why}")
            continue
        engine = known[name]
        runs = engine.runs if options.runs is None else options.runs
        kills = engine.kills if options.kills is None else options.kills
        rows.append(anyio.run(measure, engine, runs, options.workers, kills, options.seed))
        show(rows[-1:])
    if options.into or not options.only:
        show(rows)
        _report.write(
            options.into or "fleet",
            {"rows": [asdict(row) for row in rows], "goals": [one for row in rows for one in row.goals()]},
        )
    return 0 if rows and all(goal["passed"] for row in rows for goal in row.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())
