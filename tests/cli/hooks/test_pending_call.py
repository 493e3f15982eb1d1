"""The call that an agent asks about, judged by the end of its session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from monitor.cli.hooks.answer import LAST_CALLS, STILL_TURNS, AskedCall, SessionEnd, is_request
from monitor.core.detector_bank import DetectorBank
from monitor.detectors.defaults import OF_CALLS
from monitor.detectors.detector import Detector
from monitor.transcripts.base import (
    Began,
    Chunker,
    CompactionSeen,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RecordedRun,
    Said,
    TranscriptEntry,
)
from monitor.transcripts.corpus import Corpus
from monitor.verdicts import Detection
from tests.examples import every_second

FIXTURES = Path(__file__).parents[3] / "fixtures"
LS = RecordedCall("Bash", {"command": "ls /nope"})


def entries(calls: Sequence[RecordedCall], said: str = "ls: no such file") -> Iterator[TranscriptEntry]:
    yield Began(run="r")
    yield Said(run="r", message=RecordedMessage("user", "Tidy up."))
    for at, call in enumerate(calls):
        made = RecordedCall(call.name, call.arguments, f"c{at}")
        yield Said(run="r", message=RecordedMessage("assistant", tool_calls=(made,)))
        answer = RecordedResult(call.name, said, call_id=f"c{at}")
        yield Said(run="r", message=RecordedMessage("tool", tool_results=(answer,)))


def judged(calls: Sequence[RecordedCall], pending: AskedCall | None, *, codex: bool = False) -> str:
    def is_tool(asked: str, recorded: str) -> bool:
        return asked == recorded or codex

    end = SessionEnd(OF_CALLS.make, is_tool)
    end.take(entries(calls))
    loop = end.judge(pending).loop
    return loop.detection.message if loop else ""


def test_the_call_that_is_asked_about_counts():
    assert "5 times" in judged([LS] * 4, AskedCall("Bash", {"command": "ls /nope"}))
    assert judged([LS] * 3, AskedCall("Bash", {"command": "ls /nope"})) == ""


@pytest.mark.parametrize(
    "other",
    [AskedCall("Write", {"file_path": "a.py"}), AskedCall("Bash", {"command": "make"}), AskedCall("Write")],
)
def test_another_call_is_free(other: AskedCall):
    assert judged([LS] * 8, other) == ""
    assert judged([LS] * 8, None)


def test_a_call_that_the_session_has_already_counts_once():
    end = SessionEnd(OF_CALLS.make, str.__eq__)
    open_call = RecordedMessage("assistant", tool_calls=(RecordedCall("Bash", LS.arguments, "open"),))
    end.take([*entries([LS] * 3), Said(run="r", message=open_call)])
    assert end.judge(AskedCall("Bash", LS.arguments, "open")).loop is None


def test_any_call_of_a_ring_goes_on_with_it():
    ring = [RecordedCall("Read", {"path": f"{name}.py"}) for name in "abc"] * 5
    assert judged(ring, AskedCall("Read", {"path": "b.py"}))
    assert judged(ring, AskedCall("Read", {"path": "other.py"})) == ""


def test_where_the_calls_of_a_loop_differ_their_tool_decides():
    guesses = [RecordedCall("Bash", {"command": f"cat /etc/guess{at}"}) for at in range(14)]
    assert judged(guesses, AskedCall("Bash", {"command": "cat /etc/one-more"}))
    assert judged(guesses, AskedCall("Write", {"file_path": "a.py"})) == ""


def test_codex_asks_about_a_command_in_other_words_than_it_records():
    recorded = RecordedCall("exec_command", {"cmd": "ls /nope", "yield_time_ms": 1000})
    assert judged([recorded] * 6, AskedCall("Bash", {"command": "ls /nope"}), codex=True)
    assert judged([recorded] * 6, AskedCall("Bash", {"command": "make"}), codex=True) == ""


def test_a_loop_before_a_compaction_is_over():
    end = SessionEnd(OF_CALLS.make, str.__eq__)
    end.take([*entries([LS] * 8), CompactionSeen(run="r")])
    assert end.judge(AskedCall("Bash", LS.arguments)).loop is None


def test_the_first_detector_that_sees_the_loop_has_the_say_and_the_others_are_not_made():
    made: list[str] = []

    def detectors() -> Iterator[Detector]:
        for one in OF_CALLS.make():
            made.append(one.name)
            yield one

    end = SessionEnd(detectors, str.__eq__)
    end.take(entries([LS] * 4))
    assert end.judge(AskedCall("Bash", LS.arguments)).loop
    assert made == ["tool_call_repetition"]
    assert end.judge(AskedCall("Write", {})).loop is None
    assert made[1:] == list(OF_CALLS.names)


def loops_together(run: RecordedRun) -> list[Detection]:
    """The loops of calls that all detectors see together in the last two turns of the run."""
    bank, chunker, turns = DetectorBank([*OF_CALLS.make()]), Chunker(), 0
    seen: list[tuple[int, Detection]] = []
    for message in run.messages:
        if is_request(message):
            bank.request(message.text)
        turns += message.role == "assistant"
        seen += [(turns, one) for chunk in chunker.chunks(message) for one in bank.fact(chunk) if one.level == "loop"]
    return [one for turn, one in seen if turn >= turns - STILL_TURNS]


def test_asked_one_after_the_other_the_detectors_see_what_they_see_together():
    composed = Corpus(FIXTURES / "transcripts" / "composed.jsonl.gz")
    for run in every_second(run for run in composed if len(run.messages) < LAST_CALLS):
        end = SessionEnd(OF_CALLS.make, str.__eq__)
        end.take([Began(run="r"), *(Said(run="r", message=message) for message in run.messages)])
        found, together = end.judge(None).loop, loops_together(run)
        assert (found is None) == (not together), run.id
        assert found is None or found.detection in together


def test_of_a_long_session_only_the_newest_calls_are_watched(monkeypatch: pytest.MonkeyPatch):
    end = SessionEnd(OF_CALLS.make, str.__eq__)
    end.take(entries([RecordedCall("Bash", {"command": f"make step{at}"}) for at in range(500)], "done well"))
    (run,) = end._runs.values()
    assert run.calls == LAST_CALLS
    assert list(run.requests) == ["Tidy up."]
