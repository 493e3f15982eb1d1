from __future__ import annotations

import json
from random import Random

import pytest

from monitor.chunks import ToolResult
from monitor.detectors.calls.novelty import step_memory, step_reading
from monitor.detectors.calls.novelty.marks import mark
from monitor.detectors.calls.novelty.step_reading import StepCall, StepResult, is_sentence, leaves_of
from monitor.detectors.calls.novelty.words import tokens


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


def test_signs_without_words_are_a_drawing_and_prose_is_none():
    board, other = "+-+-+\n|X|O|\n+-+-+\n|O| |\n", "+-+-+\n|O|X|\n+-+-+\n|O| |\n"
    assert read({}, board).state != read({}, other).state
    assert read({}, f"{'    ' * 40}x = call(a, b)\n").marks == [mark(word) for word in ("x", "call", "a", "b")]


def test_no_drawing_is_left_out_by_the_quick_count():
    chosen = Random(5)
    for _ in range(3_000):
        text = "".join(chosen.choices("ab_X9 \n\t+-|.#\x1c", k=chosen.randint(0, 60)))
        signs, visible = step_reading._SIGNS.findall(text), len("".join(text.split()))
        is_drawing = len(signs) >= step_reading.LEAST_SIGNS and 2 * len(signs) >= visible
        assert bool(step_reading._drawing(text, tokens(text)[0])) is is_drawing, text


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


def test_names_and_lines_are_kept_in_the_order_of_the_text_whatever_the_seed_of_hashes():
    """A full field of marks forgets its oldest ones, so the order of marks is part of the state."""
    names = [f"src/part_{number}.py" for number in range(30)]
    assert StepCall("tool", leaves_of({"paths": " ".join(names)})).items == names
    shown = read({}, "\n".join(names))
    assert shown.items == [mark(name) for name in names]
    assert shown.lines == [mark(name, step_reading.LINE) for name in names]
    assert [part for part in step_memory._parts("/".join("abcdef")) if len(part) == 3] == [
        *("a/b", "b/c", "c/d", "d/e", "e/f")
    ]


def test_a_saved_result_is_the_same():
    result = read({"path": "a.py"}, "step 3/9 of a.py took 2 s, 42 % done")
    again = StepResult(*json.loads(json.dumps(result.save())))
    assert again.ends == result.ends == {"3": 9.0, "42": 100.0}
    assert again.save() == result.save()
    assert len(json.dumps(read({}, "12 of words " * 1_000).save())) < 12_000, "the text itself is not kept"
