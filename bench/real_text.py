"""How quiet the detectors of text are on real files: those that are installed on this machine.

    python -m bench.real_text [--folders DIR ...] [--quick] [--places text fence arguments]

Code, documentation, data, markup, music and translations: of each ending at most so many files,
chosen by a hash of their names, and of each file at most `MOST_CHARS` characters. A stop ends the
run, so a file counts once. A stop is wrong unless it is shown to be a loop, so each is listed with
its text.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import random
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import _report
from monitor.chunks import Chunk, TextDelta, ToolCallDelta
from monitor.detectors import ContentRepetition
from monitor.testing import cut
from monitor.verdicts import Detection

FOLDERS = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "/usr/share", "/usr/include", "/usr/lib")
"""What is searched for files: the packages of this Python, its library, and those of the system."""
MOST_FILES = 250
"""Files of one ending."""
QUICK_FILES = 4
MOST_CHARS = 120_000
LEAST_CHARS = 512
TOKEN_CHARS = 4
CHUNK_CHARS = 4
GOAL_STOPS = 0.2
"""Wrong stops a million tokens, a goal of the library."""
GOAL_FILES = 3_000
EXCERPT_CHARS = 160
PLACES = ("text", "fence", "arguments")
"""Where a file stands: as the answer, in a fence within it, or as the arguments of a call."""


@dataclass(slots=True, frozen=True)
class Stopped:
    """A file in which something was found."""

    file: str
    kind: str
    level: str
    offset: int
    count: int
    threshold: int
    excerpt: str


@dataclass(slots=True)
class Ending:
    """The files of one ending."""

    files: int = 0
    chars: int = 0
    stops: int = 0
    nudges: int = 0


@dataclass(slots=True)
class RealText:
    """What came of one place."""

    place: str
    endings: dict[str, Ending] = field(default_factory=lambda: defaultdict(Ending))
    found: list[Stopped] = field(default_factory=list[Stopped])
    differing: list[str] = field(default_factory=list[str])
    """Files whose findings depend on the cut; there must be none."""

    @property
    def files(self) -> int:
        """How many were read."""
        return sum(ending.files for ending in self.endings.values())

    @property
    def stops_per_million(self) -> float:
        """Stops a million tokens, each of `TOKEN_CHARS` characters."""
        chars = sum(ending.chars for ending in self.endings.values())
        return sum(ending.stops for ending in self.endings.values()) * 1e6 * TOKEN_CHARS / max(chars, 1)

    def goals(self) -> list[tuple[str, float, float, bool]]:
        """(what, value, limit, at least)."""
        return [
            (f"stops a million tokens of real files, as {self.place}", self.stops_per_million, GOAL_STOPS, False),
            (f"real files read, as {self.place}", self.files, GOAL_FILES, True),
            (f"real files whose findings depend on the cut, as {self.place}", len(self.differing), 0, False),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "place": self.place,
            "files": self.files,
            "stops_per_million": self.stops_per_million,
            "endings": {name: asdict(ending) for name, ending in sorted(self.endings.items())},
            "found": [asdict(one) for one in self.found],
            "differing": self.differing,
        }


def chosen(folders: Iterable[str | Path], most: int) -> list[tuple[str, str, str]]:
    """(name, ending, text) of up to `most` files of each ending; no text twice."""
    by_ending: dict[str, list[tuple[bytes, Path]]] = defaultdict(list)
    for folder in folders:
        for path in Path(folder).rglob("*"):
            name = path.name.removesuffix(".gz")
            ending = Path(name).suffix or "none"
            if path.is_file() and not path.is_symlink() and len(ending) < 10:
                by_ending[ending if not ending[1:].isdigit() else "man"].append((_digest(path.name), path))
    seen: set[bytes] = set()
    chosen: list[tuple[str, str, str]] = []
    for ending, paths in sorted(by_ending.items()):
        wanted = most
        for _, path in sorted(paths)[: 4 * most]:
            text = _text_of(path)
            if wanted and len(text) >= LEAST_CHARS and (digest := _digest(text)) not in seen:
                seen.add(digest)
                wanted -= 1
                chosen.append((f"{path.parent.name}/{path.name}", ending, text))
    return chosen


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def _text_of(path: Path) -> str:
    """Its first characters; empty if it is no text."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(4 * MOST_CHARS)
        text = data.decode("utf-8", "ignore" if len(data) == 4 * MOST_CHARS else "strict")
    except (OSError, EOFError, UnicodeDecodeError):
        return ""
    return "" if "\0" in text else text[:MOST_CHARS]


