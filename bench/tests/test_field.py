"""The table of systems: the rules of others do on the recorded runs what the real code did."""

from __future__ import annotations

import datetime as dt
from functools import cache
from pathlib import Path

import pytest

from bench import field, quality
from bench._field_rules import PORTS

MEASURED = {
    "Gemini CLI 0.61.0, without its judge": "Gemini CLI 0.61.0, 4 chars",
    "opencode": "opencode, as described (port)",
    "OpenHands SDK 1.58.0": "OpenHands 1.58.0",
    "pydantic-ai-harness, PR 336": "pydantic-ai-harness PR 336 (port)",
}
"""The rows of `bench.quality`, which were measured with real code where it installs."""


@cache
def rows() -> dict[str, field.Row]:
    return {row.name: row for row in field.measure(field.read())}


@pytest.mark.parametrize("name", PORTS)
def test_a_rule_catches_the_loops_that_the_measured_system_caught(name: str):
    [peer] = [peer for peer in quality.PEERS if peer.name == MEASURED[name]]
    caught = [count or 0 for count, kind in zip(peer.caught, quality.KINDS, strict=True) if kind in quality.TOOLS]
    clean, hard, *_ = peer.alarms
    assert rows()[name].stopped[0] == sum(caught)
    assert rows()[name].stopped[1] == (clean or 0) + (hard or 0)


def test_no_good_recorded_run_is_stopped_and_no_other_system_stops_more_loops():
    mine, *others = rows().values()
    assert mine.stopped[1] == 0
    assert all(mine.stopped[column] >= other.stopped[column] for other in others for column in (0, 2))
    assert all(mine.stopped[3] <= other.stopped[3] for other in others)


def test_the_table_stands_between_its_marks_and_the_rest_of_the_page_stays(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{field.BEGIN}\nold\n{field.END}\nafter\n")
    table = field.lines([field.Row("mine", [1, 0, 2, 0])], [3, 4, 5, 6], dt.date(2026, 1, 2))
    field.write(table, page)
    assert page.read_text() == f"before\n{field.BEGIN}\n\n" + "\n".join(table) + f"\n\n{field.END}\nafter\n"
    assert table[0].startswith("| stopped (2026-01-02) | recorded loops, of 3 |")


@pytest.mark.parametrize("page", field.PAGES, ids=lambda page: page.name)
def test_a_page_has_a_row_for_each_rule(page: Path):
    text = page.read_text("utf-8")
    assert all(f"| {name} |" in text for name in PORTS)
