"""The rows of a scan as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from monitor.cli.render import output
from monitor.cli.render.output import STDIN
from monitor.errors import ConfigError
from monitor.transcripts.analysis.survey import SurveyedRun

_COLUMNS: Final = (
    *("file", "format", "project", "run", "parent", "first_at", "last_at", "state", "turns", "calls", "errors"),
    *("tokens", "usd", "loop", "found_by", "count", "repeated", "result", "saved_turns", "saved_calls"),
    *("saved_tokens", "saved_usd"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins with one of these for a formula."""


@contextmanager
def rows_to(file: str | None) -> Iterator[Callable[[SurveyedRun], None]]:
    """Writes a row for each run. `file`: `-` is stdout, `None` nowhere."""
    if file is None:
        yield lambda _: None
        return
    with ExitStack() as stack:
        out = sys.stdout if file == STDIN else stack.enter_context(_created(Path(file)))
        writer = csv.writer(out)
        writer.writerow(_COLUMNS)
        yield lambda run: writer.writerow(map(_cell, _row(run)))


def _created(path: Path) -> Any:
    try:
        return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _cell(value: object) -> object:
    if isinstance(value, str):
        shown = output.on_one_line(value)
        return f"'{shown}" if shown.startswith(_FORMULA) else shown
    return value


def _row(run: SurveyedRun) -> tuple[object, ...]:
    found = run.detection
    times = [None if at is None else datetime.fromtimestamp(at, UTC).isoformat() for at in (run.first_at, run.last_at)]
    return (
        *(run.file, run.format, run.began.project, run.id, run.began.parent, *times, run.ended.state),
        *(run.total.turns, run.total.tool_calls, run.errors),
        *(run.usage.total_tokens if run.usage else None, run.cost_usd, run.loops),
        f"{found.detector}/{found.kind}" if found else None,
        found.count if found else None,
        found.evidence.excerpt if found else None,
        run.result if found else None,
        *(run.saved.turns, run.saved.tool_calls, run.saved_tokens, run.saved_usd),
    )
