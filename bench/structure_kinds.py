"""Loops that have structure, and good texts that look like them: the made set of `bench.structure`.

The kinds and the two wordings stand in `bench/texts`; the rules were tuned on the first wording and
have never been tuned on the second. In the unit of a loop `@` is a counter that runs. The kinds
below are computed.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from monitor.testing.loops import OPENINGS, Fields, Kind, Lists, read_kinds, text_of, written
from tests.detectors.numerals import NUMERALS

Make: TypeAlias = Callable[[random.Random, Lists], str]

TEXTS = Path(__file__).parent / "texts"
WORDINGS: Mapping[str, Lists] = json.loads((TEXTS / "wordings.json").read_text("utf-8"))
LOOPS = read_kinds(TEXTS / "structure_loops.jsonl")
HEALTHY = {"row": {"row": "{s}", "times": "2-5", "sep": " "}, "times": "2-8", "sep": "\n\n"}
"""The paragraphs before a loop, which say something new."""


def looping(loop: Kind, rng: random.Random, lists: Lists) -> tuple[str, int]:
    """Healthy text, then the loop; and where it begins."""
    one, two = rng.choice(lists["speakers"])
    unit = loop["unit"].format_map(Fields(rng, lists, one=one, two=two))
    before = written(HEALTHY, Fields(rng, lists)) + loop.get("opening", OPENINGS["text"])
    numeral, by = NUMERALS[loop.get("count", "decimal")], loop.get("by", 1)
    first = rng.randint(1, 40)
    numbers = range(first, first + by * rng.randint(*loop["rounds"]), by)
    return before + "".join(unit.replace("@", numeral(number)) for number in numbers), len(before)


def parallel_text(rng: random.Random, lists: Lists) -> str:
    code = rng.choice(("hi", "ar", "th", "zh", "ja", "bn", "fa"))
    fields = Fields(rng, lists)
    return "".join(f"{{s}}\n{{{code}}}: {{noun}}, {{noun}}, {{place}}.\n\n".format_map(fields) for _ in range(20))


def times_table(form: str, rng: random.Random, lists: Lists) -> str:
    ones, others = range(1, rng.randint(9, 12)), range(1, rng.randint(10, 13))
    return "".join("".join(form.format(a=a, b=b, c=a * b, sum=a + b) for b in others) + "\n" for a in ones)


def grid_of_products(rng: random.Random, lists: Lists) -> str:
    size = rng.randint(9, 15)
    head = "| x | " + " | ".join(map(str, range(1, size))) + " |\n" + "|---" * size + "|\n"
    return head + "".join(f"| {a} | " + " | ".join(str(a * b) for b in range(1, size)) + " |\n" for a in range(1, size))


def towers(rng: random.Random, lists: Lists) -> str:
    said: list[str] = []

    def move(disks: int, source: str, target: str, spare: str) -> None:
        if disks:
            move(disks - 1, source, spare, target)
            said.append(f"{len(said) + 1}. Move disk {disks} from rod {source} to rod {target}.")
            move(disks - 1, spare, target, source)

    move(rng.randint(5, 6), "A", "C", "B")
    return "\n".join(said)


def pairs(rng: random.Random, lists: Lists) -> str:
    return "\n".join(f"{one} + {other}" for one, other in itertools.combinations(sorted(set(lists["noun"]))[:14], 2))


def orders(rng: random.Random, lists: Lists) -> str:
    return "\n".join(" ".join(one) for one in itertools.permutations(rng.sample(lists["noun"], 4)))


def unit_matrix(rng: random.Random, lists: Lists) -> str:
    size = rng.randint(20, 30)
    return "\n".join(" ".join("1" if row == column else "0" for column in range(size)) for row in range(size))


QUIET: dict[str, Make] = {
    **{name: partial(text_of, kind) for name, kind in read_kinds(TEXTS / "structure_quiet.jsonl").items()},
    "parallel text": parallel_text,
    "times": partial(times_table, "{a} x {b} = {c}\n"),
    "sums": partial(times_table, "{a} + {b} = {sum}\n"),
    "times in words": partial(times_table, "{a} times {b} is {c}.\n"),
    "grid of products": grid_of_products,
    "towers": towers,
    "pairs": pairs,
    "orders": orders,
    "unit matrix": unit_matrix,
}
