from __future__ import annotations

import json
import re
from random import Random

import pytest

from monitor.chunks import ToolResult
from monitor.detectors.calls.novelty import step_reading
from monitor.detectors.calls.novelty.marks import mark
from monitor.detectors.calls.novelty.step_reading import StepCall, StepResult, is_sentence, leaves_of, tokens


def read(arguments: object, text: str, *, is_error: bool = False) -> StepResult:
    call = StepCall("tool", leaves_of(arguments))
    return StepResult.of(call, ToolResult("1", "tool", text, is_error), text)


def test_words_that_the_call_said_are_taken_out():
    one, two = read({"path": "a.py"}, "cannot open a.py"), read({"path": "b.rs"}, "cannot open b.rs")
    assert one.marks == [mark("cannot"), mark("open")]
    assert one.state == two.state


def test_a_receipt_that_counts_what_was_sent_says_nothing_new():
    assert read({"text": "x" * 120}, "wrote 120 bytes").numbers == ["§"]


def test_numbers_clocks_durations_and_ids_are_kept_apart():
    assert read({}, "12 at 10:01:02 in 0.3 s by 7f3a at 12 May 2026 10:11").numbers == [
        "12",
        ":10:01:02",
        "~0.3",
        "@7f3a",
        ":12 may 2026 10:11",
    ]


@pytest.mark.parametrize("text", ["", " \n", "[]", '{"orders": [], "page": 9}', "results: {}"])
def test_silence_is_an_empty_text_or_an_empty_list(text: str):
    assert read({}, text).is_empty


@pytest.mark.parametrize("text", ["ok", "def f():\n    return 1", '{"ok": true}', "done (see log)"])
def test_a_short_answer_is_no_silence(text: str):
    assert not read({}, text).is_empty


def test_a_change_in_the_middle_of_a_long_result_is_seen():
    text = "word " * 4_000
    assert tokens(text) != tokens(text[:9_000] + "other" + text[9_005:])


def test_huge_and_odd_arguments_are_cut():
    deep: object = "x"
    for _ in range(3_000):
        deep = [deep]
    for arguments in (None, "raw", deep, {"a": "y" * 1_000_000}, {str(i): i for i in range(5_000)}, {"\ud800": {1, 2}}):
        assert sum(len(value) for _, value in leaves_of(arguments)) < 12_000
    assert leaves_of({"a": "y" * 9_000 + "1"}) != leaves_of({"a": "y" * 9_000 + "2"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("Is the port open?", True), ("ls -la", False), ("src/a b.py", False), ("数据库连接错误", True)],
)
def test_a_sentence_is_nothing_that_a_program_reads(text: str, sentence: bool):
    assert is_sentence(text) is sentence


PIECES = (
    *(
        "grep",
        "feed",
        "a1b2",
        "zeta9",
        "x" * 201,
        "12",
        "3.5",
        "1,000",
        "5 ms",
        "12 sec",
        "٣٤",
        "é",
        "naïve",
        "漢字",
        "½",
    ),
    *("10:11:12.5", "2026-05-12t10:11:12z", "12 may 2026 10:11", "5m12s", "abcdef12-1234-1234-1234-0123456789ab"),
    *("-", "_", "/", " ", "  ", "\n", ".", ":", "%"),
)


def test_a_word_is_read_as_if_each_form_was_tried_in_turn():
    plain = re.compile(
        rf"{step_reading._UUID}|{step_reading._CLOCK}"
        rf"|{step_reading._NUMBER}(?:\s?{step_reading._UNIT}\b|(?![^\W_]))|[^\W_]{{1,200}}"
    )
    chosen = Random(7)
    for _ in range(2_000):
        text = "".join(chosen.choices(PIECES, k=9))
        assert tokens(text) == plain.findall(text.casefold()), text


def test_a_saved_result_is_the_same():
    result = read({"path": "a.py"}, "step 3/9 of a.py took 2 s, 42 % done")
    again = StepResult(*json.loads(json.dumps(result.save())))
    assert again.ends == result.ends == {"3": 9.0, "42": 100.0}
    assert again.save() == result.save()
    assert len(json.dumps(read({}, "12 of words " * 1_000).save())) < 12_000, "the text itself is not kept"
