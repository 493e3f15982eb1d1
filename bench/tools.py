"""The tool runtime: does every call have one result, whatever happens, and what does a call cost?

    python -m bench.tools [--quick]

The soak makes thousands of calls in responses of random size: good ones, errors, crashes, threads,
real commands, timeouts, refusals, cancellations of single calls and of whole responses. It counts
results, their order, open records, and what is left of threads, processes and sockets. Processes
are found in the process table by the marker of their commands. The cost is processor time
for one call that does nothing: of the scheduler, of the scheduler with a ledger and a listener, and
of a bare task group that calls the same tool. A command that does nothing is timed beside a plain
subprocess, with a sandbox and without. Times of whole runs, beside other agent libraries,
are those of `python -m bench.supervisor`.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from bench import _report
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ToolError
from monitor.messages import ApprovalRequest, CallRecord, CallState
from monitor.tools import InMemoryLedger, Registry, Scheduler, ShellTools, ToolContext, Workspace, find_sandbox, tool
from monitor.tools.approvals.approval import Approvals
from monitor.tools.base import Admission, CallListener
from monitor.tools.processes.process_table import living
from monitor.tools.results.call_results import arguments_of

_console = Console(width=120)
SEED = 20261122
KINDS = {
    "good": 39,
    "shell": 1,
    "thread": 5,
    "error": 10,
    "crash": 8,
    "slow": 5,
    "forever": 8,
    "denied": 8,
    "expired": 4,
    "alone": 4,
    "edit": 4,
    "unknown": 2,
    "wrong": 2,
}
"""What becomes of a call, and how often in a hundred."""
COMMANDS = (
    "echo x; exit 1",
    "sleep 100",
    "sleep 100 & echo x",
    "trap '' TERM; sleep 100",
    "setsid sleep 100 & sleep 100",
)
"""What the shell is given. Half of its calls are cancelled, as those that go on forever are."""


@dataclass(frozen=True)
class Soak:
    """What came of the soak."""

    calls: int
    responses: int
    aborted: int
    """Responses that were aborted, running or in the queue."""
    results: int
    out_of_order: int
    without_one_end: int
    """Calls whose record did not end exactly once."""
    open_records: int
    threads_left: int
    background: int
    """Processes that commands had left in the background. They end with the run."""
    processes_left: int
    sockets_left: int
    seconds: float
    states: dict[str, int]


class _Ends(CallListener):
    """Counts the ends of each call."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.states: Counter[str] = Counter()

    def changed(self, record: CallRecord) -> None:
        if not record.open:
            self.ends[record.call_id] += 1
            self.states[record.state.value] += 1


class _Gate(Approvals):
    """Refuses what is called so, and lets the rest pass."""

    def __init__(self) -> None: ...

    def admit(self, entry: Any, arguments: Mapping[str, Any], context: ToolContext) -> Admission:
        name = context.call.name
        return Admission(CallState(name), "no") if name in {"denied", "expired"} else Admission()

    async def ask(self, request: ApprovalRequest, entry: Any, arguments: Mapping[str, Any]) -> Admission:
        raise AssertionError(request)


def _tools(shell: ShellTools) -> Registry:
    @tool
    async def error() -> None:
        raise ToolError("no")

    @tool
    async def crash() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("no")

    return Registry(
        [
            error,
            crash,
            tool(name="good", kind="read")(anyio.lowlevel.checkpoint),
            tool(name="thread")(lambda: 1),
            tool(name="slow", timeout_s=0.002, idempotent=True)(anyio.sleep_forever),
            tool(name="forever")(anyio.sleep_forever),
            tool(name="denied")(lambda: 1),
            tool(name="expired")(lambda: 1),
            tool(name="alone", alone=True)(anyio.lowlevel.checkpoint),
            tool(name="edit", kind="edit")(anyio.lowlevel.checkpoint),
            tool(name="wrong")(lambda n: n),
            shell,
        ]
    )


