"""Endless texts of many kinds, made from a seed: what a detector must end some time. The kinds are
those that users of inference servers and agents report: one token, one sentence, paragraphs,
closing tags, short phrases in any order, counters that advance.

Each is a source of rounds; one round is one repetition of what is said, with whatever changes in
it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import TypeAlias

from bench.benign_kinds import CITIES, KINDS, NAMES, NOUNS, prose, sentence

Rng: TypeAlias = random.Random
Rounds: TypeAlias = Callable[[Rng], Iterator[str]]


def _same(*units: str) -> Rounds:
    def rounds(rng: Rng) -> Iterator[str]:
        unit = rng.choice(units)
        while True:
            yield unit

    return rounds


def _made(make: Callable[[Rng], str]) -> Rounds:
    """One unit, made once."""

    def rounds(rng: Rng) -> Iterator[str]:
        unit = make(rng)
        while True:
            yield unit

    return rounds


def _counted(make: Callable[[Rng, int], str]) -> Rounds:
    """A round that knows its number and may differ."""

    def rounds(rng: Rng) -> Iterator[str]:
        for number in count(1):
            yield make(rng, number)

    return rounds


def sentences(amount: int) -> Callable[[Rng], str]:
    return lambda rng: " ".join(sentence(rng) for _ in range(amount)) + " "


def growing(rng: Rng) -> Iterator[str]:
    """Every round is the last one and a bit more."""
    said = rng.choice(NOUNS)
    while True:
        said += f" and {rng.choice(KINDS)} {rng.choice(NOUNS)}"
        yield f"{said}, "


def alternating(rng: Rng) -> Iterator[str]:
    one, other = sentence(rng), sentence(rng)
    while True:
        yield f"Wait, {one} So {other} "


def one_word_changes(rng: Rng) -> Iterator[str]:
    before, after = sentences(2)(rng), sentences(2)(rng)
    while True:
        yield f"{before}Perhaps the {rng.choice(KINDS)} one is the right one. {after}\n\n"


def drifting(rng: Rng) -> Iterator[str]:
    """A paragraph in which one word is replaced every third round."""
    words = (sentences(4)(rng)).split()
    for number in count():
        if number % 3 == 2:
            words[rng.randrange(len(words))] = rng.choice(NOUNS)
        yield " ".join(words) + "\n\n"


def short_phrases(rng: Rng) -> Iterator[str]:
    """Urging itself, in any order; a round is one phrase."""
    phrases = [
        "I'll do it.",
        "I'll implement it.",
        "I'll start.",
        "I'll begin coding.",
        "I'll write the code.",
        "Let's go.",
        "Now.",
        "OK.",
    ]
    while True:
        yield rng.choice(phrases) + " "


def short_lines(rng: Rng) -> Iterator[str]:
    phrases = ["Let's run.", "Let's execute.", "Let's call.", "Go.", "Do it.", "Output.", "(Now.)", "Done."]
    while True:
        yield rng.choice(phrases) + "\n\n"


def short_chinese(rng: Rng) -> Iterator[str]:
    phrases = ["好。", "执行。", "输出。", "做。", "（现在。）", "（真的输出。）", "行动。", "开始。"]
    while True:
        yield rng.choice(phrases) + "\n\n"


def waits(rng: Rng) -> Iterator[str]:
    """Reasoning that turns in a circle: a few remarks in any order."""
    remarks = [f"{start} {sentence(rng)}" for start in ("Wait,", "Actually,", "But", "Hmm,", "Alternatively,", "So")]
    while True:
        yield f"{rng.choice(remarks)} {rng.choice(remarks)}\n\n"


def wait_actually(rng: Rng) -> Iterator[str]:
    yield from _counted(
        lambda rng, n: (
            f"Wait, that is {'not ' if n % 2 else ''}right. Actually, let me check the {NOUNS[n % 3]} again. "
        )
    )(rng)


LOOPS: dict[str, Rounds] = {
    # one unit, exactly
    "sentence": _made(sentences(1)),
    "paragraph": _made(sentences(4)),
    "page": _made(sentences(12)),
    "word": _same(" court", " and", " the", " somehow", " \u8b1d"),
    "word on lines": _same("item\n", "ok\n", "the\n"),
    "character": _same("9", "a", "\u6211", "\u3042", "#", "@"),
    "exclamation": _same("!", "?"),
    "closing brackets": _same(")", "}", "]", "})"),
    "spaces": _same(" ", "\t", "\u3000"),
    "newlines": _same("\n", "\n\n", "\n \n", "  \n\n\n"),
    "dots on lines": _same(".\n\n", "...\n", "-\n"),
    "emoji": _same("\U0001f600", "\U0001f44d\U0001f3fd", "\u2764\ufe0f ", "\u2b50"),
    "zero width": _same("\u200b", "\u200d", "\u200b \u200b"),
    "replacement": _same("\ufffd", "\\u0000", "\x00"),
    "slashes": _same("////////nem", "\\\\n", "/a/b", "../"),
    "digits": _same("0123456789", "10", "142857 "),
    "lines": _made(lambda rng: sentence(rng) + "\n"),
    "blank lines between": _made(lambda rng: sentence(rng) + "\n\n"),
    "short line": _same("Let me try again.\n", "I am stuck.\n", "Done.\n", "Next step.\n"),
    "japanese": _same(
        "\u65e5\u672c\u306e\u653f\u6cbb\u306b\u304a\u3044\u3066\u91cd\u8981\u306a\u554f\u984c\u3067\u3059\u3002",
        "\u3082\u3046\u4e00\u5ea6\u78ba\u8a8d\u3057\u307e\u3059\u3002\n",
    ),
    "chinese": _same(
        "\u6211\u9700\u8981\u518d\u6b21\u68c0\u67e5\u914d\u7f6e\u6587\u4ef6\u3002",
        "\u7136\u540e\u91cd\u65b0\u8fd0\u884c\u7a0b\u5e8f\u3002\n\n",
    ),
    "korean": _same("\ub2e4\uc2dc \ud55c\ubc88 \ud655\uc778\ud574 \ubcf4\uaca0\uc2b5\ub2c8\ub2e4. "),
    "arabic": _same(
        "\u0633\u0623\u062a\u062d\u0642\u0642 \u0645\u0646 \u0627\u0644\u0645\u0644\u0641 \u0645\u0631\u0629 \u0623\u062e\u0631\u0649. "
    ),
    "thai": _same(
        "\u0e09\u0e31\u0e19\u0e08\u0e30\u0e15\u0e23\u0e27\u0e08\u0e2a\u0e2d\u0e1a\u0e44\u0e1f\u0e25\u0e4c\u0e2d\u0e35\u0e01\u0e04\u0e23\u0e31\u0e49\u0e07 "
    ),
    "hindi": _same(
        "\u092e\u0948\u0902 \u092b\u093f\u0930 \u0938\u0947 \u091c\u093e\u0901\u091a \u0915\u0930\u0942\u0901\u0917\u093e\u0964 "
    ),
    "hebrew": _same(
        "\u05d0\u05e0\u05d9 \u05d0\u05d1\u05d3\u05d5\u05e7 \u05e9\u05d5\u05d1 \u05d0\u05ea \u05d4\u05e7\u05d5\u05d1\u05e5. "
    ),
    # layout
    "empty bullets": _same("- \n", "* \n", "- item\n", "1. \n"),
    "bullets": _made(lambda rng: f"- {sentence(rng)}\n"),
    "headings": _same("## Next step\n\n", "### Conclusion\n\n", "# Answer\n"),
    "heading and text": _made(lambda rng: f"## {rng.choice(NOUNS).title()}\n\n{sentence(rng)}\n\n"),
    "table row": _same("| 1 | yes | no |\n", "| - | - | - |\n", "|  |  |  |\n"),
    "quotes": _made(lambda rng: f"> {sentence(rng)}\n"),
    "closing tags": _same("</invoke>\n</parameter>\n", "</div>\n", "</div>\n</div>\n", "</think>\n"),
    "tool tags": _same('<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>\n'),
    "fences": _same("```\n```\n", "```python\n```\n\n"),
    "fenced block": _made(lambda rng: f"{sentence(rng)}\n\n```python\nprint('{rng.choice(NOUNS)}')\n```\n\n"),
    "dialogue": _made(lambda rng: f"User: {sentence(rng)}\nAssistant: {sentence(rng)}\n\n"),
    "end tokens": _same("<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "[INST] [/INST]\n"),
    # code and data
    "code line": _same("x = x + 1\n", "    pass\n", "i += 1;\n", "import os\n", "    return None\n"),
    "code block": _made(lambda rng: f"    if {rng.choice(NOUNS)} is None:\n        return {rng.choice(NOUNS)}\n"),
    "json objects": _made(lambda rng: f'{{"name": "{rng.choice(NAMES)}", "city": "{rng.choice(CITIES)}"}}, '),
    "json lines": _made(lambda rng: f'  {{"name": "{rng.choice(NAMES)}", "city": "{rng.choice(CITIES)}"}},\n'),
    "json keys": _made(lambda rng: f'"{rng.choice(NOUNS)}": {{ "{rng.choice(NOUNS)}": '),
    "zeros": _same("0, ", "0.0, ", "[0, 0, 0],\n", "AAAA", "\\x00"),
    "path": _made(lambda rng: f"node_modules/{rng.choice(NOUNS)}/"),
    # with something new in every round
    "two in turn": alternating,
    "growing list": growing,
    "one word changes": one_word_changes,
    "drifting paragraph": drifting,
    "counter": _counted(lambda rng, n: f"Attempt {n}: let me read the configuration again and see what happens now. "),
    "counter on lines": _counted(
        lambda rng, n: f"Step {n}: I will look at the whole configuration once more, since nothing has changed.\n"
    ),
    "counted list": _counted(
        lambda rng, n: f"{n}. Pour the water from the large jug into the small jug until it is full.\n"
    ),
    "counted paragraphs": _counted(
        lambda rng, n: (
            f"**Attempt {n}**\n\nLet me try one more time. First I read the file and write down which keys it has, then I compare them with what the "
            "parser knows, and add what is missing.\n\nThe test still fails, and I do not see why.\n\n"
        )
    ),
    "plan restated": _counted(
        lambda rng, n: (
            f"{rng.choice(['OK, so the plan is:', 'Let me restate the plan.', 'So, once more:'])}\n\n1. Read the configuration file and list its keys\n"
            "2. Compare the keys with those that the parser knows\n3. Add the missing ones to the parser\n4. Run the tests and look at the first failure\n\n"
            f"{rng.choice(['Now I begin.', 'Let me start with the first step.', 'But wait, is that the right order?'])}\n\n"
        )
    ),
    "reworded": _counted(
        lambda rng, n: (
            f"{rng.choice(['Wait', 'Hmm', 'But wait'])}, the man has to take the sheep across first, because the wolf would eat it otherwise. "
            f"{rng.choice(['So', 'Then', 'Therefore'])} he rows the sheep over and comes back alone, which leaves the wolf and the cabbage. "
        )
    ),
    "waits": waits,
    "wait, actually": wait_actually,
    "short phrases": short_phrases,
    "short lines": short_lines,
    "short Chinese": short_chinese,
    "litany without end": _counted(
        lambda rng, n: (
            f"nutritional yeast flakes and powder combined with some {rng.choice(KINDS)} {rng.choice(NOUNS)}, "
        )
    ),
    "names in a sentence": _counted(
        lambda rng, n: f"{rng.choice(NAMES)} went to {rng.choice(CITIES)} and never came back from there. "
    ),
    "word salad": _counted(
        lambda rng, n: (
            f"{rng.choice(('and so', 'and then', 'and also', 'so that', 'as well as'))} the {rng.choice(('model', 'data', 'system', 'user'))} "
        )
    ),
}

DATA: tuple[str, ...] = (
    *(
        "sentence",
        "paragraph",
        "word",
        "character",
        "spaces",
        "newlines",
        "lines",
        "short line",
        "closing tags",
        "code line",
        "code block",
    ),
    *(
        "json objects",
        "json lines",
        "json keys",
        "zeros",
        "path",
        "closing brackets",
        "replacement",
        "slashes",
        "empty bullets",
        "dialogue",
    ),
)
"""Kinds that must be seen in the arguments of a call as well, where only exact repetition
counts.
"""
OPENINGS = {
    "text": "\n\n",
    "line": " ",
    "fence": "\n\nHere is the file:\n\n```python\nimport os\n\n",
    "string": '\n\n{"answer": "',
    "list": "\n\n- The first point.\n- The second point: ",
    "heading": "\n\n## The answer\n",
    "table": "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
}
"""Where a loop begins."""


def healthy(rng: Rng) -> str:
    """What comes before a loop: 200 to 3000 characters."""
    return prose(rng, rng.randint(200, 2600))


def looping(kind: str, rng: Rng, *, chars: int, opening: str = "\n\n") -> tuple[str, list[int]]:
    """Healthy text, then the loop for `chars`; and where its rounds end."""
    text, ends = healthy(rng) + opening, list[int]()
    parts = [text]
    at = len(text)
    for piece in islice(LOOPS[kind](rng), chars):
        parts.append(piece)
        at += len(piece)
        ends.append(at)
        if at - len(text) >= chars:
            break
    return "".join(parts), ends
