"""Texts that the rules of text are tried with: loops with something new in every round, and texts
on the edge of each rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

from monitor.testing.loops import read_kinds, rounds_of
from tests.detectors.made import MADE
from tests.detectors.numerals import chinese as chinese_number
from tests.detectors.numerals import letters, roman

LOOPS = read_kinds(MADE / "rounds.jsonl")


def loop(kind: str, rounds: int) -> str:
    """The first `rounds` rounds of a loop."""
    return "".join(islice(rounds_of(LOOPS[kind], random.Random(2), {}), rounds))


def jug_steps(rounds: int) -> str:
    """Rounds of four numbered steps."""
    return loop("jug steps", 4 * rounds)


# --- texts on the edge of a rule

MOST_CHARS = 12_000
ALPHABETS = (
    "ab",
    "ab\u00e7",
    "abcdefg\u00fc",
    "a\u00e9",
    "ab\u6211\U0001f600",
    "abcdefghijklmnopqrstuvwxyz ",
    "ab1\n-",
    "a`\n#",
)


def some_text(rng: random.Random, alphabet: str, scale: int) -> str:
    """Noise, periods, periods with a defect, shared prefixes with varied ends, now and then a fence
    line.
    """
    parts: list[str] = []
    for _ in range(rng.randint(1, 5)):
        unit = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, int(1.9 * scale))))
        times = rng.randint(1, max(2, 16 * scale // len(unit)))
        kind = rng.random()
        if kind < 0.3:
            part = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 4 * scale)))
        elif kind < 0.65:
            part = unit * times
        elif kind < 0.8:
            part = "".join(
                unit + "".join(rng.choice(alphabet) for _ in range(rng.randint(0, scale // 3 + 1)))
                for _ in range(times)
            )
        else:
            part = unit * times
            defect = rng.randrange(len(part))
            part = part[:defect] + rng.choice(alphabet) + part[defect + 1 :]
        parts.append(part)
        if rng.random() < 0.1:
            parts.append(rng.choice(["\n```\n", "\n```py\n", "\n~~~\n", "\n- ", "\n"]))
    return "".join(parts)


def nearly_periodic(rng: random.Random) -> str:
    """Rounds of a few lines or one paragraph, with counters, changes and noise; fences and rows now
    and then.
    """
    words = ["alpha", "beta", "(x)", "12", "gamma", "delta.", "\u6211\u4eec", "=", "=>", "\U0001f600"]
    out: list[str] = []
    for _ in range(rng.randint(1, 4)):
        lines = [" ".join(rng.choices(words, k=rng.randint(3, 30))) for _ in range(rng.randint(1, 4))]
        end, counted = rng.choice(["\n", "\n\n", " ", "\n- "]), rng.random() < 0.5
        for turn in range(rng.randint(2, 60)):
            out += [f"{turn if counted else ''}{line if rng.random() > 0.1 else line[::-1]}{end}" for line in lines]
            if len(out) > 200:
                break
        if rng.random() < 0.3:
            out.append(rng.choice(["\n```\n", "\n~~~\n", "\n" + "-" * 300 + "\n"]))
    return "".join(out)[:MOST_CHARS]


def counting(rng: random.Random) -> str:
    """Rounds with counters, some of which skip, are disturbed or are several; fences now and
    then.
    """
    words = ["alpha", "beta", "(x)", "gamma", "delta.", "\u6211\u4eec", "=>", "\U0001f600", "12:", "v1.", "no"]
    out: list[str] = []
    for _ in range(rng.randint(1, 4)):
        lines = [
            "".join(f"{word} " for word in rng.choices(words, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 3))
        ]
        scripts: list[Callable[[int], str]] = [str, str, chinese_number, roman, letters]
        write, end = rng.choice(scripts), rng.choice([".\n", "\n", "\n\n", ". ", "\n- "])
        by, twice, slips = rng.choice([1, 1, 2, -1, 0]), rng.random() < 0.2, rng.choice([0, 0, 0.02, 0.2])
        first, many = rng.randint(80, 120), rng.randint(3, 70)
        for turn in range(many * len(lines)):
            number = write(max(first + by * turn + (rng.random() < slips), 1))
            out.append(f"{number}. {lines[turn % len(lines)]}{number if twice else ''}{end}")
        out.append(rng.choice(["", "", "\n```\n", "\n~~~\n", "\nSomething else.\n"]))
    return "".join(out)[:MOST_CHARS]


EDGES: dict[str, Callable[[random.Random], str]] = {
    "periods": lambda rng: some_text(rng, rng.choice(ALPHABETS), 60),
    "rounds": nearly_periodic,
    "counters": counting,
}
