"""How fast the detectors are, what they hold, and where they fire, beside Gemini CLI's own
detector.

    python -m bench.detectors [--quick]

The peer is `LoopDetectionService` of the npm package named below, installed once into the system's
temporary folder and driven by `gemini_worker.mjs`; without node or npm its columns stay empty.
Texts are made from the recorded runs in `fixtures/transcripts`, with a fixed seed; how the slow
ones are found: `_worst_text`. Peer and ours take turns; cells are medians of processor time, which
other programs change little (the peer's includes the helper threads of node). The peer reads a
prefix that keeps a cell near a second (its cost per delta grows until its history of 5000
characters is full, which every prefix exceeds).
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import _report, _worst_text
from monitor.chunks import TextDelta, TurnFinished
from monitor.core.detector_bank import DetectorBank
from monitor.detectors import ContentRepetition, default_detectors
from monitor.errors import FinishReason
from monitor.testing import cut
from monitor.verdicts import Detection

PACKAGE = "@google/gemini-cli-core"
VERSION = "0.61.0"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
SIZES: tuple[int | str, ...] = (1, 4, 16, 64, 256, 4096, "tokens")
PEER_CHARS = {1: 60_000, 4: 16_000, 16: 40_000, 64: 60_000, 256: 100_000, 4096: 400_000, "tokens": 16_000}
"""Prefix that the peer reads; ours reads all."""
TOKENS = re.compile(r"\s?[A-Za-z]{1,8}|\d{1,3}|\s+|[^\sA-Za-z\d]")
"""Word and punctuation pieces, like the tokens that some providers send one by one."""
GOALS: dict[int | str, float] = {4: 500, 16: 100, 64: 100, 256: 100, 4096: 100}
"""Characters per second on prose, ours over the peer's."""
GOALS_ALL: dict[int | str, float] = {4: 200}
"""The same with every default detector."""
GOAL_WORST_US = {4: 3.0, 4096: 1.0}
"""Microseconds a character, by the size of the deltas."""
GOAL_MEMORY_BYTES = 10_000
GOAL_STREAM_BYTES = 16_384
"""All default detectors, one channel of ASCII."""
SEARCH_SECONDS = 60
WORST_SHOWN = 15

Feed: TypeAlias = Callable[[str], Sequence[Detection]]
Row: TypeAlias = dict[str, Any]
console = Console(width=150)


# Texts


def recorded() -> list[str]:
    """Every assistant text of the recorded runs that must stay quiet, in plane 0 (the peer counts
    UTF-16).
    """
    texts: list[str] = []
    for name in ("dev.jsonl.gz", "text_negatives_dev.jsonl.gz"):
        with gzip.open(FIXTURES / name, "rt", encoding="utf-8") as lines:
            runs = [json.loads(line) for line in lines]
        messages = [
            message for run in runs if run["label"] in ("clean", "negative_text") for message in run["messages"]
        ]
        texts += [message["text"] for message in messages if message["role"] == "assistant" and message.get("text")]
    return ["".join(character for character in text if ord(character) < 0x10000) for text in texts]


