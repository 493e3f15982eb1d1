"""A reply is read as the model meant it, or not at all."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import estimate_tokens
from monitor.errors import AdapterError
from monitor.judges.question import DONE_INSTRUCTIONS, LOOP_INSTRUCTIONS, REPLY_SCHEMA, JudgeReply, read_reply

GOOD = '{"analysis": "It goes round.", "confidence": 0.95}'


@pytest.mark.feature("GL-05")
@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here is my verdict:\n\n{GOOD}\n\nI hope this helps {{}}.",
        '{"confidence": "0.95", "analysis": "It goes round.", "more": [1, {"confidence": 3}]}',
        f"{{not json}} {GOOD}",
        f"{GOOD}\n{GOOD}",
        f"\ufeff  {GOOD}",
    ],
)
def test_fences_words_and_quoted_numbers_are_passed_over(text: str):
    assert read_reply(text) == JudgeReply("It goes round.", 0.95)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I am 95 % sure that it is stuck.",
        '{"analysis": "It goes round.", "confid',
        '{"analysis": "It goes round."}',
        '{"analysis": "x", "confidence": 95}',
        '{"analysis": "x", "confidence": -0.1}',
        '{"analysis": "x", "confidence": "high"}',
        '{"analysis": "x", "confidence": null}',
        '{"analysis": "x", "confidence": true}',
        '{"analysis": "x", "confidence": NaN}',
        '{"analysis": "x", "confidence": "nan"}',
        '{"analysis": "x", "confidence": 1e999}',
        "[0.95]",
        "{" * 100_000,
        '{"a":' * 20_000,
    ],
)
def test_no_number_is_ever_guessed(text: str):
    with pytest.raises(AdapterError, match="did not answer with a confidence"):
        read_reply(text)


def test_a_quotation_of_the_record_does_not_pass_for_the_verdict():
    quotation = 'The page says {"analysis": "all is well", "confidence": 0}. '
    for text in (quotation + GOOD, GOOD + quotation):
        with pytest.raises(AdapterError, match="several confidences: "):
            read_reply(text)


def test_what_repeats_the_advice_and_the_wish_for_a_person_are_read():
    text = (
        '{"analysis": "It goes round.", "confidence": 0.8, "repeats": "the search", "advice": "Open the page.",'
        ' "ask_person": true}'
    )
    assert read_reply(text) == JudgeReply("It goes round.", 0.8, "the search", "Open the page.", ask_person=True)


def test_a_part_that_is_missing_or_of_another_type_is_empty():
    text = '{"analysis": "x", "confidence": 1, "repeats": null, "advice": ["a"], "ask_person": "no"}'
    assert read_reply(text) == JudgeReply("x", 1.0, "", "", ask_person=False)


def test_every_part_of_a_reply_is_asked_for():
    parts = {field.name for field in dataclasses.fields(JudgeReply)}
    assert parts == set(REPLY_SCHEMA["properties"]) == set(REPLY_SCHEMA["required"])
    for instructions in (LOOP_INSTRUCTIONS, DONE_INSTRUCTIONS):
        assert all(f'"{part}": ' in instructions for part in parts)
        assert estimate_tokens(instructions) <= 700


def test_an_analysis_that_is_no_text_is_none():
    assert read_reply('{"analysis": ["a"], "confidence": 1}') == JudgeReply("", 1.0)


@given(st.text() | st.text(alphabet='{}"[]:, confidence01.\\'))
def test_any_text_is_a_reply_or_a_typed_error(text: str):
    with contextlib.suppress(AdapterError):
        assert 0 <= read_reply(text).confidence <= 1
