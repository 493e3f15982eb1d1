"""`@monitor.detectors.as_detector`: a detector of a plain function."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors.function_detector import MOST_CHARS
from monitor.testing import ScriptedStream

DONE = TurnFinished(monitor.FinishReason.DONE)


def sorry(**options: Any) -> Any:
    @monitor.detectors.as_detector(**options)
    def apologies(text: str) -> bool:
        return "sorry" in text

    return apologies


def fails() -> Any:
    @monitor.detectors.as_detector(times=2)
    def failures(call: ToolCall, result: ToolResult) -> str | None:
        return f"{call.name} failed" if result.is_error else None

    return failures


def found(detector: Any, *chunks: Any) -> list[monitor.verdicts.Detection]:
    return [one for chunk in chunks for one in detector.observe(chunk)]


TEXT = "I am sorry. It works! Sorry? sorry, once more\nand sorry"


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_the_findings_are_the_same_however_the_text_is_cut(cuts: list[int]):
    places = sorted({0, *cuts, len(TEXT)})
    pieces = [TextDelta(TEXT[a:b]) for a, b in pairwise(places)]
    whole = found(sorry(times=2), TextDelta(TEXT), DONE)
    assert found(sorry(times=2), *pieces, DONE) == whole
    assert [(one.count, one.start_offset) for one in whole] == [(2, 28), (3, 46)]


def test_the_finding_names_the_function_the_text_and_the_place():
    (one,) = found(sorry(), TextDelta("Hello. I am sorry. "))
    assert (one.detector, one.kind, one.channel, one.level) == ("apologies", "apologies", "text", "loop")
    assert (one.start_offset, one.offset) == (6, 18)
    assert one.evidence.excerpt == "I am sorry."
    assert one.message == "apologies was found once"


def test_the_first_line_of_the_docstring_is_the_sentence():
    @monitor.detectors.as_detector(times=2)
    def captcha(text: str) -> bool:
        """The site shows a captcha.

        Nobody can solve it.
        """
        return "captcha" in text

    (one,) = found(captcha, TextDelta("A captcha. A captcha."), DONE)
    assert one.message == "captcha was found 2 times: The site shows a captcha"


def test_the_function_can_be_called_for_its_own_tests():
    assert sorry()("I am sorry") is True
    call = ToolCall("a", "look", {})
    assert fails()(call, ToolResult("a", "look", "no", is_error=True)) == "look failed"


def test_a_sentence_of_the_function_is_the_message():
    steps = [ToolCall("a", "look", {"q": 1}), ToolResult("a", "look", "no", is_error=True)]
    again = [ToolCall("b", "look", {"q": 2}), ToolResult("b", "look", "no", is_error=True)]
    (one,) = found(fails(), *steps, *again)
    assert one.message == "look failed"
    assert (one.channel, one.count, one.offset) == ("tools", 2, 1)


def test_a_result_without_its_call_and_a_vetoed_one_are_not_shown():
    chunks = [
        ToolResult("x", "look", "no", is_error=True),
        ToolCall("a", "look", {}),
        ToolResult("a", "look", "no", is_error=True, vetoed=True),
    ]
    assert found(fails(), *chunks, *chunks, *chunks) == []


def test_thinking_is_not_the_text():
    assert found(sorry(), ReasoningDelta("sorry. "), DONE) == []


def test_what_an_attempt_said_does_not_count_when_it_is_void():
    detector = sorry(times=2)
    assert found(detector, TextDelta("sorry. sor"), StreamRetried("again"), TextDelta("sorry. "), DONE) == []
    assert len(found(detector, TextDelta("sorry."))) == 1


def test_text_without_an_end_is_shown_in_bounded_pieces():
    seen: list[str] = []

    @monitor.detectors.as_detector
    def lengths(text: str) -> None:
        seen.append(text)

    found(lengths, *[TextDelta("word ") for _ in range(2_000)], DONE)
    assert max(map(len, seen)) == MOST_CHARS
    assert sum(map(len, seen)) == 10_000


def test_a_snapshot_goes_on_in_the_same_place():
    for make in (sorry, fails):
        chunks = [TextDelta("sorry. I am so"), ToolCall("a", "look", {"q": 1})]
        first, second = make(), make()
        found(first, *chunks)
        second.restore(json.loads(json.dumps(first.snapshot())))
        rest = [TextDelta("rry."), ToolResult("a", "look", "no", is_error=True), DONE]
        assert found(second, *rest) == found(first, *rest)


@pytest.mark.anyio
async def test_a_run_ends_by_the_function_and_says_so():
    detectors = [*monitor.default_detectors(), sorry(times=3)]
    stream = ScriptedStream(*[f"I am sorry for number {number}. " for number in range(9)])
    async with monitor.watch(stream, detectors=detectors) as watched:
        seen = [piece async for piece in watched]
    assert len(seen) == 3
    assert watched.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert watched.outcome.source == "apologies"


@pytest.mark.anyio
async def test_a_function_that_raises_or_answers_nonsense_ends_the_run_with_its_name():
    @monitor.detectors.as_detector
    def broken(text: str) -> bool:
        return 5  # type: ignore[return-value]

    async with monitor.watch(ScriptedStream("Hello. ", "you."), detectors=[broken]) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.reason is monitor.TerminateReason.ERROR
    assert "broken" in watched.outcome.detail


def needs_more(text: str, *, more: str) -> bool:
    return more in text


async def waits(text: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: monitor.detectors.as_detector(waits), "asynchronous"),  # type: ignore[arg-type]
        (lambda: monitor.detectors.as_detector(lambda: None), "one text, or a call"),  # type: ignore[arg-type]
        (lambda: monitor.detectors.as_detector(5), "takes a function"),  # type: ignore[call-overload]
        (lambda: monitor.detectors.as_detector(needs_more), "one text, or a call"),  # type: ignore[arg-type]
        (lambda: monitor.Guard(detectors=[waits]), "write @monitor.detectors.as_detector above def waits"),  # type: ignore[list-item]
        (lambda: sorry(times=0), "times=3"),
        (lambda: sorry(level="sure"), "'suspect' or 'loop'"),
    ],
)
def test_what_is_no_detector_is_refused_with_the_line_to_write(make: Any, says: str):
    with pytest.raises(monitor.ConfigError, match=says):
        make()
