"""Templates of texts and of runs: what each field and each key stands for."""

from __future__ import annotations

import random
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.testing.loops import (
    Fields,
    MadeCall,
    TextPart,
    chunks_of,
    flood_of,
    read_kinds,
    rounds_of,
    run_of,
    text_of,
)

LISTS = {
    "noun": ["river", "garden", "letter"],
    "verb": ["finds"],
    "kind": ["old"],
    "clock": "{10-23}:{10-59}",
    "sentences": ["The {kind} {noun} {verb} the {other}."],
}


def fields(**fixed: object) -> Fields:
    return Fields(random.Random(7), LISTS, **fixed)


def text(part: TextPart, **kind: Any) -> str:
    return text_of({"text": part, **kind}, random.Random(7), LISTS)


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("{noun}", "river|garden|letter"),
        ("{Noun} {NOUN}", "(River|Garden|Letter) (RIVER|GARDEN|LETTER)"),
        ("{3-5}", "[345]"),
        ("{3-5:03}", "00[345]"),
        ("{red|7|10-19}", r"red|7|1\d"),
        ("{clock}", r"\d\d:\d\d"),
        ("{hex6} {digest12}", "[0-9a-f]{6} [0-9a-f]{10}a1"),
        ("{real:.3f} {real3:.1f} {gauss:.1f}", r"0\.\d{3} [0-2]\.\d -?\d\.\d"),
        ("{uuid4}", "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-.{17}"),
        ("{token5}", "[A-Za-z2-9]{4}7"),
        ("{nouns2}; {names3}", r"\w+ \w+; \w+, \w+, \w+"),
        ("{page2}", r"(\w+ ){8}\w+\n(\w+ ){8}\w+"),
        ("{sentence} {clause}", r"The old (\w+) finds the (?!\1)\w+\. The old \w+ finds the \w+"),
        ("{{noun}}", r"\{noun\}"),
    ],
)
def test_a_field_is_drawn_and_the_same_seed_draws_the_same(template: str, pattern: str):
    assert re.fullmatch(pattern, text(template))
    assert text(template) == text(template)
    assert len({text_of({"text": template}, random.Random(seed), LISTS) for seed in range(60)}) > ("{{" not in template)


def test_the_number_of_a_round_can_be_computed_with():
    assert "{i} {i+1} {i-2} {50i} {50i+49} {300-20i} {1+i} {i:03}".format_map(fields(i=3)) == "3 4 1 150 199 240 4 003"


def test_an_unknown_field_is_an_error():
    with pytest.raises(KeyError, match="nobody"):
        text("{nobody}")


def test_what_is_drawn_once_stays_and_the_words_of_a_list_are_drawn_later():
    said = text("{name} {name} {place}", once={"name": "{hex8}", "place": ["{name}"]}).split()
    assert len(set(said)) == 1
    drawn = text({"row": "{word} ", "times": 60}, once={"word": ["a", "b"]})
    assert set(drawn.split()) == {"a", "b"}


def test_rows_are_written_some_times():
    assert text({"row": "{i};", "times": 3}) == "0;1;2;"
    assert text({"row": "{i}", "times": 3, "first": 5, "sep": ", "}) == "5, 6, 7"
    assert text({"row": "{i} ", "times": 3, "down": True}) == "3 2 1 "
    assert text({"row": "{each}{size} ", "each": ["a", "b"], "size": [7, 8]}) == "a7 b8 "
    assert sorted(text({"row": "{each} ", "each": "noun", "sample": True, "times": 3}).split()) == sorted(LISTS["noun"])
    assert re.fullmatch("x{2,4}", text({"row": "x", "times": "2-4"}))
    assert len(set(text({"row": "{hex8} ", "times": 5, "same": True}).split())) == 1
    assert set(text({"choices": "ab", "times": 40})) == {"a", "b"}
    assert text(["<", {"row": ["(", {"row": "-", "times": 2}, ")"], "times": 2}, ">"]) == "<(--)(--)>"


def test_a_row_may_be_written_by_chance():
    said = text({"row": {"chance": 0.5, "row": "a", "else": "b"}, "times": 60})
    assert set(said) == {"a", "b"}
    assert text({"chance": 0.0, "row": "a"}) == ""


def rounds(count: int, **kind: Any) -> list[str]:
    return list(islice(rounds_of(kind, random.Random(7), LISTS), count))


def test_a_loop_repeats_one_unit_or_a_cycle_of_rounds():
    assert len(set(rounds(9, same="{hex8}"))) == 1
    assert len(set(rounds(9, same=["x", "y"]))) == 1
    assert rounds(5, cycle=["a{i}", "b"]) == ["a1", "b", "a3", "b", "a5"]
    assert rounds(3, cycle=["{word}"], word=["one", "two"]) == ["one", "two", "one"]


def test_a_loop_may_grow_or_drift():
    assert rounds(3, once={"said": "a"}, grow={"said": "+"}, cycle=["{said}"]) == ["a+", "a++", "a+++"]
    said = rounds(12, once={"said": "1 2 3 4"}, drift="noun", cycle=["{said}"])
    assert said[0] == said[1] == "1 2 3 4"
    assert all(one == other for one, other in zip(said[2::3], said[3::3], strict=False))
    assert set(LISTS["noun"]) & set(said[-1].split())


def test_a_flood_begins_behind_healthy_text_and_says_where_its_rounds_end():
    whole, ends = flood_of({"same": ["0123456789"]}, random.Random(7), LISTS, chars=95, opening="\n- ")
    start = whole.index("\n- 0123456789") + 3
    assert ends == list(range(start + 10, start + 110, 10))
    assert len(whole) == ends[-1]
    assert start > 200


def test_a_run_has_turns_of_texts_and_calls():
    kind = {
        "times": 2,
        "turns": [["Round {i}.", ["read", {"path": "{i}.py", "line": "{10i}"}, {"at": ["{i}"]}], ["look", {}]]],
        "then": [[["stop", {}, None, True]]],
    }
    turns = [list(turn) for turn in run_of(kind, random.Random(7), LISTS)]
    assert turns[1] == [
        "Round 1.",
        MadeCall("read", {"path": "1.py", "line": 10}, '{"at": [1]}'),
        MadeCall("look", {}, "ok"),
    ]
    assert turns[2] == [MadeCall("stop", {}, None, is_error=True)]
    assert [(number, type(chunk)) for number, chunk in chunks_of(turns[1:])] == [
        *((0, TextDelta), (0, ToolCall), (0, ToolCall), (0, TurnFinished), (1, ToolResult), (1, ToolResult)),
        *((2, ToolCall), (2, TurnFinished)),
    ]


def test_a_run_takes_each_word_in_order_or_in_any_order():
    call = [["find", {"name": "{each}"}, "none"]]
    in_order = [turn[0] for turn in run_of({"each": "noun", "turns": [call]}, random.Random(7), LISTS)]
    assert [step.arguments["name"] for step in in_order if isinstance(step, MadeCall)] == LISTS["noun"]
    mixed = {"each": "noun", "sample": True, "times": 2, "turns": [call]}
    assert len(list(run_of(mixed, random.Random(7), LISTS))) == 2


def test_kinds_are_read_by_name(tmp_path: Path):
    file = tmp_path / "kinds.jsonl"
    file.write_text('{"kind": "one", "same": ["x"]}\n{"kind": "two", "text": "\u20ac"}\n', "utf-8")
    assert read_kinds(file) == {"one": {"kind": "one", "same": ["x"]}, "two": {"kind": "two", "text": "\u20ac"}}
