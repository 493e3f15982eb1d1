"""Gemini CLI's LoopDetectionService: its test cases (L) and what it was seen to do (P), restated.
Its judge is no detector of ours.
"""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from monitor.chunks import ReasoningDelta, TextDelta
from monitor.detectors import ToolCallCycle, ToolCallRepetition
from tests.detectors.agent import DONE, Agent, letters
from tests.detectors.peers.scripts import agent, chants, in_pieces, loops, play, row

READ = ("read", {"path": "a"})
THOUGHT = ReasoningDelta("I should look once more.")
BEFORE = "the run ends before five rounds do, and three never were a good run's"


@pytest.mark.feature("GL-01", "ST-07", "ST-08")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row("L1 four identical calls", [READ] * 4, False),
        row("L2 the fifth", [READ] * 5, True),
        row("L3 the sixth is still one", [READ] * 6, True),
        row(
            "L3 three calls in turn, three times, none like another",
            [(tool, {"n": n}) for n in range(3) for tool in "abc"],
            False,
        ),
        row("L4 three rounds of A-A-B", letters("AAB" * 3), True, theirs=False, why=BEFORE),
        row("L4 two rounds of A-A-B", letters("AAB" * 2), False),
        row("L5 four, a thought, the fifth", [*[READ] * 4, THOUGHT, READ], True),
        row("L5 a text between", [*[READ] * 4, TextDelta("Once more."), READ], True),
        row("L10 twenty calls of A-B-C", letters("ABC" * 6 + "AB"), True),
        row("L11 thirty calls of a cycle of five", letters("ABCDE" * 6), True),
        row("P k=1 at the fifth", letters("AAAAA"), True),
        row("P k=2 at the tenth", letters("AB" * 3), True, theirs=False, why=BEFORE),
        row("P k=3 at the fifteenth", letters("ABC" * 3), True, theirs=False, why=BEFORE),
        row("P k=5 at the twenty-fifth", letters("ABCDE" * 3), True, theirs=False, why=BEFORE),
        row(
            "P k=6 never",
            letters("ABCDEF" * 3),
            True,
            theirs=False,
            why="few calls again and again are seen in any order",
        ),
        row(
            "P key order alternates: at ten",
            [("read", {"a": 1, "b": 2}), ("read", {"b": 2, "a": 1})] * 3,
            True,
            theirs=False,
            why="two orders of keys are one call",
        ),
        row(
            "P a new call every five: never in 200",
            letters("AAAA1AAAA2AAAA3AAAA4"),
            True,
            theirs=False,
            why="one foreign call in five does not make the four others work",
        ),
        row("P a foreign call every five, always the same", letters("AAAAB" * 3), True, theirs=False, why=BEFORE),
        row(
            "P results are never looked at",
            [("build_status", {}, f"{n} %") for n in range(30)],
            False,
            theirs=True,
            why="a changed result is progress: their users' polls were stopped (gemini-cli#9276, #5873)",
        ),
    ],
)
def test_calls(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours


@pytest.mark.feature("GL-01")
def test_l2_one_finding_for_the_fifth_and_it_says_how_often():
    run = Agent(ToolCallRepetition(suspect_at=None))
    run.turns(READ, rounds=5)
    assert [(found.kind, found.count) for found in run.found] == [("identical_calls", 5)]


@pytest.mark.feature("GL-07")
def test_l7_l8_switched_off_nothing_is_seen():
    run = agent(detectors=[])
    run.turns(READ, rounds=7)
    assert run.found == []


def test_l40_after_a_reset_it_starts_anew():
    run = agent()
    run.turns(READ, rounds=5)
    for detector in run.detectors:
        detector.reset()
    run.found.clear()
    play(run, [READ, READ, "A short text."])
    assert run.found == []


def test_p_200_calls_with_a_foreign_one_every_five_defeat_a_consecutive_counter_but_not_the_cycle():
    repetition, cycle = Agent(ToolCallRepetition(suspect_at=None)), Agent(ToolCallCycle())
    for run in (repetition, cycle):
        run.turns(*letters("AAAAB" * 40))
    assert (repetition.found, cycle.kinds) == ([], {"cycle"})


# Text


def noise(length: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=length))


def piece(number: int, length: int = 50) -> str:
    """A sentence of its own, as long as the window of a chant."""
    return (f"Sentence number {number} has words of its own. " * 9)[:length]


U = piece(1)
ENOUGH = "nine equal sentences are a loop by themselves, whatever comes after them"
ONE_LINE = "code breaks its lines; the same fifty characters over and over in one line are no code, fence or not"


