"""`agent-monitor sessions replay`: a stored run, as it was or as others would judge it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import monitor
from monitor.chunks import Chunk
from monitor.testing import call
from tests.cli.stored import SENDS, by_program, invoke, place, recorded
from tests.runs.driving import look

pytestmark = pytest.mark.usefixtures("place")
__all__ = ["place"]

SAME: list[list[Chunk]] = [[call("look", q="a")] for _ in range(4)]


def looped(*more: str) -> str:
    """What `run` has printed of a run that calls the same four times."""
    model = recorded(*SAME, [monitor.chunks.TextDelta("Done.")])
    options = ["--model", model, "--tool", "kept_tools:look", "--session", "loops", *more]
    return invoke("run", "look around", *options).output


def body(printed: str) -> list[str]:
    """The lines between the heading and the card's last rows."""
    return [line for line in printed.splitlines()[1:] if not line.startswith("session ")]


@pytest.mark.feature("AC-01")
def test_it_prints_what_run_has_printed():
    printed = looped()
    again = invoke("sessions", "replay", "loops")
    assert again.exit_code == 0, again.output
    assert again.output.splitlines()[0] == "agent-monitor sessions replay loops: replay:run.jsonl"
    assert [line.rstrip() for line in body(again.output)] == [line.rstrip() for line in body(printed)]


def test_its_json_is_that_of_run_behind_a_line_about_the_replay():
    printed = looped("--json", "--verbose").splitlines()
    first, *lines = invoke("sessions", "replay", "loops", "--json").output.splitlines()
    about = json.loads(first)
    assert about.pop("run")
    expected = {"type": "replay", "exact": True, "as_stored": True, "departed": None, "remark": None}
    assert about == expected
    kept = [json.loads(one) for one in printed if json.loads(one)["type"] != "chunk_received"]
    replayed = [json.loads(one) for one in lines]
    for one in (*kept, *replayed):
        assert one["envelope"].pop("began_s") > 0  # the record of a run is written a moment later
    assert replayed == kept
    pieces = invoke("sessions", "replay", "loops", "--json", "--verbose").output.splitlines()
    assert [json.loads(one)["type"] for one in pieces].count("chunk_received") == 10


def test_events_are_one_line_each_with_their_second():
    looped()
    shown = invoke("sessions", "replay", "loops", "--events")
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0].split()[1:3] == ["run", "started,"]
    assert shown.output.splitlines()[-1].split()[1:3] == ["ended,", "goal:"]


def test_it_waits_as_long_as_the_run_took_by_the_speed(monkeypatch: pytest.MonkeyPatch):
    looped()
    waits: list[float] = []
    monkeypatch.setattr("monitor.cli.commands.replay.time.sleep", waits.append)
    last = json.loads(invoke("sessions", "replay", "loops", "--json").output.splitlines()[-1])
    assert waits == []
    invoke("sessions", "replay", "loops", "--speed", "10")
    assert sum(waits) == pytest.approx(last["at_s"] / 10)


def test_other_parts_show_what_they_would_have_said():
    looped()
    strict = invoke("sessions", "replay", "loops", "--set", "ToolCallRepetition.loop_at=3", "--policy", "stop")
    assert strict.exit_code == 4, strict.output
    assert "loop_detected" in strict.output
    assert "the rest of the record is not shown: look was called 3 times in a row" in strict.output
    assert "turn 4" not in strict.output
    all_of_it = invoke("sessions", "replay", "loops", "--set", "ToolCallRepetition.loop_at=3", "--policy", "observe")
    assert all_of_it.exit_code == 0
    assert "turn 5" in all_of_it.output
    assert "is not shown" not in all_of_it.output
    limited = invoke("sessions", "replay", "loops", "--max-turns", "2")
    assert (limited.exit_code, "2 turns are done, the limit is 2" in limited.output) == (3, True)
    assert "nudge" in looped_and("replay", "loops", "--detectors", "ToolCallRepetition")
    assert "nudge" not in looped_and("replay", "loops", "--no-detectors")


def looped_and(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_settings_of_the_run_hold_not_those_of_the_folder():
    looped("--set", "ToolCallRepetition.loop_at=3", "--policy", "observe")
    Path("agent-monitor.toml").write_text("[ToolCallRepetition]\nloop_at = 99\nsuspect_at = 50\n")
    shown = looped_and("replay", "loops", "--set", "ToolCallRepetition.suspect_at=2")
    assert "called 2 times" in shown
    assert "called 4 times" in shown  # a loop from 3 on, as the run had it
    assert "called" not in looped_and("replay", "loops", "--config", "agent-monitor.toml")


def test_without_chunks_it_shows_the_stored_events_and_says_so(place: Path):
    by_program(place / "own.session", *[one[0] for one in SAME], "Done.", tools=[look], chunks=False)
    shown = invoke("sessions", "replay", "own")
    assert shown.exit_code == 0
    assert "│ Done." in shown.output
    assert "the chunks of this run are not stored: the events are shown as they were stored" in shown.output
    strict = invoke("sessions", "replay", "own", "--set", "ToolCallRepetition.loop_at=3", "--policy", "stop")
    assert strict.exit_code == 4
    assert "each turn is read as one piece" in strict.output


def test_a_run_that_was_taken_up_is_shown_with_both_its_parts():
    model = recorded(*SENDS)
    options = ["--model", model, "--tool", "kept_tools:send", "--max-turns", "1", "--last-turn", "off"]
    assert invoke("run", "x", *options, "--session", "s").exit_code == 3
    assert invoke("sessions", "resume", "s").exit_code == 0
    shown = invoke("sessions", "replay", "s")
    assert shown.exit_code == 0
    assert shown.output.index("I send it.") < shown.output.index("here the run was taken up again")
    assert shown.output.index("here the run was taken up again") < shown.output.index("All is done.")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--speed", "0"], "--speed 0: give a number above 0"),
        (["--events", "--json"], "--events and --json say different things"),
        (["--no-detectors", "--detectors", "NoProgress"], "say different things"),
        (["--run", "gone"], "this session has no run gone"),
        (["--max-turns", "many"], "--max-turns many: give a whole number above 0"),
    ],
)
def test_wrong_options_are_one_sentence(options: list[str], why: str):
    looped()
    refused = invoke("sessions", "replay", "loops", *options)
    assert refused.exit_code == 2
    assert why in refused.output


def test_a_part_of_a_program_is_asked_for(place: Path):
    never = monitor.Predicate(lambda state: state.turns > 99, name="never")
    by_program(place / "own.session", "Done.", stop_when=never)
    refused = invoke("sessions", "replay", "own")
    assert refused.exit_code == 2
    assert "the limit never is Python code, which is not on record: give stop_when=" in refused.output
    assert invoke("sessions", "replay", "own", "--max-turns", "9").exit_code == 0
