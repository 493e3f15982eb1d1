"""Writes docs/event_kinds.md: every kind of event of each SDK, and what an adapter reads of it. The
kinds are in fixtures/event_kinds.tsv; a test compares them with the types of the installed SDKs.

python scripts/event_kinds.py            write the page
python scripts/event_kinds.py --check    exit with 1 if the page is not up to date
"""

from __future__ import annotations

import csv
import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KINDS = ROOT / "fixtures" / "event_kinds.tsv"
PAGE = ROOT / "docs" / "event_kinds.md"

MEANINGS = {
    "text": "visible text, watched",
    "thinking": "thinking, watched",
    "call": "a call of your tools; its arguments are watched",
    "service call": "written for a tool of the service, or for the service itself; watched like arguments",
    "repeats": "the same as the pieces before it; read only if none came",
    "result": "the output of a tool of the service: not written by the model",
    "media": "sound, images, files: named in `Turn.gave`",
    "citation": "quotes and places: not read",
    "sign": "data that the service needs back: kept",
    "state": "says that work has begun, goes on or is over: not read",
    "end": "the end, with its reason and the usage",
    "failure": "the service has failed",
}
"""What an adapter does with a kind, and its meaning."""

HEAD = """# Event kinds

Every kind of event, item, block and part in the types of the SDKs, and what an adapter does with
it. A kind that is new in an SDK fails the tests of this library until it has a row. An adapter
passes over a kind that it does not know; the stream goes on.

| word | meaning |
| --- | --- |
"""


class EventKind(NamedTuple):
    """One row: which kind of what, in which SDK, and what is done with it."""

    sdk: str
    where: str
    kind: str
    done: str


def event_kinds() -> list[EventKind]:
    """The rows of the fixture."""
    with KINDS.open(encoding="utf-8", newline="") as file:
        return [EventKind(*row) for row in csv.reader(file, delimiter="\t")]


def page() -> str:
    """The page."""
    parts = [HEAD, *(f"| {word} | {meaning} |\n" for word, meaning in MEANINGS.items())]
    for (sdk, where), rows in groupby(event_kinds(), key=lambda row: (row.sdk, row.where)):
        parts.append(f"\n## {sdk}: {where}\n\n| what is done | kinds |\n| --- | --- |\n")
        by_done: dict[str, list[str]] = {}
        for row in rows:
            by_done.setdefault(row.done, []).append(f"`{row.kind}`")
        parts += [f"| {done} | {', '.join(kinds)} |\n" for done, kinds in by_done.items()]
    return "".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    print(f"event_kinds.md: {len(event_kinds())} kinds")
