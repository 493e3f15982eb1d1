from __future__ import annotations

import base64
import gc
import gzip
import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor._util.hashing import identity
from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.detectors import (
    NOTHING,
    ContentRepetition,
    CountedRule,
    InformationRule,
    RecurrenceRule,
    TailRule,
    WindowRule,
)
from monitor.errors import ConfigError, FinishReason
from monitor.testing import cut
from monitor.verdicts import Detection

DONE = TurnFinished(FinishReason.DONE)
SENTENCE = "I will now check the configuration file again to be sure. "
CUTS = (1, 2, 3, 4, 7, 16, 50, 64, 256, 1000, 4096, 1_000_000)
FIXTURES = Path(__file__).parents[3] / "fixtures" / "transcripts"
SUBJECTS = [
    "the parser",
    "a reader",
    "this module",
    "the old cache",
    "every worker",
    "one request",
    "our table",
    "the index",
]
VERBS = ["keeps", "drops", "returns", "compares", "loads", "renames", "checks", "merges"]
OBJECTS = [
    "its last state",
    "two open files",
    "a shorter path",
    "the wrong key",
    "some results",
    "each header",
    "no tokens",
    "the lock",
]


def prose(chars: int, seed: int = 7) -> str:
    rng = random.Random(seed)
    sentences: list[str] = []
    while sum(map(len, sentences)) < chars:
        words = [
            rng.choice(SUBJECTS),
            rng.choice(VERBS),
            rng.choice(OBJECTS),
            "and",
            rng.choice(VERBS),
            rng.choice(OBJECTS),
            str(rng.random()),
        ]
        sentences.append(" ".join(words).capitalize() + ". ")
    return "".join(sentences)[:chars]


