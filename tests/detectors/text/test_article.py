"""The chant rule of the article on Gemini CLI: `ContentRepetition.article()` is that rule to the
number, and the default doubts where it is sure.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, ToolResult
from monitor.detectors import ContentRepetition
from monitor.judges import LoopJudge
from monitor.judges.judge import RunJudges
from monitor.outcome import Turn
from monitor.testing import ScriptedModel
from monitor.verdicts import Detection

WINDOW, TIMES, MEAN = 50, 10, 75
TEXTS = 10_000
WORDS = [*"aeiou", "the", "parser", "keeps", "two", "open", "files", "and", "then", "I", "will", "check", "again"]
ALPHABETS = ["a", "ab", "abcdefgh \n", "0123456789, ", "|- \n", "#*>`\n x", "\u6211\u5c06 \U0001f600e\u0301"]


def article(text: str) -> list[tuple[int, list[int]]]:
    """The rule as the article has it, without any code of the package: where each finding ends, and
    its ten places. A finding clears what was seen.
    """
    found: list[tuple[int, list[int]]] = []
    places: defaultdict[str, list[int]] = defaultdict(list)
    start = 0
    while start + WINDOW <= len(text):
        here = places[text[start : start + WINDOW]]
        here.append(start)
        last = here[-TIMES:]
        if len(last) == TIMES and (last[-1] - last[0]) / (TIMES - 1) <= MEAN:
            found.append((start + WINDOW, last))
            places.clear()
            start += WINDOW
        else:
            start += 1
    return found


def letters(rng: random.Random, chars: int) -> str:
    alphabet = rng.choice(
        ["a", "ab", "abcdefgh \n", "0123456789, ", "|- \n", "#*>`\n x", "\u6211\u5c06 \U0001f600e\u0301"]
    )
    return "".join(rng.choices(alphabet, k=chars))


def prose(rng: random.Random, chars: int) -> str:
    words = " ".join(rng.choices(WORDS, k=chars // 2 + 1))
    return words[:chars]


def piece(rng: random.Random, chars: int) -> str:
    return rng.choice([letters, prose])(rng, chars)


def spaced(rng: random.Random) -> str:
    """A window nine to twelve times, nearly as far apart as the rule allows, with anything between
    them.
    """
    window, times = piece(rng, rng.choice([49, 50, 50, 50, 51, 60])), rng.randint(9, 12)
    span = (TIMES - 1) * MEAN + rng.randint(-2, 2)
    room = max(span - (TIMES - 1) * len(window), 0)
    marks = sorted(rng.randint(0, room) for _ in range(TIMES - 2))
    gaps = [after - before for before, after in zip([0, *marks], [*marks, room], strict=True)]
    gaps += [rng.randint(0, 60) for _ in range(times - len(gaps))]
    return "".join(window + piece(rng, gap) for gap in gaps[:times])


def unit_over_and_over(rng: random.Random) -> str:
    """Anything from one letter to a sentence, up to a little longer than the rule allows."""
    unit = piece(rng, rng.choice([1, 2, 3, rng.randint(4, 74), 75, 75, 76, rng.randint(77, 90)]))
    return unit * rng.randint(8, 13)


def lines(rng: random.Random) -> str:
    """Rows in which something changes: a list, a table, a log, code."""
    form = rng.choice(
        [
            "- The configuration of the following component: {}\n",
            "| The configuration of the component of the system | {} |\n",
            "2024-05-01 12:00:00 INFO worker finished the request {}\n",
            "    self.assertEqual(parse_the_next_number_of_all({}), 7)\n",
            '{{"type": "message", "role": "user", "state": "ok", "id": {}}}\n',
            "and now I will check the configuration file again, {}, ",
        ]
    )
    return "".join(form.format(rng.randint(1, 10 ** rng.randint(1, 8))) for _ in range(rng.randint(8, 14)))


MADE: tuple[Callable[[random.Random], str], ...] = (spaced, spaced, unit_over_and_over, lines)


def made(rng: random.Random) -> str:
    """A text of loops and nearly loops, some in a fence."""
    text = piece(rng, rng.randint(0, 90)) + rng.choice(["", "", "```\n"])
    return text + rng.choice(MADE)(rng) + rng.choice(["", "\n```\n", piece(rng, 40), rng.choice(MADE)(rng)])


def cut_anywhere(rng: random.Random, text: str) -> list[str]:
    if rng.random() < 0.1:
        return list(text)
    places = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 60)))
    return [text[one:other] for one, other in zip([0, *places], [*places, len(text)], strict=True)]


def watched(detector: ContentRepetition, deltas: list[str]) -> list[Detection]:
    return [detection for delta in deltas for detection in detector.feed(delta)]


@pytest.mark.feature("GL-02", "GL-09")
def test_the_preset_fires_exactly_where_the_article_does():
    fired = 0
    for seed in range(TEXTS):
        rng = random.Random(seed)
        text = made(rng)
        expected = article(text)
        found = watched(ContentRepetition.article(), cut_anywhere(rng, text))
        got = [(one.offset, list(one.evidence.offsets)) for one in found]
        assert got == expected, f"seed {seed}: {got[:1]} is not {expected[:1]} in {text!r}"
        assert {(one.level, one.kind) for one in found} <= {("loop", "chant")}
        fired += bool(expected)
    assert TEXTS // 4 < fired < 3 * TEXTS // 4, f"{fired} of {TEXTS} texts say little"


@pytest.mark.feature("GL-09")
def test_a_finding_of_the_preset_comes_with_its_last_character():
    for seed in range(200):
        text = made(random.Random(seed))
        detector = ContentRepetition.article()
        came = [at for at, letter in enumerate(text, 1) for _ in detector.feed(letter)]
        assert came == [end for end, _ in article(text)]


@pytest.mark.feature("GL-09")
def test_the_preset_goes_on_from_a_snapshot():
    for seed in range(200):
        rng = random.Random(seed)
        text = made(rng)
        middle = rng.randint(0, len(text))
        before, after = ContentRepetition.article(), ContentRepetition.article()
        found = watched(before, cut_anywhere(rng, text[:middle]))
        after.restore(json.loads(json.dumps(before.snapshot())))
        found += watched(after, cut_anywhere(rng, text[middle:]))
        assert [one.offset for one in found] == [end for end, _ in article(text)]


def other_words_between(rng: random.Random, times: int) -> str:
    """A sentence of 50 characters or a few more, with a few other words behind it each time."""
    said = ("I am looking at " + prose(rng, 60))[: rng.randint(50, 56)].strip().ljust(50, "s")
    between = [f" {letters_only(rng)} {letters_only(rng)}, " for _ in range(times)]
    return "".join(said + one for one in between)


def letters_only(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 8)))


@pytest.mark.feature("GL-09")
def test_what_the_article_calls_a_loop_of_words_is_a_suspicion_at_the_same_character_by_default():
    for seed in range(200):
        text = other_words_between(random.Random(seed), 12)
        (sure, *_), (doubt, *_) = (watched(one, [text]) for one in (ContentRepetition.article(), ContentRepetition()))
        assert sure.level == "loop"
        assert (doubt.level, doubt.kind, doubt.offset, doubt.evidence) == (
            "suspect",
            "chant",
            sure.offset,
            sure.evidence,
        )


@pytest.mark.feature("GL-09")
def test_for_that_suspicion_the_judge_is_asked_sooner():
    judges = RunJudges([LoopJudge(ScriptedModel(), share=None)])
    for turn in range(1, 6):
        judges.add_turn(Turn(number=turn, tool_calls=(ToolCall(f"c{turn}", "look", {}),)))
        judges.add_result(ToolResult(f"c{turn}", "look", "nothing"))
    assert judges.due(6) == []
    (doubt,) = ContentRepetition().feed(other_words_between(random.Random(1), 12))
    judges.found(doubt)
    assert judges.doubt == "suspect"
    assert len(judges.due(6)) == 1


@pytest.mark.feature("GL-09")
def test_other_options_go_with_the_preset():
    chant = "I will now check the configuration file again to be sure. " * 12
    only_thinking = ContentRepetition.article(channels=("reasoning",), name="article")
    assert not only_thinking.observe(TextDelta(chant))
    assert not only_thinking.observe(ToolCallDelta("a", "write", chant))
    (finding,) = only_thinking.observe(ReasoningDelta(chant))
    assert (finding.detector, finding.channel, finding.level) == ("article", "reasoning", "loop")
