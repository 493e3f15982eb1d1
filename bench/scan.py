"""`agent-monitor scan` over a disk: files and megabytes a second, the speed-up of a second core,
whether the memory grows, and what a second scan costs. And `agent-monitor hook` on a session that
grew by one record.

    python -m bench.scan                                  10,000 files, 3 GB
    python -m bench.scan --files 500 --gigabytes 0.15     a twentieth of it

The files are the samples of `fixtures/readers`, repeated, each with ids of its own: a session that
stands in two files counts once. One large file is made of one sample. A row of its own has sessions
of Claude Code alone; beside it stand unwedge, jq and ripgrep where they are installed, and the time
of each part of the scan. All figures are of one run. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench._report import write
from bench._scan_peers import SESSIONS, looped, parts, peers

SAMPLES = Path(__file__).parents[1] / "fixtures" / "readers"
FILES = 10_000
GIGABYTES = 3.0
HOOK_MEGABYTES = 100
HOOK_TIMES = 7
LOOP_TURNS = 25
TIMES = ("first", "second")
_ID = re.compile(rb"[0-9a-f]{8}(?=-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
"""The beginning of an id."""
_RECORD = re.compile(rb'(?:(?<="uuid":")|(?<="parentUuid":")|(?<=msg_01)|(?<=toolu_01))[0-9A-Za-z]{8}')
"""The beginning of an id of a record or of a message, which a second part of a session has anew."""
_DAY = re.compile(rb"20\d\d-[01]\d-[0-3]\d(?=T)")
KINDS = ("claude-code", "codex", "copilot-cli", "pi", "gemini-cli", "opencode", "swe-agent", "openhands")


@dataclass
class Row:
    """One scan."""

    what: str
    files: int
    megabytes: float
    cores: int
    seconds: float
    cpu_s: float
    """The time of the processor, of all processes together."""
    peak_megabytes: float
    runs: int
    loops: int

    @property
    def speed(self) -> float:
        """Megabytes a second."""
        return self.megabytes / self.seconds


def samples(kinds: Sequence[str] = KINDS) -> list[tuple[str, bytes]]:
    """The samples of the formats `kinds`, unpacked."""
    found: list[tuple[str, bytes]] = []
    for kind in kinds:
        for path in sorted((SAMPLES / kind).glob("*")):
            if path.is_file():
                data = path.read_bytes()
                found.append((path.name.removesuffix(".gz"), gzip.decompress(data) if path.suffix == ".gz" else data))
    return found


def altered(data: bytes, number: int) -> bytes:
    """`data` with the ids of session `number`, and on a day of its own."""
    return later(_ID.sub(b"%08x" % number, data), number)


def later(data: bytes, days: int) -> bytes:
    """`data` as a part of the same session that was written `days` later."""

    def moved(day: re.Match[bytes]) -> bytes:
        return (dt.date.fromisoformat(day[0].decode()) + dt.timedelta(days)).isoformat().encode()

    return _DAY.sub(moved, _RECORD.sub(b"%08x" % days, data))


def fill(folder: Path, files: int, bytes_a_file: float, kinds: Sequence[str] = KINDS) -> float:
    """Write `files` files of about `bytes_a_file` on average. Answers their megabytes."""
    given = samples(kinds)
    written = 0
    for number in range(files):
        name, data = given[number % len(given)]
        times = max(1, round(bytes_a_file / len(data))) if name.endswith(".jsonl") else 1
        own = altered(name.encode(), number).decode()  # the names say which session is whose
        place = folder / f"{number:06}" / own
        place.parent.mkdir(parents=True)
        session = altered(data, number)
        written += place.write_bytes(b"".join(later(session, number + part) for part in range(times)))
    return written / 1e6


def large(folder: Path, megabytes: float) -> float:
    """One file of about `megabytes`, of one sample. Answers its megabytes."""
    (data,) = (data for name, data in samples() if name.startswith("rollout-skills-6cfb81c05ca9"))
    times = max(1, int(megabytes * 1e6 / len(data)))
    with (folder / "rollout-large.jsonl").open("wb") as file:
        for day in range(times):
            file.write(later(data, day))
    return len(data) * times / 1e6


def scan(what: str, folder: Path, files: int, megabytes: float, cores: int, *, cache: Path | None = None) -> Row:
    """One scan in a process of its own, on `cores` cores. `cache`: where results are kept."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = ["--no-cache"] if cache is None else []
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "scan", "--json", *options, str(folder)],
        env=os.environ if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]),
    )
    seconds = time.perf_counter() - began
    counted = json.loads(done.stdout.splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = max(before.ru_maxrss, after.ru_maxrss) / 1000
    return Row(what, files, megabytes, cores, seconds, cpu, peak, counted["runs"], counted["loops"])


@dataclass
class Hooked:
    """How long an agent waits for a hook, which is a process of its own."""

    megabytes: float
    first_s: float
    """The first answer: the session is read from near its end."""
    seconds: float
    """The median of the later ones, each after one more record."""
    cpu_s: float
    bare_s: float
    """The same process without a session, so what it takes to start."""


def hook(folder: Path, megabytes: float) -> Hooked:
    """Ask the hook about a session that grows."""
    sample = SAMPLES / "claude-code" / "entire-8e0a64736bc7-0.jsonl.gz"
    records = [json.loads(line) for line in gzip.decompress(sample.read_bytes()).splitlines()]
    session = folder / "session.jsonl"
    size = number = 0
    with session.open("w") as file:
        while size < megabytes * 1e6:
            number += 1
            for record in records:
                size += file.write(_another(record, number))
    event = {"hook_event_name": "PreToolUse", "transcript_path": str(session), "tool_name": "Bash"}
    first, _ = _answer(folder, event)
    bare = [_answer(folder, {})[0] for _ in range(HOOK_TIMES)]
    later: list[tuple[float, float]] = []
    for more in range(HOOK_TIMES):
        with session.open("a") as file:
            file.write(_another(records[-1], number + more + 1))
        later.append(_answer(folder, event))
    seconds, cpu = (statistics.median(column) for column in zip(*later, strict=True))
    return Hooked(size / 1e6, first, seconds, cpu, statistics.median(bare))


def _another(record: dict[str, Any], number: int) -> str:
    """The record with ids of its own, as a line."""
    copy = {**record, **{key: f"{record[key]}-{number}" for key in ("uuid", "parentUuid") if record.get(key)}}
    message = record.get("message")
    if isinstance(message, dict) and message.get("id"):
        copy["message"] = {**message, "id": f"{message['id']}-{number}"}
    return f"{json.dumps(copy)}\n"


def _answer(folder: Path, event: Mapping[str, Any]) -> tuple[float, float]:
    """The seconds of one answer, and those of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "hook", "claude-code", "--on-loop", "deny"],
        input=json.dumps(event).encode(),
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    seconds = time.perf_counter() - began
    assert json.loads(done.stdout) is not None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print the table, write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=FILES, help="how many files")
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES, help="of how many bytes in all")
    parser.add_argument("--turns", type=int, default=LOOP_TURNS, help="how often a hook is asked about a loop")
    options = parser.parse_args()
    files, each = options.files, options.gigabytes * 1e9 / options.files
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="agent-monitor-bench-") as place:
        small, one, many, home, asked = (Path(place, name) for name in ("small", "one", "many", "home", "asked"))
        claude = home / SESSIONS
        for folder in (small, one, many, claude, asked):
            folder.mkdir(parents=True)
        for what, folder, share in (("a tenth of one large file", small, 0.1), ("one large file", one, 1.0)):
            size = large(folder, share * options.gigabytes * 1e3 / 4)
            rows.append(scan(what, folder, 1, size, 1))
        hooked = hook(Path(place), min(HOOK_MEGABYTES, options.gigabytes * 1e3 / 4))
        size = fill(claude, files // 4, 0.0, ("claude-code",))
        rows.append(scan("sessions of Claude Code", claude, files // 4, size, 1))
        beside, shares, loop = peers(home), parts(home), looped(asked, options.turns)
        size = fill(many, files, each)
        cores = len(os.sched_getaffinity(0))
        rows += [scan("many files", many, files, size, number) for number in sorted({1, cores})]
        again = [
            scan(f"many files, {when} time", many, files, size, cores, cache=Path(place, "known")) for when in TIMES
        ]
    print(f"{'what':28}  files     MB cores       s   cpu s  files/s   MB/s  peak MB   runs")
    for row in (*rows, *again):
        print(
            f"{row.what:28} {row.files:6,} {row.megabytes:6,.0f} {row.cores:5} {row.seconds:7.1f} {row.cpu_s:7.1f}"
            f" {row.files / row.seconds:8,.1f} {row.speed:6.1f} {row.peak_megabytes:8,.0f} {row.runs:6,}"
        )
    print(f"speed-up on {rows[-1].cores} cores: {rows[-2].seconds / rows[-1].seconds:.2f}")
    print(
        f"hook on a session of {hooked.megabytes:.0f} MB: {hooked.first_s:.2f} s at first, {hooked.seconds:.2f} s after"
        f" one more record ({hooked.cpu_s:.2f} s of a core); a process without a session {hooked.bare_s:.2f} s"
    )
    for other in beside:
        print(
            f"{other.what:32} over the sessions of Claude Code: {other.seconds:7.1f} s, {other.cpu_s:7.1f} s of a core"
        )
    for what, spent in shares.items():
        print(f"{what:40} {spent:6.1f} ms a megabyte")
    for what, (median, most) in loop.items():
        print(f"hook, {what:34} {median:6.0f} ms of a core, 99th percentile {most:.0f}")
    results = {"rows": [asdict(row) for row in (*rows, *again)], "hook": asdict(hooked), "loop": loop}
    write("scan", {**results, "beside": [asdict(other) for other in beside], "parts_ms_a_megabyte": shares})


if __name__ == "__main__":
    main()
