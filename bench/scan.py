"""`agent-monitor scan` over a disk: files and megabytes a second, the speed-up of a second core,
and whether the memory grows.

    python -m bench.scan                 10,000 files, 2 GB
    python -m bench.scan --files 500     a twentieth of it

The files are the samples of `fixtures/readers`, repeated. One large file is made of one sample.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench._report import write

SAMPLES = Path(__file__).parents[1] / "fixtures" / "readers"
FILES = 10_000
BYTES_A_FILE = 200_000
"""10,000 such files are 2 GB."""
KINDS = ("claude-code", "codex", "copilot-cli", "pi", "gemini-cli", "opencode", "swe-agent", "openhands")


@dataclass
class Row:
    """One scan."""

    what: str
    files: int
    megabytes: float
    cores: int
    seconds: float
    peak_megabytes: float
    runs: int
    loops: int

    @property
    def speed(self) -> float:
        """Megabytes a second."""
        return self.megabytes / self.seconds


def samples() -> list[tuple[str, bytes]]:
    """The samples of the formats that are most on disks, unpacked."""
    found: list[tuple[str, bytes]] = []
    for kind in KINDS:
        for path in sorted((SAMPLES / kind).glob("*")):
            if path.is_file():
                data = path.read_bytes()
                found.append((path.name.removesuffix(".gz"), gzip.decompress(data) if path.suffix == ".gz" else data))
    return found


def fill(folder: Path, files: int) -> float:
    """Write `files` files of about `BYTES_A_FILE` on average. Answers their megabytes."""
    given = samples()
    written = 0
    for number in range(files):
        name, data = given[number % len(given)]
        times = max(1, round(BYTES_A_FILE / len(data))) if name.endswith(".jsonl") else 1
        place = folder / f"{number // 1000:03}" / f"{number:06}-{name}"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data * times)
        written += len(data) * times
    return written / 1e6


def large(folder: Path, megabytes: float) -> float:
    """One file of about `megabytes`, of one sample. Answers its megabytes."""
    (data,) = (data for name, data in samples() if name.startswith("rollout-skills-6cfb81c05ca9"))
    times = max(1, int(megabytes * 1e6 / len(data)))
    with (folder / "rollout-large.jsonl").open("wb") as file:
        for _ in range(times):
            file.write(data)
    return len(data) * times / 1e6


def scan(what: str, folder: Path, files: int, megabytes: float, cores: int) -> Row:
    """One scan in a process of its own, held to `cores` cores."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "scan", "--json", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]),
    )
    seconds = time.perf_counter() - began
    counted = json.loads(done.stdout.splitlines()[-1])
    peak = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1000
    return Row(what, files, megabytes, cores, seconds, peak, counted["runs"], counted["loops"])


def main() -> None:
    """Measure, print the table, write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=FILES, help="how many files; 10,000 are 2 GB")
    files = parser.parse_args().files
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="agent-monitor-bench-") as place:
        small, one, many = (Path(place, name) for name in ("small", "one", "many"))
        for folder in (small, one, many):
            folder.mkdir()
        for what, folder, share in (("a tenth of one large file", small, 0.1), ("one large file", one, 1.0)):
            size = large(folder, share * files * BYTES_A_FILE / 1e6 / 4)
            rows.append(scan(what, folder, 1, size, 1))
        size = fill(many, files)
        cores = len(os.sched_getaffinity(0))
        rows += [scan("many files", many, files, size, number) for number in sorted({1, cores})]
    print(f"{'what':28}  files     MB cores       s  files/s   MB/s  peak MB   runs")
    for row in rows:
        print(
            f"{row.what:28} {row.files:6,} {row.megabytes:6,.0f} {row.cores:5} {row.seconds:7.1f}"
            f" {row.files / row.seconds:8,.1f} {row.speed:6.1f} {row.peak_megabytes:8,.0f} {row.runs:6,}"
        )
    print(f"speed-up on {rows[-1].cores} cores: {rows[-2].seconds / rows[-1].seconds:.2f}")
    write("scan", {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
