"""200 runs on 4 workers, 30 of which are killed: what ends, what happens twice, what is overspent.

python -m bench.fleet                                  every engine that is installed
python -m bench.fleet --only dbos/sqlite --runs 40     one of them; writes nothing
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
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
from monitor.sessions import RunStage, SessionReader
from monitor.shared import SQLiteBudgets

WORKERS = 4
BETWEEN_KILLS_S = (0.3, 2.5)
SHARE = 0.95
"""The budget is this part of what all runs need, so that the last ones are refused."""
MOST_S = 900.0

_console = Console()


@dataclass(slots=True)
class Row:
    """What came of one engine."""

    engine: str
    packages: dict[str, str]
    runs: int
    workers: int
    kills: int = 0
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

    def goals(self) -> list[dict[str, Any]]:
        """What must hold."""
        rows = [
            ("runs that have not ended exactly once", self.runs - self.ended_once, 0),
            ("effects that happened twice", self.notes_twice + self.puts_twice, 0),
            ("runs whose receipts differ from an undisturbed run", self.differs, 0),
            ("sessions that are not whole", self.damaged, 0),
            ("slices beyond the budget", round(self.overshoot_slices, 2), 1),
            ("tokens that stay held", self.held_at_end, 0),
        ]
        return [
            {"goal": f"{self.engine}: {what}", "value": value, "limit": limit, "passed": value <= limit}
            for what, value, limit in rows
        ]


class Workers:
    """The processes. One that dies is started again under its name."""

    def __init__(self, engine: base.Engine, address: str, folder: Path, number: int) -> None:
        self._command = [sys.executable, "-m", engine.worker, address, str(folder)]
        self._folder = folder
        self._log = folder / "workers.log"
        names = [f"worker-{n}" for n in range(number)] if engine.worker else []
        self._running = {name: self._start(name) for name in names}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        base.ready(self._folder, name).unlink(missing_ok=True)
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._command, name], stdout=log, stderr=log)

    def kill(self, chance: random.Random) -> bool:
        """Kill one that is at work, and start it again. False: none is."""
        at_work = sorted(one.stem for one in self._folder.glob(base.ready(self._folder, "*").name))
        if not at_work:
            return False
        name = chance.choice(at_work)
        if (process := self._running.get(name)) is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._running[name] = self._start(name)
            return True
        file = base.ready(self._folder, name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
        file.unlink()
        return True

    def revive(self) -> None:
        """Start those again that have died by themselves."""
        for name, process in self._running.items():
            if process.poll() is not None:
                self._running[name] = self._start(name)

    def end(self) -> str:
        """Kill all. Answers with what they said."""
        for process in self._running.values():
            process.kill()
            process.wait()
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""


async def undisturbed(folder: Path) -> tuple[list[tuple[Any, ...]], int]:
    """The facts of the receipts of a run without any engine, and the tokens that it needs."""
    (folder / "sessions").mkdir(parents=True)
    known, sessions, id = base.supervisors(folder), base.sessions(folder), session_id("undisturbed")
    await enter(sessions, id, FleetJob(supervisor=base.NAME, version="1", task=base.task("undisturbed")))
    receipts = [await take_turn(known, sessions, id, 1)]
    while isinstance(following := decide(receipts[-1]), NextTurn):
        receipts.append(await take_turn(known, sessions, id, following.turn))
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
        (folder / "sessions").mkdir(parents=True)
        row.limit = round(runs * needs * SHARE)
        await SQLiteBudgets(folder / "budgets.db").set_limit(base.NAME, tokens=row.limit)
        with engine.server(folder) as address:
            began = time.perf_counter()
            ended = await _carried_out(engine, address, folder, row, kills=kills, chance=random.Random(seed))
            row.seconds = round(time.perf_counter() - began, 1)
        await anyio.sleep(base.LEASE_S + 0.5)
        await _count(row, folder, wanted, ended)
    return row


async def _carried_out(
    engine: base.Engine, address: str, folder: Path, row: Row, *, kills: int, chance: random.Random
) -> base.Ended:
    ended: base.Ended = {}
    over = anyio.Event()

    async def carry_out() -> None:
        ended.update(await engine.carry_out(address, folder, [f"run {n}" for n in range(row.runs)]))
        over.set()

    with anyio.move_on_after(MOST_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry_out)
            running = await anyio.to_thread.run_sync(Workers, engine, address, folder, row.workers)
            try:
                while not over.is_set():
                    with anyio.move_on_after(chance.uniform(*BETWEEN_KILLS_S)):
                        await over.wait()
                    if row.kills < kills and not over.is_set():
                        row.kills += running.kill(chance)
                    running.revive()
            finally:
                said = running.end()
                for line in [one for one in said.splitlines() if "Error" in one or "rror:" in one][-3:]:
                    _console.print(f"  {line[:200]}", markup=False)
    return ended


async def _count(row: Row, folder: Path, wanted: list[tuple[Any, ...]], ended: base.Ended) -> None:
    reasons: Counter[str] = Counter()
    for n in range(row.runs):
        id = session_id(f"run {n}")
        with SessionReader(base.sessions(folder).path(id)) as reader:
            row.damaged += bool(reader.verify())
            receipts = receipts_of(reader.active_path())
            states = [one.state for one in reader.runs()]
            row.lost_attempts += sum(marked(one, ATTEMPT) is not None for one in reader.nodes()) - len(receipts)
        ends = [one for one in receipts if one.next == "end"]
        once = len(ends) == 1 and receipts[-1] is ends[0] and states == [RunStage.ENDED] and ended.get(id) == ends[0]
        row.ended_once += once
        if not once:
            row.not_ended.append(f"{id}: {[one.next for one in receipts]} {[str(one) for one in states]}")
        reasons[receipts[-1].reason if receipts else "nothing"] += 1
        row.differs += bool(ends) and ends[0].ok and [facts(one) for one in receipts] != wanted
    row.reasons = dict(reasons)
    puts, notes = base.Log(folder / "put.log").lines(), base.Log(folder / "note.log").lines()
    row.effects = len(set(puts)) + len(set(notes))
    row.notes_twice = len(notes) - len(set(notes))
    row.repeated = len(puts) - len(set(puts))
    row.puts_twice = abs(len(list((folder / "effects").iterdir())) - len(set(puts)))
    row.used = sum(int(one) for one in base.Log(folder / "tokens.log").lines()) // 8
    (state,) = [one for one in await SQLiteBudgets(folder / "budgets.db").states(base.NAME) if one.name == base.NAME]
    row.spent, row.held_at_end = state.spent.tokens, state.held.tokens


def show(rows: Sequence[Row]) -> None:
    """The tables."""
    table = Table("what", *(row.engine for row in rows))
    for name in ("runs", "workers", "kills", "lost_attempts", "ended_once", "effects", "repeated", "limit", "spent"):
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