def chant_only(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(chant=WindowRule(**numbers), tail=None, recurrence=None, counted=None, information=None)


def tail_only(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(chant=None, tail=TailRule(**numbers), recurrence=None, counted=None, information=None)


def fed(detector: ContentRepetition, text: str, size: int = 4) -> list[Detection]:
    return [finding for delta in cut(text, size) for finding in detector.feed(delta)]


def found(text: str) -> list[Detection]:
    """The findings of a new detector with its defaults, the same for every cut."""
    whole = fed(ContentRepetition(), text, 1_000_000)
    for size in CUTS:
        assert fed(ContentRepetition(), text, size) == whole, f"cut at {size}"
    return whole


# The chant


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize("size", CUTS)
def test_the_tenth_window_is_a_chant_at_its_last_character(size: int):
    before = prose(3000)
    end = len(before) + 9 * len(SENTENCE) + 50
    text = before + SENTENCE * 12
    (finding,) = fed(chant_only(), text[:end], size)
    assert (finding.kind, finding.level, finding.channel, finding.count, finding.threshold) == (
        "chant",
        "loop",
        "text",
        10,
        10,
    )
    assert finding.offset == end
    assert finding.evidence.offsets == tuple(range(finding.start_offset, end - 49, len(SENTENCE)))
    assert text[finding.start_offset :].startswith(finding.evidence.excerpt)
    assert fed(chant_only(), text[: end - 1], size) == []


@pytest.mark.feature("GL-02")
def test_one_repetition_fewer_is_none():
    filler = prose(50, seed=1)
    assert fed(chant_only(), filler + SENTENCE[:57] * 9 + prose(3000)) == []


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize(("distance", "fires"), [(74, True), (75, True), (76, False)])
def test_mean_distance_with_anything_between(distance: int, fires: bool):
    rng = random.Random(3)
    rows = (SENTENCE[:50] + "".join(rng.choices("abcdefghijklmnop", k=distance - 50)) for _ in range(10))
    assert bool(fed(chant_only(), "".join(rows))) is fires


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize(
    ("distance", "texts", "fires"), [(250, 5, True), (250, 6, False), (251, 5, False), (250, 1, True)]
)
def test_larger_mean_distance_with_few_texts_between(distance: int, texts: int, fires: bool):
    between = [prose(distance - 50, seed) for seed in range(texts)]
    rows = (SENTENCE[:50] + between[turn % texts] for turn in range(10))
    assert bool(fed(chant_only(), "".join(rows)[: 9 * distance + 50])) is fires


@pytest.mark.feature("GL-02")
def test_the_identity_of_the_window_is_its_hash_and_the_text_decides():
    finding, *_ = fed(chant_only(), SENTENCE * 12)
    window = finding.evidence.excerpt
    assert finding.evidence.xxhash == identity(window)
    assert finding.evidence.length == len(window) == 50
    nearly = "".join(
        SENTENCE[:9] + chr(ord("a") + turn) + SENTENCE[10:40] + chr(ord("A") + turn) + SENTENCE[41:]
        for turn in range(20)
    )
    assert fed(chant_only(), nearly) == []


def test_a_chant_of_scripts_without_blanks():
    finding, *_ = found(
        prose(500)
        + "\u6211\u5c06\u518d\u6b21\u68c0\u67e5\u914d\u7f6e\u6587\u4ef6\u4ee5\u786e\u4fdd\u65e0\u8bef\u3002" * 30
    )
    assert finding.level == "loop"


def test_watching_goes_on_behind_a_finding():
    text = prose(500) + SENTENCE * 7 + prose(2000, seed=2) + SENTENCE * 7 + prose(500)
    first, again, second, _ = found(text)
    assert [first.level, again.level, second.level] == ["suspect", "loop", "suspect"]
    assert first.offset < again.offset < 500 + 7 * len(SENTENCE)
    assert second.start_offset > 2500


def enumeration(items: int, template: str = "nutritional yeast flakes and powder combined with a bit of {w}, ") -> str:
    return "".join(
        template.format(w=f"{OBJECTS[item % 8][:3]}{item * 7919 % 97}{SUBJECTS[item // 8 % 8][:4]}", n=item)
        for item in range(items)
    )


def test_an_enumeration_is_a_suspicion_at_ten_and_a_loop_at_forty():
    assert [finding.level for finding in found(enumeration(36))] == ["suspect"]
    assert [finding.level for finding in found(enumeration(50))] == ["suspect", "loop"]


def test_counted_lines_are_a_loop_after_forty():
    line = "The heartbeat of the worker came in time, number {n} of this day\n"
    assert [finding.level for finding in fed(chant_only(), enumeration(35, line))] == ["suspect"]
    assert [finding.level for finding in fed(chant_only(), enumeration(48, line))] == ["suspect", "loop"]


@pytest.mark.parametrize(
    "item",
    [
        "Passed: the tests of the module of the application {w}\n",
        '"webpack://application/./src/localization/messages/{w}.json",',
    ],
)
def test_rows_and_data_with_something_else_in_every_item_are_no_chant(item: str):
    assert found(enumeration(100, item)) == []


# The exact tail


@pytest.mark.parametrize(
    ("period", "chars"), [(1, 160), (3, 160), (16, 160), (17, 192), (48, 192), (49, 196), (300, 1200), (1024, 4096)]
)
def test_the_tail_is_found_at_its_last_character(period: int, chars: int):
    unit = "".join(random.Random(period).choices("abcdefghijklmnopqrstuvwxyz", k=period))
    text = "#" + unit * 300
    (finding,) = fed(tail_only(), text[: chars + 1], 1)
    assert (finding.kind, finding.start_offset, finding.offset, finding.evidence.length) == (
        "exact_tail",
        1,
        chars + 1,
        period,
    )
    assert finding.count == chars // period
    assert fed(tail_only(), text[:chars], 1) == []


def test_a_period_beyond_the_longest_is_not_followed():
    unit = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1025))
    assert fed(tail_only(longest_copy_chars=None), unit * 12) == []