async def soak(calls: int) -> Soak:
    """Make `calls` calls."""
    with tempfile.TemporaryDirectory() as folder:
        async with ShellTools(Workspace(folder), timeout_s=0.3, grace_s=0.05) as shell:
            return await _soak(calls, shell)


async def _soak(calls: int, shell: ShellTools) -> Soak:
    chance = random.Random(SEED)
    ledger, heard = InMemoryLedger(), _Ends()
    scheduler = Scheduler(_tools(shell), run_id="soak", ledger=ledger, listener=heard, gate=_Gate(), limit=8)
    begun, made, responses, results, wrong, aborted = time.perf_counter(), 0, 0, 0, 0, 0
    threads, before = set(threading.enumerate()), _left()

    async def respond(batch: Sequence[ToolCall]) -> None:
        nonlocal results, wrong
        answers: list[ToolResult] = await scheduler.carry_out(batch)
        results += len(answers)
        wrong += [answer.id for answer in answers] != [call.id for call in batch]

    async def strike(batch: Sequence[ToolCall], *, abort: bool) -> None:
        for _ in range(chance.randrange(12)):
            await anyio.lowlevel.checkpoint()
        if abort:
            scheduler.abort("the soak aborts it")
        for call in batch:
            scheduler.cancel(call.id, "the soak cancels it")

    while made < calls:
        names = chance.choices(list(KINDS), list(KINDS.values()), k=min(chance.randrange(1, 25), calls - made))
        given = [{"command": chance.choice(COMMANDS)} if name == "shell" else {} for name in names]
        batch = [ToolCall(f"c{made + n}", name, given[n]) for n, name in enumerate(names)]
        made += len(batch)
        responses += 1
        abort = chance.random() < 0.1
        aborted += abort
        endless = [call for call in batch if call.name == "forever" or (call.name == "shell" and chance.random() < 0.5)]
        async with anyio.create_task_group() as group:
            group.start_soon(respond, batch)
            await anyio.lowlevel.checkpoint()
            group.start_soon(partial(strike, endless, abort=abort))
    kept = len(shell.background)
    await shell.__aexit__(None, None, None)  # the end of a run: what was left in the background ends now
    await anyio.sleep(0.05)
    gc.collect()
    after = _left()
    return Soak(
        calls=made,
        responses=responses,
        aborted=aborted,
        results=results,
        out_of_order=wrong,
        without_one_end=made - sum(count == 1 for count in heard.ends.values()),
        open_records=len(await ledger.open_calls("soak")),
        threads_left=len(_new_threads(threads)),
        background=kept,
        processes_left=after[0] - before[0],
        sockets_left=after[1] - before[1],
        seconds=time.perf_counter() - begun,
        states=dict(sorted(heard.states.items())),
    )


def _left() -> tuple[int, int]:
    """The processes and the open sockets of this process, as the system counts them. A process is
    its child, or has the marker of one of its commands.
    """
    fds = Path("/proc/self/fd")
    sockets = 0
    for fd in fds.iterdir() if fds.exists() else ():
        try:
            sockets += str(fd.readlink()).startswith("socket:")
        except OSError:
            continue
    own = f"{os.getpid()}-"
    children = sum(
        entry.parent == os.getpid() or any(token.startswith(own) for token in entry.tokens) for entry in living()
    )
    return children, sockets


def _new_threads(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """The threads that were not there before, without the workers of anyio: they wait for the next
    plain function, and end with the event loop.
    """
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and not thread.name.startswith("AnyIO worker")
    ]


@dataclass(frozen=True)
class Cost:
    """Microseconds of one call, or of one command, that does nothing."""

    name: str
    us: float
    beside_task_group: float
    """Beside the first row."""


