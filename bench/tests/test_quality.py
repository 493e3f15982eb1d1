"""Counted as promised, and still good: a detector that loses what it caught, or disturbs a good
run, fails here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import quality
from monitor.transcripts.base import LoopLabel, RecordedCall, RecordedMessage, RecordedResult, RecordedRun


def run(turns: int, *, label: str | None = None, loop: LoopLabel | None = None) -> RecordedRun:
    turn = (
        RecordedMessage("assistant", "Reading.", (RecordedCall("read", {"path": "a"}),)),
        RecordedMessage("tool", "", (), (RecordedResult("read", "the same"),)),
    )
    return RecordedRun(f"{label} {turns}", (RecordedMessage("user", "Read it."), *turn * turns), label=label, loop=loop)


IDENTICAL = LoopLabel("tool_identical", turn=1, turn_3=5, turn_5=9)


def test_a_loop_is_caught_an_early_finding_and_a_borderline_run_are_not_scored():
    late = LoopLabel("tool_identical", turn=15, turn_3=19, turn_5=23)
    runs = [
        run(9, loop=IDENTICAL),
        run(9, loop=late),
        run(2, loop=IDENTICAL),
        run(4, label="borderline"),
        run(9, label="clean"),
    ]
    rows = quality.measure(runs, ["words"]).rows
    stops, nudges = rows["stops"]["words"], rows["nudges"]["words"]
    assert stops.caught["tool_identical"] == nudges.caught["tool_identical"] == [1, 3, 1]
    assert (stops.alarms["borderline"], nudges.alarms["borderline"]) == ([0, 1], [1, 1])
    assert (stops.alarms["clean"], stops.delay_turns, nudges.delay_turns) == ([1, 1], [2], [0])
    assert quality.scores(stops)["tools"]["f1"] == pytest.approx(2 / (3 + 2))


def test_text_is_counted_in_characters_of_its_message():
    text = "Once. " + "I will read it again. " * 60
    loop = LoopLabel("text_phrase", turn=2, char=6, period=22)
    looping = RecordedRun(
        "t",
        (RecordedMessage("assistant", "Hello."), RecordedMessage("user", "?"), RecordedMessage("assistant", text)),
        loop=loop,
    )
    results = quality.measure([looping])
    (delay,) = results.rows["stops"]["4 chars"].delay_chars
    assert -66 <= delay < 600
    assert results.differing == []


@pytest.mark.parametrize("how", quality.CUTS)
def test_a_cut_loses_nothing(how: str):
    text = "One two, 345!\n\n\u6211 " * 30
    assert "".join(quality.pieces(text, how)) == text


@pytest.fixture(scope="module")
def measured() -> quality.Results:
    return quality.measure(quality.read(), ["4096 chars"])


def test_loops_of_calls_on_the_recorded_runs(measured: quality.Results):
    stops, nudges = measured.rows["stops"]["4096 chars"], measured.rows["nudges"]["4096 chars"]
    assert {kind: cell[0] for kind, cell in stops.caught.items() if kind in list(quality.TOOLS)[:4]} == {
        "tool_identical": 36,
        "tool_cycle2": 27,
        "tool_cycle3": 11,
        "error_streak_varied_args": 5,
    }
    assert (stops.alarms["clean"][0], stops.alarms["hard_negative"][0]) == (0, 0)
    assert (nudges.alarms["clean"][0], nudges.alarms["hard_negative"][0]) == (4, 3)  # doubts, of 664 good runs
    assert quality.scores(stops)["tools"]["f1"] >= 0.98


def test_it_is_shown_and_written(measured: quality.Results, capsys: pytest.CaptureFixture[str]):
    quality.show(measured, explain=True)
    shown = capsys.readouterr().out
    assert "ours, stops, 4096 chars" in shown
    assert "Gemini CLI 0.61.0" in shown
    data: Any = json.loads(json.dumps(measured.to_dict()))
    assert [(row["row"], row["cut"]) for row in data["rows"]] == [
        ("ours, stops", "4096 chars"),
        ("ours, nudges", "4096 chars"),
    ]
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
    assert all(
        len(peer["caught"]) == len(quality.KINDS) and len(peer["alarms"]) == len(quality.QUIET)
        for peer in data["peers"]
    )