def placed(place: str, text: str, size: int | None) -> Iterator[Chunk]:
    """The file as a model writes it, in chunks of `size` characters; `None`: as one."""
    whole = f"Here is the file:\n\n```\n{text}\n```\n" if place == "fence" else text
    for piece in cut(whole, size) if size else [whole]:
        yield ToolCallDelta("a", "write_file", piece) if place == "arguments" else TextDelta(piece)


def watch(place: str, text: str, size: int | None) -> list[Detection]:
    """All findings in the file."""
    detector = ContentRepetition()
    return [finding for chunk in placed(place, text, size) for finding in detector.observe(chunk)]


def measure(place: str, files: Sequence[tuple[str, str, str]]) -> RealText:
    """Every file, whole and in small chunks."""
    results = RealText(place)
    for name, ending, text in files:
        found = watch(place, text, None)
        if found != watch(place, text, CHUNK_CHARS):
            results.differing.append(name)
        row = results.endings[ending]
        row.files += 1
        row.chars += len(text)
        stopped = any(one.level == "loop" for one in found)
        row.stops += stopped
        row.nudges += bool(found) and not stopped
        results.found += [
            Stopped(
                file=name,
                kind=one.kind,
                level=one.level,
                offset=one.offset,
                count=one.count,
                threshold=one.threshold,
                excerpt=text[max(one.offset - EXCERPT_CHARS, 0) : one.offset],
            )
            for one in told(found)
        ]
    return results


def told(found: Sequence[Detection]) -> Sequence[Detection]:
    """The findings up to the first stop."""
    stop = next((number for number, one in enumerate(found, 1) if one.level == "loop"), len(found))
    return found[:stop]


def show(console: Console, results: RealText) -> None:
    """The endings with findings, and each stop."""
    table = Table(title=f"real files as {results.place}: {results.stops_per_million:.2f} stops a million tokens")
    for column in ("ending", "files", "characters", "stops", "files nudged"):
        table.add_column(column, justify="left" if column == "ending" else "right")
    for name, row in sorted(results.endings.items()):
        if row.stops or row.nudges:
            table.add_row(name, *(f"{number:,}" for number in (row.files, row.chars, row.stops, row.nudges)))
    every = [
        sum(getattr(row, what) for row in results.endings.values()) for what in ("files", "chars", "stops", "nudges")
    ]
    table.add_section()
    table.add_row(f"all {len(results.endings)}", *(f"{number:,}" for number in every))
    console.print(table)
    for one in results.found:
        if one.level == "loop":
            line = f"{one.file} at {one.offset}: {one.kind} {one.count}/{one.threshold} {one.excerpt!r}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_text", description="False alarms on real files.")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="where the files are")
    parser.add_argument("--places", nargs="+", default=PLACES, choices=PLACES, help="where in a run they stand")
    parser.add_argument("--quick", action="store_true", help="a few files of each ending; writes nothing")
    options = parser.parse_args(arguments)
    console, start = Console(width=150), time.monotonic()
    files = chosen(options.folders, QUICK_FILES if options.quick else MOST_FILES)
    random.Random(1).shuffle(files)
    parts = [measure(place, files) for place in options.places]
    for part in parts:
        show(console, part)
    goals = [goal for part in parts for goal in part.goals()]
    for what, value, limit, least in goals:
        passed = value >= limit if least else value <= limit
        console.print(f"{'PASS' if passed else 'FAIL'}  {what}: {value:.3f} (limit {limit})")
    console.print(f"{time.monotonic() - start:.0f} s")
    if not options.quick:
        _report.write("real_text", {"parts": [part.to_dict() for part in parts]})
    return 0 if all(value >= limit if least else value <= limit for _, value, limit, least in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
