"""The table of systems: the rules of others do on the recorded runs what the real code did."""

from __future__ import annotations

import datetime as dt
import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from bench import _report, field, quality
from bench._field_rules import PORTS, Answered, Asked, Event, events, openhands, pydantic_ai_harness
from monitor.transcripts.base import LoopLabel, RecordedCall, RecordedMessage, RecordedResult, RecordedRun

MEASURED = {
    "Gemini CLI 0.61.0, without its judge": "Gemini CLI 0.61.0, 4 chars",
    "opencode, as documented": "opencode, as described (port)",
    "OpenHands SDK 1.58.0": "OpenHands 1.58.0",
    "pydantic-ai-harness, PR 336": "pydantic-ai-harness PR 336 (port)",
}
"""The rows of `bench.quality`, which were measured with real code where it installs."""


@cache
def rows() -> dict[str, field.Row]:
    return {row.name: row for row in field.measure(field.read())}


@pytest.mark.parametrize("name", MEASURED)
def test_a_rule_catches_the_loops_that_the_measured_system_caught(name: str):
    [peer] = [peer for peer in quality.PEERS if peer.name == MEASURED[name]]
    caught = [count or 0 for count, kind in zip(peer.caught, quality.KINDS, strict=True) if kind in quality.TOOLS]
    clean, hard, *_ = peer.alarms
    assert rows()[name].stopped[0] == sum(caught)
    assert rows()[name].stopped[1] == (clean or 0) + (hard or 0)


def test_no_good_recorded_run_is_stopped_and_no_other_system_stops_more_loops():
    mine, *others = [row for row in rows().values() if not row.why]
    assert mine.stopped[1] == 0
    assert all(mine.stopped[column] >= other.stopped[column] for other in others for column in (0, 2))
    assert all(mine.stopped[3] <= other.stopped[3] for other in others)


def made_run(label: str, *, loops_at: int | None = None) -> RecordedRun:
    call = RecordedMessage("assistant", tool_calls=(RecordedCall("look", {"at": 1}),))
    messages = (RecordedMessage("user", "Look."), *[call] * 6)
    loop = None if loops_at is None else LoopLabel("tool_identical", turn=loops_at)
    return RecordedRun(f"made {label} {loops_at}", messages, label=label, loop=loop)


def test_a_loop_that_is_stopped_before_it_begins_counts_as_early_and_not_as_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(field, "systems", lambda good: {"at three": lambda run: 3})
    loops = [made_run("loop", loops_at=at) for at in (1, 3, 4)]
    [row] = field.measure({"made loops": loops, "made good": [made_run("clean")]})
    assert (row.stopped[:2], row.early[:2]) == ([2, 1], [1, 0])
    assert row.odd == ["made loops: made loop 4", "made good: made clean None"]
    assert row.cells()[:2] == ["2, 1 early", "1"]


def test_a_rule_that_counts_calls_stops_at_the_message_of_its_call():
    numbers = iter((None, 1, 6, 7))
    stop = field.at_call(lambda run: next(numbers))
    assert [stop(made_run("clean")) for _ in range(4)] == [None, 1, 6, None]


def test_loopbrake_stops_at_the_first_call_after_its_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(field, "_missing", lambda package: "" if package == "loopbrake" else "not here")
    monkeypatch.setattr(field, "version", lambda package: "1")
    monkeypatch.setattr(field, "unwedge_alert", lambda: None)
    conformal = ModuleType("loopbrake.conformal")
    monkeypatch.setattr(conformal, "threshold", lambda lengths, at_most: max(lengths) - 2, raising=False)
    monkeypatch.setitem(sys.modules, "loopbrake", ModuleType("loopbrake"))
    monkeypatch.setitem(sys.modules, "loopbrake.conformal", conformal)
    stop = field.systems([made_run("clean")])["loopbrake 1, line at 5%"]
    assert not isinstance(stop, str)
    assert stop(made_run("loop")) == 5


ABC = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("name", "steps", "at"),
    [
        ("Gemini CLI 0.61.0, without its judge", "xaaaaa", 5),
        ("Gemini CLI 0.61.0, without its judge", "abcde" * 5, 24),
        ("Gemini CLI 0.61.0, without its judge", "abcdef" * 5, None),
        ("opencode, as documented", "xaaa", 3),
        ("opencode, as documented", "aabaa", None),
        ("OpenHands SDK 1.58.0", "xaaaa", 4),
        ("OpenHands SDK 1.58.0", "xababab", 6),
        ("OpenHands SDK 1.58.0", "abc" * 5, None),
        ("pydantic-ai-harness, PR 336", "xaaa", 3),
        ("pydantic-ai-harness, PR 336", ABC, None),
        ("a tail test, 4 times 1 to 16 calls", ABC[:16] * 4, 63),
        ("a tail test, 4 times 1 to 16 calls", ABC[:17] * 4, None),
    ],
)
def test_a_rule_stops_at_the_step_of_its_description(name: str, steps: str, at: int | None):
    """A letter is a call, and its result is the letter."""
    told = [event for index, step in enumerate(steps) for event in _step(index, step)]
    assert PORTS[name](told) == at


