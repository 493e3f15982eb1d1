"""The detectors of a run: who is made when, and who gets what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from monitor.chunks import Chunk, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.core.detector_bank import DetectorBank
from monitor.detectors import ContentRepetition, default_detectors
from monitor.detectors.defaults import OF_CALLS, of_text
from monitor.detectors.detector import MadeLate
from monitor.errors import ConfigError, FinishReason

DONE = TurnFinished(FinishReason.DONE)
TALK: list[Chunk] = [DONE, StreamRetried("cut"), DONE]


def rounds(number: int) -> list[Chunk]:
    """The same call with the same result."""
    call, result = ToolCall("", "read", {"path": "a.py"}), ToolResult("", "read", "no such file")
    chunks: list[Chunk] = []
    for place in range(number):
        chunks += [ToolCall(str(place), call.name, call.arguments), DONE, ToolResult(str(place), "read", result.text)]
    return chunks


def found(bank: DetectorBank, chunks: Sequence[Chunk]) -> list[Any]:
    return [detection for chunk in chunks for detection in bank.fact(chunk)]


def test_detectors_that_are_made_with_the_first_call_find_what_all_find() -> None:
    late, early = DetectorBank(of_text(), OF_CALLS), DetectorBank(default_detectors())
    chunks = [*TALK, *rounds(6), StreamRetried("cut"), *rounds(6)]
    assert late.names == early.names
    assert found(late, chunks) == found(early, chunks) != []
    assert late.snapshots() == early.snapshots()


def test_a_run_without_calls_makes_no_detectors_of_calls() -> None:
    made: list[str] = []

    def make() -> list[Any]:
        made.append("made")
        return [ContentRepetition(name="one of calls")]

    bank = DetectorBank([], MadeLate(make))
    made.clear()
    found(bank, [*TALK, ToolResult("a", "read", "stray")])
    bank.text("words")
    assert made == []
    found(bank, [ToolCall("a", "read", {}), ToolCall("b", "read", {})])
    assert made == ["made"]
    assert list(bank.snapshots()) == ["one of calls"]


def test_a_name_must_be_another_one_than_those_that_are_made_late() -> None:
    with pytest.raises(ConfigError, match="two detectors are called 'one'"):
        DetectorBank([ContentRepetition(name="one")], MadeLate(lambda: [ContentRepetition(name="one")]))


def test_text_goes_to_each_that_reads_it_under_its_own_name() -> None:
    class Deaf(ContentRepetition):
        def feed_of(self, channel: Any) -> Any:
            return None

    bank = DetectorBank([Deaf(name="deaf"), ContentRepetition(name="reads")])
    (detection,) = bank.text("I will now read the file once again. " * 8)
    assert detection.detector == "reads"
    assert list(bank.fact(TextDelta("words"))) == []
