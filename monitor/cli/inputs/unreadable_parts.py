"""The parts of a scan's input that could not be read: what is said of them, and when they count.

Everything is said after the result, a few files by name. A file that was named must be whole. In a
folder, or in the places of the agents, a few torn lines are usual: an agent was killed while it
wrote. They are said, and the input still counts as read, as long as they are few in their file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console

from monitor.cli.render import output
from monitor.transcripts.analysis.survey import SurveyedFile
from monitor.transcripts.entries import ReadReport
from monitor.transcripts.kinds import MAGIC_BYTES, kind_of
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import BOM, HEAD_BYTES, MAX_DOCUMENT_BYTES, Source, damage
from monitor.view.run_ending import count

FEW: Final = 0.1
"""The share of the lines of a file that may be torn or unknown. Of 17 shared sessions of Claude
Code one had 8 % of torn lines, and two fewer.
"""
LINES: Final = (".jsonl", ".ndjson")
"""The endings of files that must be text."""
SHOWN_FILES: Final = 5
SHOWN_LINES: Final = 3
"""How many lines of a file are named. If a file is not understood, mostly all lines have the same
fault.
"""


@dataclass(slots=True)
class Complaints:
    """The lines about one file."""

    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each with the style in which it is shown."""

    def add(self, text: str, style: str = "red") -> None:
        """One more line."""
        self.lines.append((text, style))

    def show(self, console: Console) -> None:
        """Print all of them."""
        for text, style in self.lines:
            output.complain(console, text, style=style)


@dataclass(slots=True)
class UnreadableParts:
    """The parts that could not be read, in all files."""

    files: list[Complaints] = field(default_factory=list[Complaints])
    torn: int = 0
    """Lines that could not be read, few in each of their files."""

    def take(self, found: SurveyedFile, *, named: bool) -> int:
        """Note the unreadable parts of a transcript. Returns how many of them count. `named`: the
        file was named by itself.
        """
        said = complaints_of(found.file, found.report)
        if found.error:
            said.add(f"agent-monitor: cannot read {found.file}: {found.error}")
        crashed = [run for run in found.runs if run.failed]
        for run in crashed:
            said.add(f"{found.file}: run {run.id}: {run.failed}")
        if said.lines:
            self.files.append(said)
        unread = found.report.bad + found.report.left_out
        if not named and found.runs and not found.report.lost and unread <= FEW * found.report.lines:
            self.torn += unread
            unread = 0
        return unread + bool(found.error) + len(crashed)

    def refuse(self, name: str, why: str) -> None:
        """Note a file that is no transcript."""
        said = Complaints()
        said.add(f"{name}: {why}")
        self.files.append(said)

    def show(self, console: Console) -> None:
        """Print what is to be said of the first files, and how many more there are."""
        for said in self.files[:SHOWN_FILES]:
            said.show(console)
        if (more := len(self.files) - SHOWN_FILES) > 0:
            output.complain(console, f"and {count(more, 'more file')} with parts that could not be read")


def complaints_of(name: str, report: ReadReport) -> Complaints:
    """The lines about the unreadable parts that a reader noted. `name`: the file."""
    said = Complaints()
    for line, why in report.first_bad[:SHOWN_LINES]:
        said.add(f"{name}:{line}: {why}")
    if (more := report.bad - SHOWN_LINES) > 0:
        said.add(f"{name}: and {count(more, 'more line')} could not be read")
    if report.unknown:
        kinds = ", ".join(sorted(report.unknown)[:SHOWN_LINES])
        said.add(f"{name}: {count(report.left_out, 'record')} of unknown types left out: {kinds}", "yellow")
    return said


def hides_a_transcript(source: Source) -> str:
    """Why a file whose format is unknown may be a transcript all the same; empty: it is none."""
    head, is_lines = source.head, source.name.removesuffix(".gz").removesuffix(".zst").endswith(LINES)
    kind = kind_of(head[:MAGIC_BYTES])
    if kind and (is_lines or head.decode("utf-16", "replace").lstrip()[:1] in {"{", "["}):
        return f"it is {kind}"
    if head.lstrip()[:1] not in {b"{", b"["}:
        return ""
    if len(head) >= HEAD_BYTES and b"\n" not in head:
        return f"its first line is longer than {HEAD_BYTES // 2**20} MB, so its format is not recognised"
    return "" if is_lines else _broken(source)


def _broken(source: Source) -> str:
    """Why a file that begins as a JSON document is none; empty: it is one, or something else."""
    text = ""
    try:
        with source.open() as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1).removeprefix(BOM).decode("utf-8", "replace").strip()
        json.loads(text)
    except RecursionError:
        return "its JSON is nested too deeply"
    except damage() as error:
        return f"the file is damaged or cut: {error}"
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            return "its JSON is cut"
        begins = Source.of_bytes(source.name, text[: error.pos].encode())
        if error.msg == "Extra data" and reader_of(begins) is not None:
            return "more stands behind the end of its JSON"
    return ""