def levels(text: str) -> list[tuple[str, int]]:
    return [(finding.level, finding.count) for finding in found(text)]


def test_the_fourth_copy_is_a_suspicion_and_the_fifth_a_loop():
    copy = prose(300)[1:] + " "
    assert levels(prose(500, seed=1) + copy * 3) == []
    assert levels(prose(500, seed=1) + copy * 4) == [("suspect", 4)]
    assert levels(prose(500, seed=1) + copy * 5) == [("suspect", 4), ("loop", 5)]


@pytest.mark.parametrize(
    "line",
    ["Let the river carry us home tonight,\n", "The moon is out, the stars are bright,\nand every oar is dipping.\n"],
)
def test_a_refrain_may_be_sung_till_it_fades(line: str):
    text = prose(500) + "\n\n"
    assert [level for level, _ in levels(text + line * 11 + "\n" + prose(900, seed=2))] == ["suspect"]
    assert [level for level, _ in levels(text + line * 24)][:2] == ["suspect", "loop"]


def test_a_quoted_song_stands_on_one_line():
    line = "Ring the bell! (Ring it!)   Ring it again! "
    text = "They sang:\n\n> "
    assert [level for level, _ in levels(text + line * 17 + "\n\n" + prose(900))] == ["suspect"]
    assert [level for level, _ in levels(text + line * 30)][:2] == ["suspect", "loop"]
    assert levels("They sang:\n\n" + line * 5)[-1] == ("loop", 5)


@pytest.mark.parametrize("row", ["|      |       |                 |\n", "_" * 40 + "\n\n"])
def test_rows_of_a_form_are_a_loop_after_forty(row: str):
    assert levels("Fill in:\n\n" + row * 38 + "Done.") == []
    assert levels("Fill in:\n\n" + row * 60)[0][0] == "loop"


