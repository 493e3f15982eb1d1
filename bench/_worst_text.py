"""Texts made to be slow, and a search for slower ones.

A text is written by a cycle: a few pieces, written one after the other, again and again. A piece is
the same each time, or new, or new and of uneven length, or a counter; it has a length and an
alphabet. Those made by hand stand for the ideas ("breaks off just before a rule fires"). The search
begins with them and with random ones, and climbs: it changes one or two things at a time and keeps
what costs more per character.
The seed is fixed, the clock is not, so that two searches need not end with the same text; what they
found is kept in `FOUND`.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from monitor.core.detector_bank import DetectorBank
from monitor.detectors import default_detectors
from monitor.testing import cut

ALPHABETS: dict[str, str] = {
    "letters": string.ascii_lowercase,
    "words": "abcdefghijklmno     ",
    "two": "ab",
    "one": "a",
    "accent": "\u00e9",
    "bar": "|",
    "blank": " ",
    "digits": string.digits,
    "signs": ".,;:!?-_=*()[]{}<>|/\\\"'",
    "ticks": "`",
    "chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 400))),
    "hindi": "".join(map(chr, range(0x905, 0x93A))) + " ",
    "mixed": "a\u0416\u4e2d\u00e9\u200c\u093e",
    "smileys": "".join(map(chr, range(0x1F600, 0x1F640))),
}
LINES = ("\n", "\n- ", "\n```\n", "\n\n", "\n# ", "\n~~~\n", "\n|", "```", "~~~")
Kind: TypeAlias = Literal["same", "new", "uneven", "count", "line"]
MOST_PIECES = 24
KINDS: tuple[Kind, ...] = ("same", "new", "uneven", "count", "line")


@dataclass(slots=True, frozen=True)
class Piece:
    """A part of a cycle. `line`: one of `LINES`, by its number in `chars`."""

    kind: Kind
    chars: int = 0
    alphabet: str = "letters"
    every: int = 1
    """Written in every so many cycles."""


Cycle: TypeAlias = tuple[Piece, ...]


def same(chars: int, alphabet: str = "letters", every: int = 1) -> Piece:
    """Equal text each time."""
    return Piece("same", chars, alphabet, every)


def new(chars: int, alphabet: str = "letters", every: int = 1) -> Piece:
    """Other text each time."""
    return Piece("new", chars, alphabet, every)


def uneven(chars: int, alphabet: str = "letters", every: int = 1) -> Piece:
    """Other text each time, of half the length to one and a half."""
    return Piece("uneven", chars, alphabet, every)


def line(what: str, every: int = 1) -> Piece:
    """The end of a line, and how the next begins."""
    return Piece("line", LINES.index(what), every=every)


COUNT = Piece("count")
HAND_MADE: dict[str, Cycle] = {
    "period 251, a defect in every one": (same(249), new(2)),
    "period 77, a defect in every ninth": (same(77), new(77, every=9)),
    "49 common characters, 26 random": (same(49), new(26)),
    "60 common characters, 16 random": (same(60), new(16)),
    "100 common characters, 176 random": (same(100), new(176)),
    "240 common characters, 10 random": (same(240), new(10)),
    "240 common, 10 random, no prose": (same(120, "signs"), same(100), same(20, "signs"), new(10, "digits")),
    "six texts between equal windows": (same(56), new(190)),
    "the same window 251 apart": (same(50), new(201)),
    "random of two letters": (new(100, "two"),),
    "periods 77 and 78 in turn": (same(77), same(1, every=2)),
    "periods 1 and 100 in turn": (same(400, "one"), same(100), same(100)),
    "one letter": (same(100, "one"),),
    "one letter, a defect every 150": (same(150, "one"), new(1)),
    "blanks": (same(100, "blank"),),
    "blanks, a word every 630": (same(630, "blank"), new(5)),
    "equal lines in a fence": (line("\n```\n"), *((same(49), line("\n")) * 11)),
    "equal lines in a fence that stays open": (line("\n```\n", 10_000), same(70, "words"), new(2), line("\n")),
    "short lines": (same(1), line("\n")),
    "equal lines, a bullet in every ninth": (same(49), line("\n"), line("\n- ", 9)),
    "lines with a counter": (same(60, "words"), COUNT, line("\n")),
    "rows with a counter": (line("\n- "), same(60, "words"), COUNT),
    "runs just too short": (*((same(3),) * 84), new(8)),
    "a unit that holds runs": (same(90, "one"), same(90), new(3, every=4)),
    "prose that was there, and other words": (same(1100, "words"), new(60, "words")),
    "Chinese that was there, and other words": (same(1100, "chinese"), new(60, "chinese")),
    "Chinese lines, a character new": (same(150, "chinese"), new(1, "chinese"), line("\n")),
    "fence markers only": (same(3, "ticks"),),
    "tildes only": (line("~~~"),),
    "fences in turn": (line("\n```\n"), new(20), line("\n~~~\n")),
    "long lines, then equal ones": (new(700, "words"), *((line("\n"), same(50)) * 9)),
}
"""Near-periods that break just before a rule fires, periods in turn, layout that switches, windows
at distances that never satisfy.
"""

FOUND: dict[str, Cycle] = {
    "found: ticks, a few signs, a word": (new(3, "signs", 2), same(45, "ticks"), new(4, "words", 34), same(4, "words")),
    "found: runs of a and of ticks, smileys": (
        *(new(1, "smileys"), same(16, "one"), same(17, "smileys", 6), same(16, "one")),
        *(new(49, "ticks"), same(13, "one"), same(13, "one")),
    ),
    "found: runs and a counter": (same(51, "ticks"), same(13, "digits"), same(51, "two"), same(51, "smileys"), COUNT),
    "found: Chinese lines, blanks in every ninth": (
        *(same(150, "chinese"), new(1, "chinese"), new(1, "chinese", 40)),
        *(same(5, "smileys"), same(4, "blank", 9), line("\n"), line("\n- ")),
    ),
    "found: runs of a, signs, digits": (
        *(same(100), same(25, "one"), same(25, "one"), same(40, "signs")),
        *(new(2, "two", 18), new(17, "digits")),
    ),
    "found: runs of a and of ticks, empty lines": (
        *(
            new(1, "smileys"),
            same(12, "one"),
            same(30, "digits", 12),
            same(20, "one"),
            new(33, "ticks"),
            same(13, "one"),
        ),
        *((line("\n\n"),) * 5),
        same(14, "one"),
    ),
    "found: runs of uneven length": (uneven(12, "accent"), uneven(40, "bar"), uneven(50, "one")),
    "found: runs of uneven length, a letter between": (uneven(50, "one"), new(1)),
    "found: scripts in one word, ten letters": (same(840, "mixed"), new(10)),
    "found: items, a fifth of each new": (line("\n- "), same(380, "words"), new(79, "words"), same(11, "hindi")),
}
"""What searches have found, when they cost 3 to 15 us per character; the scanners were changed for
each.
"""


def written(cycle: Cycle, chars: int, seed: int = 1) -> str:
    """`chars` characters of it (fewer if it hardly writes any)."""
    rng = random.Random(seed)
    fixed = [drawn(rng, piece) for piece in cycle]
    parts: list[str] = []
    size = 0
    for turn in range(chars):
        for piece, text in zip(cycle, fixed, strict=True):
            if turn % piece.every == 0:
                fresh = piece.kind in {"new", "uneven"}
                parts.append(drawn(rng, piece) if fresh else str(turn) if piece.kind == "count" else text)
                size += len(parts[-1])
        if size >= chars:
            break
    return "".join(parts)[:chars]


def drawn(rng: random.Random, piece: Piece) -> str:
    """Its text, for once."""
    if piece.kind == "line":
        return LINES[piece.chars % len(LINES)]
    chars = rng.randint(piece.chars // 2, piece.chars * 3 // 2) if piece.kind == "uneven" else piece.chars
    return "".join(rng.choices(ALPHABETS[piece.alphabet], k=chars))


# What it costs


def us_per_char(text: str, delta: int, rounds: int = 2) -> float:
    """Time of all default detectors, fed as a guard feeds them."""
    deltas = cut(text, delta)
    return min(once(deltas) for _ in range(rounds)) / 1000 / max(len(text), 1)


def once(deltas: Sequence[str]) -> float:
    """Nanoseconds of this thread, so that what else runs on the machine counts less."""
    feed = DetectorBank(default_detectors()).text
    start = time.thread_time_ns()
    for delta in deltas:
        feed(delta)
    return time.thread_time_ns() - start


# The search


def random_piece(rng: random.Random) -> Piece:
    """Any piece; lengths of all sizes are as likely."""
    kind = rng.choices(KINDS, (5, 3, 2, 1, 2))[0]
    chars = rng.randrange(len(LINES)) if kind == "line" else int(2 ** rng.uniform(0, 10.5))
    return Piece(kind, chars, rng.choice(list(ALPHABETS)), 1 if rng.random() < 0.7 else rng.randint(2, 40))


def changed(rng: random.Random, cycle: Cycle) -> Cycle:
    """One or two things other than before."""
    pieces = list(cycle)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(pieces))
        pieces[at : at + 1] = mutants(rng, pieces[at])
        pieces = pieces[:MOST_PIECES] or [random_piece(rng)]
    return tuple(pieces)


def mutants(rng: random.Random, piece: Piece) -> list[Piece]:
    """What stands in the piece's place: a variant of it, another, two, or none."""
    match rng.randrange(8):
        case 0:
            return [replace(piece, chars=max(0, piece.chars + rng.choice((-20, -7, -3, -1, 1, 3, 7, 20))))]
        case 1:
            return [replace(piece, chars=int(piece.chars * 2 ** rng.uniform(-1, 1)))]
        case 2:
            return [replace(piece, alphabet=rng.choice(list(ALPHABETS)))]
        case 3:
            return [replace(piece, every=1 if rng.random() < 0.5 else rng.randint(2, 40))]
        case 4:
            return [random_piece(rng)]
        case 5:
            return [piece, random_piece(rng)]
        case 6:
            return [piece, piece]
        case _:
            return []