def test_what_is_said_before_a_call_hides_a_loop_from_openhands_only_before_the_first_of_a_message():
    spoken = [event for index in range(9) for event in _step(index, "a", thought=f"try {index}")]
    assert openhands(spoken) is None
    failing = [event for index in range(4) for event in _step(index, "a", text=f"error {index}", failed=True)]
    assert (openhands(failing[:-1]), openhands(failing)) == (None, 3)
    calls = tuple(RecordedCall("look", {"at": 1}) for _ in range(2))
    results = tuple(RecordedResult("look", "closed") for _ in range(2))
    turns = (
        RecordedMessage("assistant", "Wait."),
        RecordedMessage("assistant", "I look twice.", calls),
        RecordedMessage("tool", tool_results=results),
    )
    told = [event.thought for event in events(RecordedRun("two", turns)) if isinstance(event, Answered)]
    assert told == ["I look twice.", ""]


@pytest.mark.parametrize(("steps", "at"), [("axayzaxaza", 9), ("axayzaxazxa", None)])
def test_the_rule_of_pydantic_counts_a_call_among_the_last_ten(steps: str, at: int | None):
    told = [event for index, step in enumerate(steps) for event in _step(index, step, text=f"result {index}")]
    assert pydantic_ai_harness(told) == at


def _step(index: int, step: str, thought: str = "", text: str = "", *, failed: bool = False) -> list[Event]:
    call = (step, "{}")
    return [Asked(index, call), Answered(index, call, thought, text or step, failed)]


def test_the_line_of_a_set_is_drawn_on_the_good_runs_of_that_set(monkeypatch: pytest.MonkeyPatch):
    asked: list[list[RecordedRun]] = []

    def systems(good: list[RecordedRun]) -> dict[str, field.Stop | str]:
        asked.append(good)
        return {}

    monkeypatch.setattr(field, "systems", systems)
    sets: dict[str, list[RecordedRun]] = {f"{kind} {what}": [] for kind in "ab" for what in ("loops", "good")}
    field.measure(sets)
    assert [id(good) for good in asked] == [id(sets[name]) for name in ("a good", "a good", "b good", "b good")]


def test_a_system_that_is_not_installed_keeps_its_row_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object) -> None:
        pytest.fail("written")

    monkeypatch.setattr(field, "read", lambda: {name: [made_run("clean")] for name in field.COLUMNS})
    monkeypatch.setattr(field, "_missing", lambda package: f"{package} is not installed")
    monkeypatch.setattr(field, "unwedge_alert", lambda: None)
    monkeypatch.setattr(field, "write", fail)
    monkeypatch.setattr("bench._report.write", fail)
    assert field.main(["--write"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("not measured here:") == 2 * len(field.COLUMNS)
    assert "nothing is written: unwedge is not installed, loopbrake is not installed" in said


def test_the_table_stands_between_its_marks_and_the_rest_of_the_page_stays(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{field.BEGIN}\nold\n{field.END}\nafter\n")
    mine = field.Row("mine", stopped=[1, 0, 2, 0, 3, 0], early=[1, 0, 0, 0, 0, 0])
    table = field.lines(field.results([mine], [3, 4, 5, 6, 7, 8], dt.date(2026, 1, 2)))
    field.write(table, page)
    assert page.read_text() == f"before\n{field.BEGIN}\n\n" + "\n".join(table) + f"\n\n{field.END}\nafter\n"
    assert table[0].startswith("| stopped (2026-01-02) | recorded loops, of 3 |")
    assert table[2] == "| mine | 1, 1 early | 0 | 2 | 0 | 3 | 0 |"


COMMITTED = json.loads((_report.RESULTS / "field.json").read_text("utf-8"))


@pytest.mark.parametrize("page", field.PAGES, ids=lambda page: page.name)
def test_a_page_has_the_table_of_the_results_file(page: Path):
    assert f"{field.BEGIN}\n\n" + "\n".join(field.lines(COMMITTED)) + f"\n\n{field.END}" in page.read_text("utf-8")


def test_the_command_measures_today_what_stands_in_the_results_file():
    assert not any(row["why"] for row in COMMITTED["rows"])
    today = {row.name: asdict(row) for row in rows().values() if not row.why}
    assert today == {row["name"]: row for row in COMMITTED["rows"] if row["name"] in today}
    assert len(COMMITTED["rows"]) == len(rows())