@pytest.mark.feature("GL-02", "GL-03")
@pytest.mark.parametrize(
    ("text", "ours", "options"),
    [
        row("L13 noise", noise(10_000), False),
        row("L14 fifty characters, ten times", U * 10, True),
        row(
            "L15 a list whose lines begin alike",
            "".join(f"- projects/some-project-9876/places/north9/things/{n}\n" for n in range(15)),
            False,
        ),
        row("L16 fifty characters, 500 of noise between", "".join(U + noise(500, n) for n in range(10)), False),
        row("L16 fifty characters, 2000 of noise between", "".join(U + noise(2_000, n) for n in range(10)), False),
        row("L17 150 characters, twelve times", piece(1, 150) * 12, True),
        row(
            "L18 five short lines",
            "I say no more.\n  I only end this turn.\n  I am finished.\n  Nothing is left.\n  I wait for the user.\n"
            * 15,
            True,
        ),
        row(
            "L19 a claim to be done, 15 times",
            "All logs are in and the test file is right. I mark the task as finished.\n  " * 15,
            True,
        ),
        row("L20 two short phrases in turn, 30 times", "Pondering. Ready. " * 30, True),
        row(
            "L21 three thoughts",
            "I have to look at the file. There is no such file. I am going to make the file. " * 15,
            True,
        ),
        row("L22 ten times in a fence, in one line", f"```\n{U * 10}\n```", True, theirs=False, why=ONE_LINE),
        row("L22 ten times in a fence, in ten lines", "```\n" + f"{U}\n" * 10 + "```", False),
        row("L23 eight times, then a fence", U * 8 + "```javascript\n" + U * 10, True, theirs=False, why=ENOUGH),
        row("L23 three times, then a fence", U * 3 + "\n```javascript\n" + f"{U}\n" * 10, False),
        row(
            "L25 five times in a fence, in one line",
            f"Normal text\n```\n{U * 5}\n```\n```python\n",
            True,
            theirs=False,
            why=ONE_LINE,
        ),
        row("L25 five times in a fence, in lines", "Normal text\n```\n" + f"{U}\n" * 5 + "```\n```python\n", False),
        row("L26 ten times behind a fence", f"```\nsome code\n```\n{U * 10}", True),
        row("L27 two fences", "```\ncode1\n```\nsome text\n```\ncode2\n```", False),
        row(
            "L28 twenty times the same line of code",
            "```\n" + "for (let n = 0; n < 9; n++) { print(n); }\n" * 20 + "```",
            True,
            theirs=False,
            why=(
                "people write ten equal lines of code, not twenty, and a fence that is never closed must not blind the"
                " rest"
            ),
        ),
        row(
            "L28 ten times the same line of code",
            "```\n" + "for (let n = 0; n < 9; n++) { print(n); }\n" * 10 + "```",
            False,
        ),
        row("L29 nine times, a fence, ten times", f"{U * 9}```{U * 10}", True, theirs=False, why=ENOUGH),
        *(
            row(
                f"L34 nine times, {marker}, nine others",
                f"{U * 9}\n{marker} item{piece(100) * 9}",
                True,
                theirs=False,
                why=ENOUGH,
            )
            for marker in ("*", "-", "+", "1.", "42.")
        ),
        *(
            row(f"L34 thrice, {marker}, three others", f"{U * 3}\n{marker} item{piece(100) * 3}", False)
            for marker in ("*", "-", "+", "1.", "42.")
        ),
        *(
            row(f"L35 nine times, {line!r}, nine times", f"{U * 9}\n{line}\n{U * 9}", True, theirs=False, why=ENOUGH)
            for line in ("| a | b |", "|---|---|", "|++|--|", "| one |", "## Heading", "> Quote")
        ),
        *(
            row(f"L35 thrice, {line!r}, three others", f"{U * 3}\n{line}\n{piece(7) * 3}", False)
            for line in ("| a | b |", "|---|---|", "|++|--|", "| one |", "## Heading", "> Quote")
        ),
        row("L37 nothing", "", False),
        row("L38 a rule of fifty dashes", "-" * 50, False),
        row("L38 fifteen rules in lines", ("-" * 50 + "\n") * 10, False),
        row(
            "L38 750 dashes",
            "-" * 750,
            True,
            theirs=False,
            why="the longest rule in 440 texts has 338 characters; a model that fills does not stop",
        ),
        row("L38 box-drawing in pairs", "\u2500\u253c" * 25, False),
        row("L41 nine short texts, then another", "Some content." * 9 + "Fresh content.", False),
    ],
)
def test_texts(text: str, ours: bool, options: dict[str, Any]):
    assert chants(text) is ours


