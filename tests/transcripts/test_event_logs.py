"""The log of a run, read again: by a scan as a run, by a replay as a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import monitor
from monitor.adapters.replay_model import read_turns
from monitor.cli.app import app
from monitor.errors import AdapterError
from monitor.policy import ObserveOnly
from monitor.sinks import JsonlSink, MemorySink
from monitor.testing import ScriptedModel
from monitor.transcripts import Corpus, RecordedCall, RecordedMessage, RecordedResult
from monitor.transcripts.base import Began, ReadReport
from monitor.transcripts.corpus import MAX_BAD_LINES
from monitor.transcripts.readers.own import EventLogsReader
from monitor.transcripts.source import Source

pytestmark = pytest.mark.anyio


def look(at: str) -> str:
    """Look at something."""
    return f"{at}: closed"


def call(number: int) -> list[Any]:
    return [
        monitor.chunks.TextDelta(f"I look, {number}. "),
        monitor.chunks.ToolCall(f"c{number}", "look", {"at": "door"}),
    ]


async def logged(path: Path, *answers: Any, **options: Any) -> monitor.Outcome:
    with JsonlSink(path) as sink:
        supervisor = monitor.Supervisor(ScriptedModel(*answers), tools=[look], sinks=[sink], last_turn=None, **options)
        return await supervisor.run("x")


async def test_a_logged_run_is_a_recorded_run(tmp_path: Path):
    await logged(tmp_path / "log", call(1), "It is closed.")
    (run,) = Corpus(tmp_path / "log")
    assert run.id == "run-1"
    assert run.messages == (
        RecordedMessage("assistant", "I look, 1. ", (RecordedCall("look", {"at": "door"}),)),
        RecordedMessage("tool", tool_results=(RecordedResult("look", "door: closed"),)),
        RecordedMessage("assistant", "It is closed."),
    )


async def test_runs_that_were_appended_and_one_that_was_killed_are_runs_of_their_own(tmp_path: Path):
    for _ in range(2):
        await logged(tmp_path / "log", call(1), "Closed.")
    text = (tmp_path / "log").read_text()
    begun = [line for line in text.splitlines() if '"run_terminated"' not in line][: len(text.splitlines()) // 2 - 2]
    (tmp_path / "log").write_text(text + "".join(f"{line}\n" for line in begun))
    corpus = Corpus(tmp_path / "log")
    assert [run.id for run in corpus] == ["run-1", "run-2", "run-3"]
    assert corpus.bad == 0


async def test_a_scan_sees_the_loop_that_the_run_was_in(tmp_path: Path):
    outcome = await logged(tmp_path / "log", *(call(1) for _ in range(7)), "done", policy=ObserveOnly())
    assert outcome.ok
    done = CliRunner().invoke(app, ["scan", "--no-cache", "--json", str(tmp_path / "log")])
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout.splitlines()[0])["detection"]["kind"] == "identical_calls"


async def test_a_replay_plays_the_turns_of_the_log(tmp_path: Path):
    await logged(tmp_path / "log", call(1), "It is closed.")
    turns = [[type(record.chunk).__name__ for record in turn] for turn in read_turns(tmp_path / "log")]
    assert turns == [["TextDelta", "ToolCall", "TurnFinished"], ["TextDelta", "TurnFinished"]]
    model = monitor.model(f"replay:{tmp_path / 'log'}")
    again = await monitor.Supervisor(model, tools=[look], last_turn=None).run("x")
    assert (again.ok, again.text, again.turns) == (True, "It is closed.", 2)


async def nested(path: Path, *, old: bool = False) -> None:
    """A run that calls two others at once. `old`: as it was written before lines said whose they
    are, when the log had the events of the caller alone.
    """
    tools: list[Any] = [
        monitor.Supervisor(ScriptedModel(call(n), f"{name} is closed.", name=f"child:{name}"), tools=[look]).as_tool(
            name=name, description="Look."
        )
        for n, name in enumerate(("north", "south"))
    ]
    calls = [monitor.chunks.ToolCall(name, name, {"task": "look"}) for name in ("north", "south")]
    memory = MemorySink()
    with JsonlSink(path) as sink:
        supervisor = monitor.Supervisor(
            ScriptedModel(calls, "All is closed."), tools=tools, sinks=[memory] if old else [sink], last_turn=None
        )
        await supervisor.run("x", run_id="root")
        for event in memory.of("root"):
            sink.emit(event)


async def test_the_runs_of_a_log_are_told_apart_and_name_their_caller(tmp_path: Path):
    await nested(tmp_path / "log")
    entries = list(EventLogsReader().read(Source.of_path(tmp_path / "log"), ReadReport()))
    began = {entry.run: entry for entry in entries if isinstance(entry, Began)}
    assert {run: entry.parent for run, entry in began.items()} == {"run-1": None, "run-2": "run-1", "run-3": "run-1"}
    said = {run.id: [message.text for message in run.messages if message.text] for run in Corpus(tmp_path / "log")}
    assert said.pop("run-1") == ["All is closed."]
    # Which of the two begins first is for the event loop to say.
    assert sorted(said.values()) == [["I look, 0. ", "north is closed."], ["I look, 1. ", "south is closed."]]
    assert {began["run-2"].model, began["run-3"].model} == {"child:north", "child:south"}


async def test_nested_runs_that_were_killed_are_runs_of_their_own(tmp_path: Path):
    await nested(tmp_path / "log")
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if '"run_terminated"' not in line]
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
    corpus = Corpus(tmp_path / "log")
    assert [run.id for run in corpus] == ["run-1", "run-2", "run-3"]
    assert corpus.bad == 0


@pytest.mark.parametrize("old", [False, True], ids=["a log of today", "an older log"])
async def test_a_replay_plays_the_outermost_run(tmp_path: Path, *, old: bool):
    await nested(tmp_path / "log", old=old)
    assert ("envelope" in (tmp_path / "log").read_text()) is not old
    turns = [[type(record.chunk).__name__ for record in turn] for turn in read_turns(tmp_path / "log")]
    assert turns == [["ToolCall", "ToolCall", "TurnFinished"], ["TextDelta", "TurnFinished"]]


async def test_an_older_log_is_read_as_before(tmp_path: Path):
    await nested(tmp_path / "log", old=True)
    (run,) = Corpus(tmp_path / "log")
    assert run.id == "run-1"
    assert [message.text for message in run.messages if message.text][-1] == "All is closed."


async def test_two_runs_cannot_be_played_as_one(tmp_path: Path):
    for _ in range(2):
        await logged(tmp_path / "log", "Closed.")
    with pytest.raises(AdapterError, match=r"log, line \d+: a second run begins here"):
        read_turns(tmp_path / "log")


async def test_an_answer_that_the_log_has_not_whole_is_said(tmp_path: Path):
    await logged(tmp_path / "log", "It is closed.")
    cut = (
        (tmp_path / "log")
        .read_text()
        .replace('"text":"It is closed.","text_chars":13', '"text":"It is","text_chars":13')
    )
    (tmp_path / "log").write_text(cut)
    corpus = Corpus(tmp_path / "log")
    (run,) = corpus
    assert run.messages == (RecordedMessage("assistant", "It is"),)
    assert [bad.message for bad in corpus.bad_lines] == ["the answer of turn 1 is cut here: 5 of 13 characters"]
    with pytest.raises(AdapterError, match="the answer is cut here: 5 of 13 characters"):
        read_turns(tmp_path / "log")


async def test_events_and_runs_in_one_file_are_not_mixed_up(tmp_path: Path):
    await logged(tmp_path / "log", "Closed.")
    log = (tmp_path / "log").read_text()
    run = '{"id": "a", "messages": [{"role": "assistant", "text": "done"}]}\n'
    for first, second, ids, why in (
        (log, run, ["run-1"], "not an event, in a log of events"),
        (run, log, ["a"], "an event among recorded runs"),
    ):
        (tmp_path / "mixed").write_text("nonsense\n" + first + second)
        corpus = Corpus(tmp_path / "mixed")
        assert [one.id for one in corpus] == ids
        assert {bad.message for bad in corpus.bad_lines[1:]} == {why}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"type": "turn_ended", "at_s": 0, "turn": {"number": 1}}', "turn_ended, and no run has started before it"),
        ('{"type": "run_started", "at_s": 0}', "not a readable event: run_started.detectors: Field required"),
        (
            '{"type": "run_started", "at_s": 0, "detectors": [], "stop_when": null, "envelope": {"seq": 1}}',
            "not a readable event: run_identity.run: Field required",
        ),
        ('{"type": "run_started", "at_s": 0, "x": 1}', "not a readable event: run_started.x: no such field"),
    ],
)
def test_an_event_that_is_none_is_named(tmp_path: Path, line: str, why: str):
    (tmp_path / "log").write_text(line)
    corpus = Corpus(tmp_path / "log")
    assert list(corpus) == []
    assert [bad.message for bad in corpus.bad_lines] == [why]


def test_of_many_bad_lines_some_are_kept_and_all_are_counted(tmp_path: Path):
    (tmp_path / "log").write_text("x\n" * 1_000)
    corpus = Corpus(tmp_path / "log")
    assert list(corpus) == []
    assert (len(corpus.bad_lines), corpus.bad, corpus.lines) == (MAX_BAD_LINES, 1_000, 1_000)