async def cost(rounds: int, calls: int) -> list[Cost]:
    """One call a response, all rows in turns."""

    async def add(a: int, b: int) -> int:
        return a + b

    tools = Registry([add])
    add_tool = tools["add"]
    ledgered = Scheduler(tools, run_id="r", ledger=InMemoryLedger(), listener=_Ends())
    plain = Scheduler(tools)

    async def bare(batch: Sequence[ToolCall]) -> None:
        async def one(call: ToolCall) -> None:
            await add_tool.call(arguments_of(call.arguments), ToolContext(call))

        async with anyio.create_task_group() as group:
            for call in batch:
                group.start_soon(one, call)

    rows: dict[str, Callable[[Sequence[ToolCall]], Awaitable[object]]] = {
        "a task group and the tool, nothing else": bare,
        "scheduler": plain.carry_out,
        "scheduler, ledger in memory, every step heard": ledgered.carry_out,
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, carry_out in rows.items():
            begun = time.process_time()
            for number in range(calls):
                await carry_out([ToolCall(f"c{number}", "add", {"a": number, "b": 2})])
            times[name].append((time.process_time() - begun) / calls * 1e6)
    base = median(times["a task group and the tool, nothing else"])
    return [Cost(name, median(taken), median(taken) / base) for name, taken in times.items()]


async def command_cost(rounds: int) -> list[Cost]:
    """Time of a command that does nothing, all rows in turns."""

    async def bare() -> None:
        await anyio.run_process(["/bin/bash", "-c", "true"])

    context = ToolContext(ToolCall("1", "shell", {}))
    with tempfile.TemporaryDirectory() as folder:
        place = Workspace(folder)
        async with ShellTools(place, sandbox=None) as plain, ShellTools(place) as confined:
            rows: dict[str, Callable[[], Awaitable[object]]] = {
                "a subprocess, nothing else": bare,
                "shell, no sandbox": partial(plain.tools()[0].call, {"command": "true"}, context),
                f"shell, {find_sandbox().kind}": partial(confined.tools()[0].call, {"command": "true"}, context),
            }
            times: dict[str, list[float]] = {name: [] for name in rows}
            for _ in range(rounds):
                for name, run in rows.items():
                    begun = time.perf_counter()
                    await run()
                    times[name].append((time.perf_counter() - begun) * 1e6)
    base = median(times["a subprocess, nothing else"])
    return [Cost(name, median(taken), median(taken) / base) for name, taken in times.items()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    quick = parser.parse_args().quick
    soaked = anyio.run(soak, 1_000 if quick else 10_000)
    table = Table(title="soak")
    table.add_column("what")
    table.add_column("number", justify="right")
    for name, value in asdict(soaked).items():
        table.add_row(name, str(value) if not isinstance(value, float) else f"{value:.1f}")
    _console.print(table)
    costs = anyio.run(cost, 5 if quick else 15, 100 if quick else 300)
    table = Table(title="processor time of a call that does nothing")
    table.add_column("row")
    table.add_column("us a call", justify="right")
    table.add_column("to a task group", justify="right")
    for row in costs:
        table.add_row(row.name, f"{row.us:.0f}", f"{row.beside_task_group:.2f}")
    _console.print(table)
    commands = anyio.run(command_cost, 20 if quick else 60)
    table = Table(title="time of a command that does nothing")
    table.add_column("row")
    table.add_column("ms a command", justify="right")
    table.add_column("to a subprocess", justify="right")
    for row in commands:
        table.add_row(row.name, f"{row.us / 1000:.2f}", f"{row.beside_task_group:.2f}")
    _console.print(table)
    assert soaked.results == soaked.calls
    left = (soaked.threads_left, soaked.processes_left, soaked.sockets_left, soaked.open_records)
    assert (soaked.out_of_order, soaked.without_one_end, *left) == (0,) * 6
    _report.write(
        "tools",
        {"soak": asdict(soaked), "cost": [asdict(row) for row in costs], "commands": [asdict(row) for row in commands]},
    )


if __name__ == "__main__":
    main()
