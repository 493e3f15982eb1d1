"""A recorded run through the core: what is found, where, and what is counted as saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from monitor.chunks import Chunk
from monitor.detectors import ToolCallRepetition
from monitor.policy import Ladder, ObserveOnly
from monitor.transcripts import RecordedCall, RecordedMessage, RecordedResult, RecordedRun
from monitor.transcripts.analysis.scan import SLICE_CHARS, ModelOutput
from monitor.verdicts import Detection, Verdict
from tests.transcripts.scanned import scan_run

CHANT = "I am sorry, but I will try that again now. "


def answer(text: str) -> RecordedMessage:
    return RecordedMessage("assistant", text)


def call(arguments: object = "same", text: str = "") -> RecordedMessage:
    return RecordedMessage("assistant", text, (RecordedCall("look", {"at": arguments}),))


def result(text: str = "nothing") -> RecordedMessage:
    return RecordedMessage("tool", "", (), (RecordedResult("look", text),))


def run(*messages: RecordedMessage) -> RecordedRun:
    return RecordedRun("r", (RecordedMessage("user", "go"), *messages))


def test_a_run_without_a_loop_saves_nothing():
    found = scan_run(run(call(1), result(), call(2), result(), answer("done")))
    assert not found.loops
    assert (found.finding, found.saved) == (None, ModelOutput())
    assert found.total == ModelOutput(chars=4, tool_calls=2, turns=3)


def test_the_fifth_identical_call_is_the_stop_and_what_follows_is_saved():
    found = scan_run(run(*[call(text="hm"), result()] * 8))
    assert found.detection is not None
    assert found.finding is not None
    assert (found.detection.kind, found.detection.offset, found.finding.message) == ("identical_calls", 4, 9)
    assert found.saved == ModelOutput(chars=6, tool_calls=3, turns=3)


def test_polling_whose_results_change_is_left_alone():
    assert not scan_run(run(*[message for n in range(8) for message in (call(), result(f"{n} of 8"))])).loops


def test_a_chant_is_found_at_its_offset_in_the_message():
    start = "First I look at the file. "
    found = scan_run(run(answer("Hello."), answer(start + CHANT * 40)))
    assert found.detection is not None
    assert found.finding is not None
    assert found.finding.message == 2
    assert found.finding.char is not None
    assert found.finding.char == found.detection.offset - len("Hello.")
    assert found.saved == ModelOutput(chars=len(start) + 40 * len(CHANT) - found.finding.char)


def test_the_length_of_the_slices_makes_no_difference(monkeypatch: pytest.MonkeyPatch):
    long = run(answer("".join(f"{n}, " for n in range(1500)) + CHANT * 200))
    assert len(long.messages[1].text) > 2 * SLICE_CHARS
    found = scan_run(long)
    assert found.loops
    for size in (1, 7, 10**6):
        monkeypatch.setattr("monitor.transcripts.analysis.scan.SLICE_CHARS", size)
        assert scan_run(long) == found


def test_an_empty_run_is_no_loop():
    assert scan_run(RecordedRun("r", ())).total == ModelOutput()


def test_other_detectors_can_be_given():
    run_of_three = run(*[call(), result()] * 3)
    assert not scan_run(run_of_three).loops
    assert scan_run(run_of_three, detectors=[ToolCallRepetition(suspect_at=None, loop_at=3)]).loops


# ------------------------------------------------------------------ what the policy did


def test_every_finding_comes_with_what_the_policy_did_about_it():
    """The recording does not heed the warnings, so the ladder goes to its end: call by call, one
    step a turn.
    """
    found = scan_run(run(*[call(), result()] * 12), policy=Ladder())
    steps = [(finding.turn, finding.message, finding.detection.level, finding.rung) for finding in found.findings]
    assert steps == [
        (3, 5, "suspect", "nudge"),
        (5, 9, "loop", "refuse"),
        (6, 11, "loop", "withdraw"),
        (7, 13, "loop", "last_turn"),
        (8, 15, "loop", "stop"),
    ]
    assert found.ended_by == found.findings[-1]
    assert found.saved == ModelOutput(tool_calls=4, turns=4)
    assert [finding.told is not None for finding in found.findings] == [True, True, True, True, False]


def test_after_the_last_turn_the_run_is_over_even_without_another_finding():
    calls = [call(), result()] * 7
    found = scan_run(run(*calls, answer("I give up."), answer("Or do I?"), answer("I do.")), policy=Ladder())
    assert [finding.rung for finding in found.findings] == ["nudge", "refuse", "withdraw", "last_turn"]
    assert found.ended_by is not None
    assert (found.ended_by.turn, found.saved) == (7, ModelOutput(chars=len("Or do I?I do."), turns=2))


def test_who_only_observes_sees_everything_and_saves_nothing():
    found = scan_run(run(*[call(), result()] * 8), policy=ObserveOnly())
    assert [finding.detection.count for finding in found.findings] == [3, 5, 6, 7, 8]
    assert {finding.rung for finding in found.findings} == {"observe"}
    assert found.loops
    assert (found.ended_by, found.saved) == (None, ModelOutput())
    assert found.detection is not None
    assert found.detection.count == 5


def test_a_suspicion_alone_is_no_loop():
    found = scan_run(run(*[call(), result()] * 3, call(2), result()))
    assert [finding.rung for finding in found.findings] == ["observe"]
    assert not found.loops


def test_where_a_text_loop_began_is_told_in_its_message():
    start = "First I look at the file. "
    _, finding = scan_run(run(answer("Hello."), answer(start + CHANT * 40))).findings
    assert (finding.turn, finding.message, finding.rung) == (2, 2, "stop")
    assert finding.start_char is not None
    assert finding.char is not None
    assert len(start) - 2 <= finding.start_char < len(start) + len(CHANT)
    assert finding.char - finding.start_char == finding.detection.offset - finding.detection.start_offset


class _Rash(ObserveOnly):
    def decide(self, detection: Detection) -> Verdict:
        raise ValueError("oh")


def test_a_policy_that_crashes_is_named():
    assert "_Rash raised ValueError: oh" in scan_run(run(*[call(), result()] * 8), policy=_Rash()).failed


class _Broken:
    name = "broken"

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        raise ValueError("oh")

    def reset(self) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


def test_a_run_that_could_not_be_watched_does_not_pass_for_a_good_one():
    assert "broken raised ValueError: oh" in scan_run(run(answer("hi")), detectors=[_Broken()]).failed