def search(seconds: float, seed: int, chars: int = 12_000, delta: int = 64) -> tuple[float, Cycle]:
    """The costliest cycle found, with its cost in us per character. Climbs from the eight costliest
    beginnings, the best the oftenest.
    """
    rng = random.Random(seed)
    until = time.monotonic() + seconds
    starts = [
        *HAND_MADE.values(),
        *FOUND.values(),
        *(tuple(random_piece(rng) for _ in range(rng.randint(1, 5))) for _ in range(40)),
    ]
    best = sorted(((us_per_char(written(cycle, chars), delta, 1), cycle) for cycle in starts), key=lambda one: -one[0])[
        :8
    ]
    while time.monotonic() < until:
        at = min(int(rng.expovariate(0.5)), len(best) - 1)
        cost, cycle = best[at]
        for _ in range(12):
            other = changed(rng, cycle)
            text = written(other, chars)
            if us_per_char(text, delta, 1) > cost and (higher := us_per_char(text, delta)) > 1.02 * cost:
                cost, cycle = higher, other
        best[at] = (cost, cycle)
        best.sort(key=lambda one: -one[0])
    return best[0]


def described(cycle: Cycle) -> str:
    """In one line, for the table and the record."""
    return " + ".join(
        (
            repr(LINES[piece.chars % len(LINES)])
            if piece.kind == "line"
            else f"{piece.kind} {piece.chars} {piece.alphabet}"
        )
        + (f" (every {piece.every})" if piece.every > 1 else "")
        for piece in cycle
    )