def test_l41_a_tool_call_ends_a_text():
    run = agent()
    for _ in range(9):
        run.observe(TextDelta("Some content."))
    run.turn(READ)
    run.observe(TextDelta("Fresh content."))
    run.observe(DONE)
    assert run.found == []


LATE = "an exact repetition of any period up to 1024 characters is seen"
TOKENS = "the verdict does not depend on how the provider cuts the text"
FILL = "sixty characters of fill are padding"


@pytest.mark.feature("GL-02", "GL-03")
@pytest.mark.parametrize(
    ("text", "ours", "options"),
    [
        *(row(f"P a period of {period}", noise(period) * (9 + 600 // period), True) for period in (5, 50, 250)),
        *(
            row(f"P a period of {period}", noise(period) * 9, True, theirs=False, why=LATE)
            for period in (251, 600, 1000)
        ),
        row(
            "P six variants in turn",
            "".join(
                f"The {word} try has failed, so I take the next one. "
                for word in ("first", "next", "third", "last", "fifth", "sixth")
            )
            * 10,
            True,
            theirs=False,
            why=LATE,
        ),
        row(
            "P a chant with a counter",
            "".join(f"This is attempt {n} to make the build pass, and it fails again. " for n in range(60)),
            True,
            theirs=False,
            why="a number that counts up is no news",
        ),
        row("P a short sentence, in any pieces", "I am done. " * 200, True, theirs=False, why=TOKENS),
        row(
            "P a sentence with a full stop, in any pieces",
            "The build is still failing so I look again. " * 40,
            True,
            theirs=False,
            why=TOKENS,
        ),
        row(
            "P a word in capitals",
            "SELECT " * 100,
            True,
            theirs=False,
            why="their class of dividers holds all capitals and digits",
        ),
        row("P digits", "12345" * 100, True, theirs=False, why="their class of dividers holds all capitals and digits"),
        row(
            "P one digit", "7" * 2_000, True, theirs=False, why="their class of dividers holds all capitals and digits"
        ),
        row("P 60 blanks", " " * 60, False, theirs=True, why=FILL),
        row("P 60 line breaks", "\n" * 60, False, theirs=True, why=FILL),
        row("P 60 blocks", "\u2588" * 60, False, theirs=True, why=FILL),
        row("P 200 dots", "." * 200, False),
        row(
            "P JSON without a fence",
            "[\n" + "".join(f'{{"id": {n}, "name": "item", "state": "open"}},\n' for n in range(40)) + "]",
            False,
            theirs=True,
            why="rows of data differ in one place each",
        ),
        row(
            "P code in tildes",
            "~~~\n" + 'print("x")\n' * 20 + "~~~\n",
            False,
            theirs=True,
            why="tildes are a fence as well",
        ),
        row(
            "P a fence that comes in two pieces",
            "```\n" + "x = compute(x)\n" * 10 + "```\n",
            False,
            theirs=True,
            why=TOKENS,
        ),
        row(
            "P a table, in any pieces",
            "".join(f"| {n} | yes | no |\n" for n in range(40)),
            False,
            theirs=True,
            why=TOKENS,
        ),
        *(
            row(
                f"P equal lines with {marker}",
                f"{marker} I will check the configuration file again.\n" * 20,
                True,
                theirs=theirs,
                why=why,
            )
            for marker, theirs, why in (
                ("-", None, ""),
                ("*", False, "a bullet makes no list of a line that is said twenty times"),
            )
        ),
        row(
            "P a heading in each period",
            "## Step\nI read the file again to be sure of its contents.\n" * 15,
            True,
            theirs=False,
            why="layout does not hide a loop that contains it",
        ),
        row(
            "P a numbered list in each period",
            "1. Read the file.\n2. Change the line.\nNow again from the start.\n" * 15,
            True,
            theirs=False,
            why="layout does not hide a loop that contains it",
        ),
    ],
)
def test_what_it_was_seen_to_do_with_texts(text: str, ours: bool, options: dict[str, Any]):
    assert chants(text) is ours


def test_p_a_fence_that_was_left_open_does_not_blind_the_next_turn():
    run = agent()
    play(run, ["```python\nprint('never closed')", "I will now look at the file again. " * 20])
    assert run.found


def test_p_thoughts_are_watched():
    """Nobody else looks at them (gemini-cli#4647, #16416)."""
    assert in_pieces(U * 10, 7, thinking=True)


def test_p_after_a_finding_new_text_is_no_second_one():
    """There the second strike came with the next text, whatever it said."""
    found = in_pieces(U * 5 + noise(5_000), 64)
    assert 1 <= len(found) <= 2
    assert found == in_pieces(U * 5, 64)
