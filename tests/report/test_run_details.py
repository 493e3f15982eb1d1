"""What a page shows of a run: bounded, and with the repeated thing marked where it stands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.report.report_page import as_data, key_of
from monitor.report.run_details import (
    AFTER_LOOP,
    BEFORE_LOOP,
    FIRST_STEPS,
    LAST_STEPS,
    DetailedRun,
    StoryWatcher,
    shown,
)
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.source import Source

SAMPLES = Path(__file__).parents[2] / "fixtures"
MOST_STEPS = FIRST_STEPS + BEFORE_LOOP + AFTER_LOOP + LAST_STEPS


def told(*messages: dict[str, Any], id: str = "r") -> DetailedRun:
    line = json.dumps({"id": id, "messages": list(messages)})
    (run,) = survey(Source.of_bytes("runs.jsonl", line.encode("utf-8", "surrogatepass")), watcher=StoryWatcher)
    assert isinstance(run, DetailedRun)
    return run


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "text": text}


def calls(number: int, name: str = "look", *, changing: bool = False) -> Iterator[dict[str, Any]]:
    for at in range(number):
        arguments = {"at": at} if changing else {"at": "door"}
        yield {"role": "assistant", "text": "", "tool_calls": [{"name": name, "args": arguments}]}
        yield {"role": "tool", "tool_results": [{"name": name, "text": f"result {at}" if changing else "locked"}]}


@pytest.mark.feature("US-12")
def test_the_repeated_calls_are_marked_and_the_one_at_which_the_loop_was_seen():
    run = told(user("open it"), *calls(20, "read", changing=True), *calls(9))
    marked = [step for step in run.details.steps if step.repeated]
    assert [step.name for step in marked] == ["look"] * 9  # also behind the place of a stop
    assert [step.loop for step in marked] == [False] * 4 + [True] + [False] * 4
    cells = run.details.events.cells
    assert "".join(cells).count("L") == 1
    assert [cells[at] for at in as_data(run, key="k", texts=True)["marks"]] == ["c"] * 9


def test_all_calls_of_a_cycle_are_marked():
    pair = [*calls(1, "read"), *calls(1, "write")]
    run = told(user("go"), *(pair * 6))
    assert run.loops
    marked = [step.name for step in run.details.steps if step.repeated]
    assert marked == ["read", "write"] * 6


def test_the_repeated_passage_is_marked_in_its_text():
    said = "I will begin now. " + "".join(f"word{n} " for n in range(90)) + "The door is locked. " * 60
    run = told(user("go"), {"role": "assistant", "text": said})
    (step,) = [step for step in run.details.steps if step.repeated]
    assert step.passage is not None
    begin, end = step.passage
    assert "The door is locked." in step.text[begin:end]
    assert "word" not in step.text[begin + 20 : end]
    assert step.text[:begin].endswith("word89 ") or "word89" in step.text[: begin + 30]


def test_an_emoji_before_the_passage_does_not_move_its_mark():
    said = "🙂 " * 40 + "The door is locked. " * 60
    run = told(user("go"), {"role": "assistant", "text": said})
    step = next(step for step in as_data(run, key="k", texts=True)["steps"] if len(step) > 7)
    units = step[2].encode("utf-16-le")
    begin, end = step[7]
    inside = units[2 * begin : 2 * end].decode("utf-16-le")
    assert "🙂 🙂" not in inside
    assert "The door is locked. The door" in inside


def test_of_a_long_run_only_bounded_pieces_are_kept():
    long = " ".join(hashlib.sha256(str(at).encode()).hexdigest() for at in range(1_500))
    run = told(user(long), *calls(1_000, "read", changing=True), {"role": "assistant", "text": long})
    data = as_data(run, key="k", texts=True)
    assert data["all_steps"] == 2_002
    assert len(data["steps"]) == FIRST_STEPS + LAST_STEPS
    assert len(json.dumps(data)) < 12_000
    looped = told(user(long), *calls(300, "read", changing=True), *calls(300), {"role": "assistant", "text": long})
    assert len(looped.details.steps) <= MOST_STEPS


def test_tools_and_sources_are_counted_over_the_whole_run():
    run = told(user("go on"), *calls(40, "read", changing=True))
    tool = run.details.tools["read"]
    assert (tool.calls, tool.chars) == (40, sum(len(f"result {n}") for n in range(40)))
    assert run.details.sources["user"] == len("go on")


def claude_code(*answers: dict[str, Any]) -> DetailedRun:
    """A session of Claude Code, whose results name their calls by ids only."""
    rows = ({"type": "user" if "user" in one else "assistant", "message": one.get("user", one)} for one in answers)
    common = {"sessionId": "s", "cwd": "/w", "version": "2.0.1", "timestamp": "2026-01-01T00:00:00Z"}
    lines = (json.dumps({**common, **row, "uuid": f"u{at}"}) + "\n" for at, row in enumerate(rows))
    (run,) = survey(Source.of_bytes("s.jsonl", "".join(lines).encode()), watcher=StoryWatcher)
    assert isinstance(run, DetailedRun)
    return run


def answer(at: int, model: str) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"toolu_{at}", "name": "Bash", "input": {"command": f"ls {at}"}}
    return {"role": "assistant", "id": f"msg_{at}", "type": "message", "model": model, "content": [call]}


def test_a_result_that_names_its_call_by_id_counts_for_the_tool_of_the_call():
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True}
    asked, answered = {"role": "user", "content": "list it"}, {"role": "user", "content": [result]}
    run = claude_code({"user": asked}, answer(1, "claude-haiku-4-5"), {"user": answered})
    assert as_data(run, key="k", texts=True)["tools"] == [["Bash", 1, 1, len("no such file")]]
    assert [step.name for step in run.details.steps] == ["", "Bash", "Bash"]


def test_the_model_of_a_run_is_the_one_with_the_most_responses():
    asked, models = {"role": "user", "content": "list it"}, ["claude-opus-4-1", "claude-haiku-4-5", "claude-haiku-4-5"]
    run = claude_code({"user": asked}, *(answer(at, model) for at, model in enumerate(models)))
    found = as_data(run, key="k", texts=True)
    assert found["model"] == "claude-haiku-4-5"
    assert found["models"] == "claude-haiku-4-5, claude-opus-4-1"


def test_without_texts_no_word_of_the_transcript_is_in_the_data():
    secret = "hunter2"
    run = told(
        user(secret), *calls(9), {"role": "assistant", "text": secret}, {"role": "assistant", "text": secret * 200}
    )
    data = json.dumps(as_data(run, key=key_of(run), texts=False))
    assert secret not in data
    assert "door" not in data
    assert "locked" not in data
    assert "look" in data  # names of tools stay


@given(st.text(st.characters(categories=("L", "N", "Cc", "Cf", "Cs", "Zl", "Zp", "P"))))
def test_what_hides_or_reorders_text_is_shown_as_an_escape(text: str):
    seen = shown(text)
    assert not any("\ud800" <= char <= "\udfff" or char in "\x00\x1b\u202e\u2028\u200b\ufeff\x7f" for char in seen)
    assert seen.isascii() or not text.isascii()
    assert shown(seen) == seen


def test_a_run_of_every_sample_gets_a_story_whose_steps_are_in_order():
    seen = 0
    for file in sorted((SAMPLES / "readers").rglob("*")):
        if file.is_file():
            for run in survey(Source.of_path(file), watcher=StoryWatcher):
                assert isinstance(run, DetailedRun)
                numbers = [step.number for step in run.details.steps]
                assert numbers == sorted(set(numbers))
                assert len(numbers) <= MOST_STEPS
                assert json.loads(json.dumps(as_data(run, key="k", texts=True), allow_nan=False))
                seen += 1
    assert seen > 100