def filled(parts: Iterable[str], chars: int) -> str:
    """`parts` one after the other, from the start again when they are used up."""
    whole = "\n\n".join(parts) + "\n\n"
    return (whole * (chars // len(whole) + 1))[:chars]


def prose_of(texts: list[str], chars: int) -> str:
    """Sentences of the words seen, as often as seen: no sentence comes twice."""
    rng = random.Random(7)
    words = [word.lower() for text in texts for word in re.findall(r"\b[A-Za-z]{2,12}\b", text)]
    paragraphs: list[str] = []
    size = 0
    while size < chars:
        sentences = (
            " ".join(rng.choices(words, k=rng.randint(6, 22))).capitalize() + rng.choice("....?!")
            for _ in range(rng.randint(3, 7))
        )
        paragraphs.append(" ".join(sentences))
        size += len(paragraphs[-1]) + 2
    return "\n\n".join(paragraphs)[:chars]


def inputs(chars: int) -> dict[str, str]:
    """Prose, markdown as models write it, and the code blocks out of it, each in its fence."""
    texts = recorded()
    fenced = [
        block
        for text in texts
        for block in re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
        if len(block) > 300
    ]
    layout = [text for text in texts if re.search(r"^(?:[-*#>|]|\d+\.)", text, re.MULTILINE)]
    return {"prose": prose_of(texts, chars), "markdown": filled(layout, chars), "code": filled(fenced, chars)}


def pieces(text: str, size: int | str) -> list[str]:
    """`text` cut at `size` characters, or into tokens."""
    return TOKENS.findall(text) if isinstance(size, str) else cut(text, size)


# The peer


class Peer:
    """The worker process, or nothing where it cannot be had."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        worker = Path(__file__).with_name("gemini_worker.mjs")
        package = folder / "node_modules" / PACKAGE
        self._scratch = scratch
        self._files: dict[tuple[str, int | str], Path] = {}
        self._process = subprocess.Popen(
            [shutil.which("node") or "node", str(worker), str(package)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, text: str, size: int | str, *, first: bool = False) -> Row:
        """Feed `text` cut at `size` to a new service."""
        key = (text, size)
        if key not in self._files:
            self._files[key] = self._scratch / f"{len(self._files)}.json"
            self._files[key].write_text(json.dumps(pieces(text, size)), "utf-8")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"file": str(self._files[key]), "limit": 0, "first": first}) + "\n")
        self._process.stdin.flush()
        answer: Row = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the worker."""
        self._process.communicate()


def installed() -> Path | None:
    """The folder with the peer's package, installed at the first run; `None` with a word where that
    fails.
    """
    npm, folder = shutil.which("npm"), Path(tempfile.gettempdir()) / f"agent-monitor-gemini-{VERSION}"
    if npm is None or shutil.which("node") is None:
        console.print("node and npm are not here: no comparison with Gemini CLI")
        return None
    if not (folder / "node_modules" / PACKAGE / "package.json").exists():
        folder.mkdir(exist_ok=True)
        console.print(f"Installing {PACKAGE}@{VERSION} into the temporary folder (once, about a minute)")
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", f"{PACKAGE}@{VERSION}"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
        except (subprocess.SubprocessError, OSError) as error:
            console.print(f"The peer could not be installed ({type(error).__name__}): no comparison with Gemini CLI")
            return None
    return folder


# Measurements


def ns_per_char(make: Callable[[], Feed], deltas: Sequence[str]) -> float:
    """Processor time of one pass with a new detector."""
    feed = make()
    start = time.process_time_ns()
    for delta in deltas:
        feed(delta)
    return (time.process_time_ns() - start) / sum(map(len, deltas))


def all_defaults() -> Feed:
    """Every default detector, fed text as a guard does."""
    return DetectorBank(default_detectors()).text


def all_observing() -> Feed:
    """Every default detector, given a chunk for each delta, as a caller without a guard might."""
    observers = [detector.observe for detector in default_detectors()]

    def feed(delta: str) -> Sequence[Detection]:
        chunk = TextDelta(delta)
        for observe in observers:
            observe(chunk)
        return ()

    return feed


def speed(texts: dict[str, str], peer: Peer | None, rounds: int) -> list[Row]:
    """Time per character of each detector, interleaved."""
    rows: list[Row] = []
    for name, text in texts.items():
        for size in SIZES:
            deltas, prefix = pieces(text, size), text[: PEER_CHARS[size]]
            times: dict[str, list[float]] = {"peer": [], "content": [], "all": [], "observed": []}
            fired = 0
            for _ in range(rounds):
                if peer is not None:
                    answer = peer.ask(prefix, size)
                    times["peer"].append(answer["ns"] / answer["chars"])
                    fired = answer["fired"]
                times["content"].append(ns_per_char(lambda: ContentRepetition().feed, deltas))
                times["all"].append(ns_per_char(all_defaults, deltas))
                times["observed"].append(ns_per_char(all_observing, deltas))
            medians = {kind: statistics.median(values) if values else None for kind, values in times.items()}
            mean_size = len(text) / len(deltas)
            rows.append(
                {"text": name, "delta": size, "mean_delta": mean_size, "ns_per_char": medians, "peer_fired": fired}
            )
    return rows


def chants() -> dict[str, str]:
    """What is repeated in the table of verdicts; some thousand characters of each."""
    sentence = "I will now check the configuration file again to be sure. "
    paragraph = (
        "I have looked at the file and the tests and I am now going to run the tests again, because the result was not"
        " what the plan said. "
    )
    units = {
        "sentence, 58": sentence,
        "short sentence, 20": "Let me try again... ",
        "word, 5": "felt ",
        "one character": "7",
        "paragraph, 131": paragraph,
        "two paragraphs, 300": (
            paragraph + "Then I shall open the module once more and read how the parser handles it. " * 3
        )[:300],
        "bullet, 49": "- I will check the configuration file once more.\n",
        "numbered, 50": "1. I will check the configuration file once more.\n",
        "heading and text": "## Next step\n\n" + sentence.strip() + "\n\n",
        "Chinese sentence, 16": "我将再次检查配置文件以确保无误。",
        "in an open fence, 58": "FENCE",
    }
    texts = {name: unit * (9000 // len(unit) + 1) for name, unit in units.items()}
    texts["in an open fence, 58"] = "\n```python\n" + sentence * 150
    texts["with a counter, 80"] = "".join(
        f"Attempt number {i}: let me read the config again and see what happens now. " for i in range(110)
    )
    return texts


def verdicts(prose: str, peer: Peer | None) -> list[Row]:
    """Characters of the chant until the verdict, for every cut; `None`: no verdict."""
    before = prose[:3000].replace("\n", " ")
    rows: list[Row] = []
    for name, chant in chants().items():
        text = before + chant
        for who in ("Gemini CLI", "agent-monitor"):
            cells: dict[str, int | None] = {}
            for size in SIZES:
                if who == "agent-monitor":
                    at = first_verdict(pieces(text, size))
                else:
                    at = peer.ask(text, size, first=True)["at"] if peer is not None else -1
                cells[str(size)] = at - len(before) if at >= 0 else None
            rows.append({"chant": name, "detector": who, "chars": cells})
    return rows


def first_verdict(deltas: Sequence[str]) -> int:
    """Offset of the first finding, -1 without one."""
    feed = ContentRepetition().feed
    return next((finding.offset for delta in deltas for finding in feed(delta)), -1)


def worst(chars: int, seconds: float) -> list[Row]:
    """Texts made to be slow, and the slowest that a search finds now: all default detectors, in
    small deltas and large ones.
    """
    _, found = _worst_text.search(seconds, seed=1)
    cycles = {**_worst_text.HAND_MADE, **_worst_text.FOUND, "found now": found}
    rows: list[Row] = []
    for name, cycle in cycles.items():
        text = _worst_text.written(cycle, chars)
        small, large = (_worst_text.us_per_char(text, delta) for delta in (4, 4096))
        rows.append(
            {"text": name, "written": _worst_text.described(cycle), "us_per_char": small, "us_per_char_4096": large}
        )
    return sorted(rows, key=lambda row: -row["us_per_char"])


def held(prose: str) -> list[Row]:
    """What all default detectors hold at most, in the fourth of four messages that fill every
    buffer, in deltas of 4.
    """
    rng = random.Random(3)
    chinese = "".join(chr(rng.randrange(0x4E00, 0x4E00 + 3000)) for _ in range(36_000))
    smileys = "".join(
        chr(rng.randrange(0x1F600, 0x1F640)) if rng.random() < 0.02 else letter for letter in prose[:36_000]
    )
    rows: list[Row] = []
    for name, text in {"ASCII": prose[:36_000], "Chinese": chinese, "ASCII with emoji": smileys}.items():
        messages = [cut(text[start : start + 9000], 4) for start in range(0, len(text), 9000)]
        most_held(messages)  # what is made once for all streams is made here
        gc.collect()  # memory that Python keeps ready for reuse would not count
        tracemalloc.start()
        largest = most_held(messages)
        tracemalloc.stop()
        rows.append({"text": name, "bytes": largest})
    return rows


def most_held(messages: Sequence[Sequence[str]]) -> int:
    """Bytes traced at most while a stream reads the last message."""
    bank, largest = DetectorBank(default_detectors()), 0
    for deltas in messages:
        largest = 0
        for delta in deltas:
            bank.text(delta)
            largest = max(largest, tracemalloc.get_traced_memory()[0])
        bank.fact(TurnFinished(FinishReason.DONE))
    return largest


def growth(prose: str, megabytes: Sequence[int]) -> list[Row]:
    """Time and memory of one detector as its stream grows, in deltas of 64; then the same text as
    one delta.
    """
    deltas = cut(prose, 64)
    rows: list[Row] = []
    for size in megabytes:
        copies = max(1, size * 1_000_000 // len(prose))
        feed = ContentRepetition().feed
        start = time.perf_counter_ns()
        for delta in repeated(deltas, copies):
            feed(delta)
        ns = (time.perf_counter_ns() - start) / (copies * len(prose))
        tracemalloc.start()
        detector = ContentRepetition()
        before = tracemalloc.get_traced_memory()[0]
        for delta in repeated(deltas, copies):
            detector.feed(delta)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        giant = prose * copies
        tracemalloc.start()
        start = time.perf_counter_ns()
        ContentRepetition().feed(giant)
        giant_ns = (time.perf_counter_ns() - start) / len(giant)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "megabytes": size,
                "ns_per_char": ns,
                "held_bytes": held,
                "one_delta_ns_per_char": giant_ns,
                "one_delta_peak_bytes": peak,
            }
        )
    return rows


def repeated(deltas: Sequence[str], copies: int) -> Iterator[str]:
    """All deltas, `copies` times."""
    for _ in range(copies):
        yield from deltas


# Tables


def show_speed(rows: list[Row]) -> list[str]:
    """The table of rates; answers with the goals that were missed."""
    table = Table(title="Time per character (ns; in brackets us per delta)")
    for heading in (
        "text",
        "delta",
        f"Gemini CLI {VERSION}",
        "text detector",
        "ratio",
        "goal",
        "all defaults",
        "ratio",
        "goal",
        "given chunks",
    ):
        table.add_column(heading, justify="left" if heading == "text" else "right")
    missed: list[str] = []
    for row in rows:
        times, ends = row["ns_per_char"], []
        for kind, goals in (("content", GOALS), ("all", GOALS_ALL)):
            goal = goals.get(row["delta"]) if row["text"] == "prose" else None
            ratio = row[f"ratio_{kind}"] = times["peer"] / times[kind] if times["peer"] else None
            if goal and ratio and ratio < goal:
                missed.append(f"{goal:.0f} times on prose at deltas of {row['delta']} ({kind}): {ratio:.0f}")
            ends.append((cell(row, kind), f"{ratio:,.0f}x" if ratio else "-", f"{goal:.0f}x" if goal else ""))
        cells = [cell(row, "peer"), *ends[0], *ends[1], cell(row, "observed")]
        table.add_row(row["text"], str(row["delta"]), *cells)
    console.print(table)
    return missed


def cell(row: Row, kind: str) -> str:
    """A time per character, and per delta."""
    ns = row["ns_per_char"][kind]
    return f"{ns:,.1f} ({ns * row['mean_delta'] / 1000:,.2f})" if ns else "-"


def show_verdicts(rows: list[Row]) -> list[str]:
    """The table of verdicts; answers with chants whose verdict depends on the cut."""
    table = Table(
        title=(
            "Characters of the chant until the verdict, by delta size (the chant begins after 3000 characters of prose)"
        )
    )
    for heading in ("chant", "detector", *map(str, SIZES)):
        table.add_column(heading, justify="left" if heading in ("chant", "detector") else "right")
    for row in rows:
        table.add_row(row["chant"], row["detector"], *("no" if at is None else str(at) for at in row["chars"].values()))
    console.print(table)
    ours = [row for row in rows if row["detector"] == "agent-monitor"]
    return [f"the same verdict for every cut: {row['chant']}" for row in ours if len(set(row["chars"].values())) > 1]


def show_rest(worst_rows: list[Row], held_rows: list[Row], growth_rows: list[Row]) -> list[str]:
    """Slow texts, memory and growth; answers with the goals that were missed."""
    title = f"Worst of {len(worst_rows)} texts, all default detectors, us per character (goals: {GOAL_WORST_US})"
    table = Table("text", "deltas of 4", "of 4096", title=title)
    for row in worst_rows[:WORST_SHOWN]:
        table.add_row(row["text"], f"{row['us_per_char']:.2f}", f"{row['us_per_char_4096']:.2f}")
    console.print(table)
    console.print("Found now: " + next(row["written"] for row in worst_rows if row["text"] == "found now"))
    table = Table(
        "text", "bytes", title=f"Held by all default detectors, one channel (goal: ASCII {GOAL_STREAM_BYTES:,})"
    )
    for row in held_rows:
        table.add_row(row["text"], f"{row['bytes']:,}")
    console.print(table)
    table = Table(title="Growth: one detector, prose in deltas of 64, then as one delta")
    for heading in ("MB", "ns per char", "held, bytes", "one delta: ns per char (traced)", "one delta: peak, bytes"):
        table.add_column(heading, justify="right")
    for row in growth_rows:
        ns, giant = f"{row['ns_per_char']:.1f}", f"{row['one_delta_ns_per_char']:.1f}"
        table.add_row(str(row["megabytes"]), ns, f"{row['held_bytes']:,}", giant, f"{row['one_delta_peak_bytes']:,}")
    console.print(table)
    columns = {4: "us_per_char", 4096: "us_per_char_4096"}
    missed = [
        f"{goal} us per character in deltas of {size}: {row['text']}"
        for size, goal in GOAL_WORST_US.items()
        for row in worst_rows
        if row[columns[size]] > goal
    ]
    missed += [
        f"{GOAL_STREAM_BYTES} bytes of ASCII: {row['bytes']}"
        for row in held_rows[:1]
        if row["bytes"] > GOAL_STREAM_BYTES
    ]
    return missed + [
        f"{GOAL_MEMORY_BYTES} bytes: {row['held_bytes']}"
        for row in growth_rows
        if row["held_bytes"] > GOAL_MEMORY_BYTES
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.detectors", description="Speed, memory and verdicts of the detectors."
    )
    parser.add_argument("--quick", action="store_true", help="small texts, one round, no peer: does it run at all?")
    quick = parser.parse_args().quick
    texts = inputs(60_000 if quick else 400_000)
    folder = None if quick else installed()
    with tempfile.TemporaryDirectory() as scratch:
        peer = Peer(folder, Path(scratch)) if folder else None
        try:
            rates = speed(texts, peer, 1 if quick else 5)
            table = verdicts(texts["prose"], peer)
        finally:
            if peer is not None:
                peer.close()
    slow = worst(4_000, 1) if quick else worst(20_000, SEARCH_SECONDS)
    kept = held(texts["prose"])
    grown = growth(texts["prose"], (1,) if quick else (1, 10, 100))
    missed = show_speed(rates) + show_verdicts(table) + show_rest(slow, kept, grown)
    console.print("Goals missed: " + "; ".join(missed) if missed else "All goals met.")
    if not quick:
        data = {
            "peer": f"{PACKAGE}@{VERSION}" if folder else None,
            "speed": rates,
            "verdicts": table,
            "worst": slow,
            "held": kept,
            "growth": grown,
            "missed": missed,
        }
        _report.write("detectors", data)


if __name__ == "__main__":
    main()