DATA = {
    "cells": ("<table>\n", '  <td class="empty"></td>\n'),
    "cells in a row": ("<table>\n<tr>", "<td>&nbsp;</td>"),
    "options": ("<select>\n", '  <option value="0">none</option>\n'),
    "null pointers": ("static void *api[] = {\n", "        NULL,\n"),
    "null values": ("INSERT INTO t VALUES (", "NULL, "),
    "a path of SVG": ('<path d="M0 0h24v24H0z', "h2v2h-2z"),
    "minified JSON": ("[", '{"type":"cell","value":null,"style":"none","locked":false},'),
    "a lineage": ("", "Bacteria; Firmicutes; Bacilli; Lactobacillales; Lactobacillaceae\n"),
    "a delivery": ("", "1 box, A4 paper, white, Warehouse North, Gate 4\n"),
    "a test vector": ("uint8_t v[] = { ", "0x00, "),
    "a list of numbers": ("x = [", "0, "),
    "a table of values": ("id;state;note\n", "open;none;Lisbon\n"),
}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("frame", ["{}", "```\n{}\n```\n"])
@pytest.mark.parametrize("kind", DATA)
def test_a_line_of_data_is_a_loop_after_sixty_four_only(kind: str, frame: str):
    opening, row = DATA[kind]
    few, many = 60, 2 * max(64, 2048 // len(row))
    assert levels("Here it is:\n\n" + frame.format(opening + row * few + "\n")) == []
    assert "loop" in {level for level, _ in levels(f"Here it is:\n\n{opening}{row * many}")}


@pytest.mark.parametrize("row", ["0000 0000 0000 0000 0000\n", "   1    1000000.3\n   1    1000000.5\n"])
def test_rows_of_numbers_alone_need_many_times_as_many(row: str):
    assert levels("Data:\n\n" + row * (10_000 // len(row)) + "End.") == []
    assert ContentRepetition().feed("Data:\n\n" + row * (32_000 // len(row)) + "End.") == ()
    assert ContentRepetition().feed("Data:\n\n" + row * (40_000 // len(row)))[0].level == "loop"


REPEATED_DATA = {  # what stands before, a unit, how often people and programs write it
    "source map": ('{"mappings":"AAAA,EAAA,KACA,MAAA,aA+DM,UAhEN,GAAA,EAAC,GAAA,KAAK,CAAA,GAAA', "IAAI,EAAE,", 400),
    "source map of comments": ("ACrHzB,GAAG,YAAY;EACxC,OAAO,IAAI,CAAC7B" * 3, "AACA;", 300),
    "row of a map": ("(tiles\n      0 0 0 149 151", " 0", 1_500),
    "map of two tiles": ("(tiles\n      0 0 12", " 2653 2654", 150),
    "quoted row of a map": ('e00_0000="', "0", 600),
    "picture": ('"<<00", "<<00"\n"00000<<', "0", 600),
    "quoted paths": ("(images\n", '    "../../creatures/yeti/worldmap_1.png"\n', 30),
    "flags of a table": ("", "0 | AttributeProperty::FnAttr,\n", 40),
    "elements": ("", "<note>\n  <pitch>\n    <octave>5</octave>\n  </pitch>\n  <type>eighth</type>\n</note>\n", 40),
}


@pytest.mark.parametrize(("before", "unit", "times"), REPEATED_DATA.values(), ids=REPEATED_DATA)
def test_data_is_a_loop_only_if_it_never_ends(before: str, unit: str, times: int):
    text = f"Here it is:\n\n{before}"
    assert "loop" not in {level for level, _ in levels(text + unit * times)}
    assert "loop" in {finding.level for finding in ContentRepetition().feed(text + unit * (20_000 // len(unit)))}


@pytest.mark.parametrize("row", ["0" * 60 + "\r\n", "   1    1000000.3\n   1    1000000.5\n"])
def test_rows_of_numbers_in_a_file_that_is_written_may_be_many(row: str):
    def watched(chars: int) -> set[str]:
        return {one.level for one in ContentRepetition().observe(ToolCallDelta("a", "w", row * (chars // len(row))))}

    assert watched(30_000) == {"suspect"}
    assert "loop" in watched(150_000)


@pytest.mark.parametrize("unit", ["-811397762", "/index", "0", "%20a", "page2."])
def test_an_address_that_goes_on_is_no_data(unit: str):
    address = "https://www.example.com/en/articles/2019/how-to-write-a-letter-to-the-editor/comments"
    numbers = "".join(f"-{number * number * 7919}" for number in range(101, 125))
    for before in (address, address + numbers):
        assert "loop" in {level for level, _ in levels(f"See\n{before}{unit * (800 // len(unit))}")}


@pytest.mark.parametrize("cry", ["a" * 70 + "{}", "no" * 20 + "{}oh"])
def test_a_cry_with_other_letters_now_and_then_is_no_data(cry: str):
    rng = random.Random(5)
    text = "".join(cry.format(rng.choice("bcdefgij")) for _ in range(200))
    assert "loop" in {level for level, _ in levels(f"{prose(300)}\n\n{text}")}


@pytest.mark.parametrize("cells", ["0", "1478", "2651 2652 2653"])
def test_equal_rows_of_a_map_are_no_loop(cells: str):
    """Rows too long for the tail, which the hash of long copies sees."""
    row = "      " + f"{cells} " * (1_500 // len(f"{cells} ")) + "12 40\n"
    assert ContentRepetition().feed("(tiles\n" + row * 30) == ()


def test_a_suspicion_that_goes_on_is_told_once():
    """The chant sees what the tail has told, and keeps quiet until it is sure."""
    first, *others = found(prose(500) + "\n\n" + "Row on, the tide is with us,\n" * 60)
    assert first.level == "suspect"
    assert {finding.level for finding in others} == {"loop"}


@pytest.mark.parametrize(("length", "fires"), [(511, False), (512, True)])
def test_fill_needs_twice_the_length(length: int, fires: bool):
    assert bool(found("Total" + "-" * length)) is fires


# Quiet


def differing(template: str, rows: int) -> str:
    rng = random.Random(5)
    return "".join(template.format(i=row, n=rng.randrange(10**6), w=rng.choice(OBJECTS)) for row in range(rows))


QUIET = {
    "rule lines": ("=" * 200 + "\nResults\n" + "-" * 200 + "\n") * 2,
    "table padding": "| name" + " " * 240 + "| value |\n|" + "-" * 240 + "|" + "-" * 60 + "|\n",
    "dot leaders": "".join(f"Chapter {i} {'.' * 90} {i * 7}\n" for i in range(40)),
    "0.9999": "The limit is 0." + "9" * 150 + " and so on.",
    "base64 runs": base64.b64encode(b"\x00" * 100 + random.Random(1).randbytes(300) + b"\x01\x00" * 60).decode(),
    "similar code lines": "```python\n" + differing("    self.assertEqual(parse_the_number({i}), {n})\n", 60) + "```\n",
    "similar code lines, no fence": differing("    self.assertEqual(parse_the_number({i}), {n})\n", 60),
    "ten equal code lines": "```python\n" + "result = compute_the_next_value(result, configuration)\n" * 10 + "```\n",
    "JSON rows": "[\n" + differing('  {{"id": {i}, "type": "message", "role": "user", "name": "{w}"}},\n', 60) + "]\n",
    "flush JSON rows": differing('{{"type": "message", "role": "user", "state": "active", "id": {i}}}\n', 60),
    "list items that differ": differing("- The configuration of the following component: {w} {n}\n", 60),
    "numbered items that differ": differing("{i}. Check that the configuration of the component has {w}\n", 60),
    "headings": differing("## The configuration of the following component: {n}\n\n", 60),
    "quotes": differing("> The configuration of the following component: {n}\n", 60),
    "table": differing("| The configuration of the following component | {n} | yes |\n", 60),
    "log lines": differing("2024-05-01 12:00:00 INFO worker finished the request {n}\n", 60),
    "ASCII art": "```\n" + (" _|_" * 12 + "\n" + "|_|_" * 12 + "\n") * 4 + "```\n",
    "matrix": "```python\n[\n" + "    [0, 0, 0, 0, 0, 0, 0, 0],\n" * 8 + "]\n```\n",
    "prose": prose(20_000),
}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", QUIET)
def test_quiet_on(kind: str):
    assert found(f"Here it is:\n\n{QUIET[kind]}\nThat was it.\n") == []


PARAGRAPH = (
    "I have looked at the file and the tests, and I am going to run the tests again, because the result was not what"
    " the plan said.\n\n"
)
LOOPS_WITH_LAYOUT = {
    "heading": "## Next step\n\n" + PARAGRAPH,
    "list": PARAGRAPH + "- read the file\n- run the tests\n\n",
    "numbered list": PARAGRAPH + "1. read the file\n2. run the tests\n\n",
    "table": PARAGRAPH + "| step | state |\n| --- | --- |\n| tests | failed |\n\n",
    "quote": PARAGRAPH + "> the tests have failed\n\n",
    "divider": PARAGRAPH + "---\n\n",
    "code block": PARAGRAPH + "```sh\nmake check\n```\n\n",
}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", LOOPS_WITH_LAYOUT)
def test_a_loop_that_contains_layout_is_a_loop(kind: str):
    finding, *_ = found(prose(700) + "\n\n" + LOOPS_WITH_LAYOUT[kind] * 10)
    assert finding.offset <= 702 + 5 * len(LOOPS_WITH_LAYOUT[kind])


STATEMENTS = {
    "list item": "- Read the settings again\n",
    "numbered item": "1. Read the settings once more\n",
    "comment": "# check the settings again\n",
    "comment of C": "    // TODO: handle the error case here\n",
    "comment of SQL": "-- select the open orders\n",
    "comment of HTML": "<!-- check the settings again -->\n",
    "paragraph of HTML": "<p>I will check the settings again.</p>\n",
    "declaration": "  border-bottom: 1px solid #ccc;\n",
    "rule of CSS": ".button:hover { color: red; }\n",
    "form": "[ ] I have read the terms\n",
    "blank to fill in": "[Name of the applicant: ________]\n",
    "stage direction": "(please print your name here)\n",
    "dialogue": "(Anna) I do not know what to say.\n",
    "dialogue of two": "(Anna) What is it now?\n(Bert) I do not know.\n",
    "Chinese item": "- 我再检查一次这个服务的配置文件，看看有没有什么问题。\n",
}


@pytest.mark.feature("ST-09", "GL-03")
@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_line_that_says_something_is_a_loop_at_the_eighth(kind: str):
    unit = STATEMENTS[kind]
    assert levels("So:\n\n" + unit * 5 + "Done.") == []
    assert {level for level, _ in levels("So:\n\n" + unit * 7 + "Done.")} <= {"suspect"}
    assert "loop" in {level for level, _ in levels("So:\n\n" + unit * 8)}


@pytest.mark.feature("GL-03")
def test_in_a_fence_a_line_without_a_mark_may_be_anything():
    assert levels("```\n" + "the settings of the service\n" * 10 + "```\n") == []
    assert "loop" in {level for level, _ in levels("```css\n" + "  border-bottom: 1px solid #ccc;\n" * 8)}


def test_a_quoted_line_is_a_suspicion_and_a_loop_after_twelve():
    unit = "> I will check the file again\n"
    assert [level for level, _ in levels("So:\n\n" + unit * 11 + "Done.")] == ["suspect"]
    assert levels("So:\n\n" + unit * 40)[1][0] == "loop"


@pytest.mark.feature("GL-03")
def test_an_open_fence_does_not_blind_the_rest():
    opened = prose(300) + "\n```python\nprint('one')\n"
    assert found(opened + SENTENCE * 20)
    assert found(opened + "\nI will now check the configuration file again to be sure.\n" * 20)
    closed = prose(300) + "\n```python\nprint('``` in the text')\n```\n"
    assert found(closed + "I will now check the configuration file again to be sure.\n" * 20)[0].count == 4


def test_fences_are_read_however_they_are_cut_and_nested():
    lines = "result = compute_the_next_value(result, configuration)\n"
    for opening, closing in (
        ("```\n", "```\n"),
        ("~~~py\n", "~~~\n"),
        ("  ```js\n", "  ```\n"),
        ("````\n```\n", "````\n"),
    ):
        assert found(prose(300) + "\n" + opening + lines * 10 + closing) == []
        assert found(prose(300) + "\n" + opening + "x = 1\n" + closing + lines * 10)


# Channels, turns, retries


def test_channels_do_not_mix():
    detector = ContentRepetition()
    for _ in range(3):
        assert not detector.observe(TextDelta(SENTENCE))
        assert not detector.observe(ReasoningDelta(SENTENCE))
        assert not detector.observe(ToolCallDelta("a", "write", SENTENCE))
    findings = [f for _ in range(2) for f in detector.observe(ReasoningDelta(SENTENCE))]
    assert [(f.channel, f.level, f.offset) for f in findings] == [
        ("reasoning", "suspect", 4 * len(SENTENCE)),
        ("reasoning", "loop", 5 * len(SENTENCE)),
    ]


def test_arguments_are_data_of_one_call():
    detector = ContentRepetition()
    text = SENTENCE * 11
    assert not detector.observe(ToolCallDelta("a", "write", text))
    assert not detector.observe(ToolCallDelta("b", "write", text))
    (finding,) = detector.observe(ToolCallDelta("b", None, SENTENCE * 2))
    assert (finding.channel, finding.level) == ("arguments", "suspect")
    assert (finding.offset, finding.start_offset) == (len(text) + 12 * len(SENTENCE), len(text))
    (finding,) = detector.observe(ToolCallDelta("b", None, SENTENCE * 30))
    assert (finding.level, finding.offset - finding.start_offset) == ("loop", max(2048, 24 * len(SENTENCE)))


OFF: dict[str, Any] = {"chant": None, "tail": None, "recurrence": None, "counted": None, "information": None}
RULES: list[dict[str, Any]] = [
    {},
    {**OFF, "chant": WindowRule(window_chars=4, sample_chars=2, repeats=2, unit_chars=1, near_chars=2)},
    {**OFF, "chant": WindowRule(window_chars=8, sample_chars=4, repeats=3, unit_chars=2)},
    {**OFF, "tail": TailRule()},
    {**OFF, "recurrence": RecurrenceRule(counting_samples=2, doubtful_samples=2, stale_samples=2)},
    {**OFF, "information": InformationRule(places=2, prose=200, wide_prose=200)},
    {**OFF, "counted": CountedRule(long_rounds=4, rounds=4, short_rounds=4, data_rounds=4, min_chars=1)},
    OFF,
]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("before", ["", "words " * 19, "words " * 64])
def test_no_text_has_a_finding_before_the_length_that_its_rules_say(rules: dict[str, Any], before: str):
    """So a shorter text is only kept, and nothing is made for it."""
    texts = [
        *(unit * (2_000 // len(unit)) for unit in ("a", "ab", "again ", SENTENCE, "one line\n", "I read it. Now. ")),
        *("".join(f"{start}{number}{end}" for number in range(200)) for start, end in [("Step ", ": I look again\n")]),
        "".join(f"{number}. go on\n" for number in range(200)),
    ]
    for text in texts:
        detector = ContentRepetition(**rules)
        detector.observe(TextDelta(before))
        detector.observe(DONE)
        feed = detector.feed_of("text")
        assert feed is not None
        need, start = feed.need, len(before)
        found = [one for piece in cut(text, 3) for one in detector.observe(TextDelta(piece))]
        assert all(one.offset - start >= need for one in found[:1])


@pytest.mark.parametrize("end", [DONE, ToolCall("a", "read", {})])
def test_a_finished_turn_and_a_tool_call_end_the_text(end: Any):
    detector = ContentRepetition()
    assert not detector.observe(TextDelta(SENTENCE * 3))
    assert detector.observe(end) is NOTHING
    assert not detector.observe(TextDelta(SENTENCE * 3))
    (finding,) = detector.observe(TextDelta(SENTENCE))
    assert (finding.start_offset, finding.offset) == (3 * len(SENTENCE), 7 * len(SENTENCE))


def test_a_retried_stream_takes_its_text_back():
    detector, plain = ContentRepetition(), ContentRepetition()
    for one in (detector, plain):
        one.observe(TextDelta(prose(900)))
        one.observe(ReasoningDelta(prose(90)))
        one.observe(DONE)
    detector.observe(TextDelta(SENTENCE * 4))
    detector.observe(ReasoningDelta(SENTENCE * 4))
    detector.observe(StreamRetried("connection lost"))
    assert detector.snapshot() == plain.snapshot()
    assert list(detector.observe(TextDelta(SENTENCE * 5))) == list(plain.observe(TextDelta(SENTENCE * 5)))


def test_feed_of_is_the_same_as_observing_and_outlives_a_reset():
    detector = ContentRepetition(channels=("text", "reasoning"))
    reasoning, text = detector.feed_of("reasoning"), detector.feed_of("text")
    assert reasoning
    assert text
    assert text.feed == detector.feed
    assert detector.feed_of("arguments") is None
    detector.reset()
    findings = reasoning.feed(SENTENCE * 5)
    assert [(finding.channel, finding.level) for finding in findings] == [
        ("reasoning", "suspect"),
        ("reasoning", "loop"),
    ]
    assert not ContentRepetition(channels=("text",)).observe(ReasoningDelta(SENTENCE * 50))
    assert ContentRepetition(channels=()).feed_of("text") is None


def test_options_that_mean_nothing_are_refused():
    windows: list[dict[str, Any]] = [
        {"repeats": 1},
        {"near_chars": 0},
        {"sample_chars": 51},
        {"unit_chars": 0},
        {"far_chars": 0},
        {"doubtful_rounds": 0},
    ]
    for numbers in windows:
        with pytest.raises(ConfigError, match="WindowRule"):
            WindowRule(**numbers)
    for numbers in (
        {"copies": 1},
        {"step_chars": 100},
        {"step_chars": 256},
        {"weak_copies": 3},
        {"max_period_chars": 0},
    ):
        with pytest.raises(ConfigError, match="TailRule"):
            TailRule(**numbers)
    with pytest.raises(ConfigError, match="unknown channel 'tools'"):
        ContentRepetition(channels=("tools",))


# State


def test_a_snapshot_of_another_version_is_refused():
    with pytest.raises(ValueError, match="version 99"):
        ContentRepetition().restore({"version": 99})


def deltas_of(text: str, chars: int, size: int) -> Iterator[str]:
    pieces = cut(text, size)
    for _ in range(chars // len(text)):
        yield from pieces


def held_after(chars: int, text: str) -> int:
    tracemalloc.start()
    try:
        detector = ContentRepetition()
        before = tracemalloc.get_traced_memory()[0]
        for delta in deltas_of(text, chars, 64):
            detector.feed(delta)
        gc.collect()  # what Python keeps ready for reuse does not count
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.feature("GL-04")
def test_memory_is_flat():
    text = prose(100_000)
    assert held_after(100_000, text) < 10_500
    assert held_after(400_000, text) < 10_500


@pytest.mark.feature("GL-04")
def test_a_giant_delta_is_taken_in_slices():
    text = prose(100_000)
    giant = text * 8 + SENTENCE * 20
    detector = ContentRepetition()
    tracemalloc.start()
    try:
        finding, *_ = detector.feed(giant)
        assert tracemalloc.get_traced_memory()[1] < 400_000
    finally:
        tracemalloc.stop()
    assert finding.start_offset == pytest.approx(len(text) * 8, abs=3)


def test_bad_text_is_text():
    for text in ("\x00" * 100, "\ud800" * 600, "\ud83d\ude00" * 300, ""):
        detector = ContentRepetition()
        detector.feed(text)
        json.dumps(detector.snapshot())
    (finding,) = ContentRepetition().feed("say \ud800 now " * 30)[:1]
    assert len(finding.evidence.xxhash) == 16


# Recorded runs


def recorded(name: str) -> list[dict[str, Any]]:
    path = FIXTURES / name
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def fires(run: dict[str, Any]) -> bool:
    detector = ContentRepetition()
    findings: list[Detection] = []
    for message in run["messages"]:
        if message["role"] == "assistant":
            findings += detector.feed(message.get("text") or "")
            detector.observe(DONE)
    return bool(findings)


@pytest.mark.feature("GL-02", "GL-03")
def test_recorded_loops_are_seen_and_the_rest_is_quiet():
    runs = recorded("dev.jsonl.gz") + recorded("text_negatives_dev.jsonl.gz")
    caught = Counter(run["loop"]["kind"] if run["label"] == "loop" else run["label"] for run in runs if fires(run))
    assert caught["clean"] == caught["hard_negative"] == caught["negative_text"] == 0
    assert caught["hard_negative_text"] <= 1
    least = {
        "text_char": 7,
        "text_word": 7,
        "text_phrase": 9,
        "text_sentence": 5,
        "text_paragraph": 3,
        "text_inexact": 1,
    }
    assert {kind: caught[kind] for kind in least if caught[kind] < least[kind]} == {}
