"""Splits texts into words, numbers and names, the same way for calls and for results.

Failure answered: a pattern that tries each form of a number at each word takes most of the time of
a scan. Most texts are ASCII, with a few other signs. They are split at their signs in one go. Only
where a word begins with a digit are the forms of numbers tried. Any other text is read by the
pattern alone, and both give the same.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from itertools import filterfalse

from monitor._util.hashing import identity

HEAD_CHARS, TAIL_CHARS = 4_000, 1_000
"""How much of a long result is read word by word. The part between them counts as one word."""
WORD_CHARS = 200
"""A longer word is read as several."""

_UNIT = r"(?:msec|ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|us|ns|µs)"
_CLOCK_BEHIND = (  # the first digit
    r"(?:\d{3}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?z?)?"
    r"|\d?[/.]\d\d?[/.]\d{4}(?!\d)"  # 5/12/2026
    r"|\d? [^\W\d_]{3,9} \d{4} \d\d:\d\d(?::\d\d)?|\d? \d\d:\d\d:\d\d"  # 12 May 2026 10:11, May 12 10:11:12
    r"|\d?:\d\d(?::\d\d)?(?:\.\d{1,9})?|\d{0,3}[dhm]\d{1,2}[hms](?![^\W_]))"  # 10:11:12.5, 5m12s
)
_NUMBER_BEHIND = r"\d{0,39}(?:[.,]\d{1,40}){0,6}"
CLOCK = rf"\d{_CLOCK_BEHIND}"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NUMBER = rf"\d{_NUMBER_BEHIND}"
_NUMBER_ENDS = rf"(?:\s?{_UNIT}\b|(?![^\W_]))"
_TOKEN = re.compile(
    rf"[g-z][^\W_]{{0,199}}|(?=[\da-f])(?:{UUID}|{CLOCK}|{NUMBER}{_NUMBER_ENDS})|[^\W_]{{1,{WORD_CHARS}}}"
)
"""Matches the tokens of a text in lower case: matching with `re.IGNORECASE` takes longer. No other
form begins with a letter behind `f`, so a word that begins with one is taken first.
"""
_DIGIT = re.compile(r"\d")


def _in_ascii(pattern: str) -> str:
    """`pattern`, for texts whose letters and digits are ASCII in lower case."""
    for form, plain in ((r"[^\W\d_]", "[a-z]"), (r"[^\W_]", "[0-9a-z]"), (r"\d", "[0-9]")):
        pattern = pattern.replace(form, plain)
    return pattern


_NUMERAL = re.compile(
    _in_ascii(rf"(\d(?<![^\W_].)(?:{_CLOCK_BEHIND}|{_NUMBER_BEHIND}{_NUMBER_ENDS}|[^\W_]{{0,199}}))([^\W_]?)")
)
"""A token of ASCII that begins with a digit, and the letter or digit behind it."""
_IN_UUID = re.compile(r"-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-")
_UNSPACED = "\u2e80-\U0003ffff"
"""Scripts without spaces between words: a character is read as a word."""
_WORD = rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]{{1,{WORD_CHARS}}}"
"""Compiled where it is needed first, which takes 2 ms: a hook is waited for."""
_ITEM = re.compile(r"(?<!\w)\w{1,80}(?:[-./:@]\w{1,80}){1,20}")
"""A path, a host, an address, a version: words that are one name together."""
DECIMAL = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
IS_CLOCK = re.compile(CLOCK)
IS_NUMBER = re.compile(NUMBER)
IS_DURATION = re.compile(rf"({NUMBER})\s?{_UNIT}")

_ASCII = bytes(range(128))
_LOWER = bytes.maketrans(_ASCII + bytes(range(128, 256)), _ASCII.lower() + b"\x7f" * 128)
"""A sign stands for each byte of a sign beyond ASCII: no word, no digit, and no space."""
_ALPHANUMERIC = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SPACED = bytes(at if at in _ALPHANUMERIC else 32 for at in range(256))
"""For words: a space in place of each sign."""
_SPACED_ITEMS = bytes(at if at in _ALPHANUMERIC + b"_-./:@" else 32 for at in range(256))


@lru_cache(maxsize=512)
def _is_sign(char: str) -> bool:
    """Whether the character is neither letter, digit nor space, in lower case either, and belongs
    to no script without spaces.
    """
    return char < "\u2e80" and char.casefold() == char and not (char.isalnum() or char.isspace())


@lru_cache(maxsize=4)
def _plain(text: str) -> str | None:
    """`text` in lower case, in ASCII, with other signs in place of those beyond ASCII. `None`: it
    has letters, digits or spaces beyond ASCII.
    """
    if text.isascii():
        return text.lower()
    data = text.encode("utf-8", "surrogatepass")
    beyond = set(data.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    return data.translate(_LOWER).decode("ascii") if all(map(_is_sign, beyond)) else None


def _runs(plain: str, most: int = sys.maxsize) -> list[str] | None:
    """The first `most` runs of letters and digits. `None`: one of them is read as several words."""
    runs = plain.encode("ascii").translate(_SPACED).decode("ascii").split(None, most)
    del runs[most:]
    return None if len(plain) > WORD_CHARS and max(map(len, runs), default=0) > WORD_CHARS else runs


def tokens(text: str) -> tuple[list[str], list[str]]:
    """The words of a text in lower case, and apart from them its numbers, clocks and ids, which are
    the tokens with a digit. Both are in their order.
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        middle = identity(text[HEAD_CHARS:-TAIL_CHARS]).translate(LETTERS)
        text = f"{text[:HEAD_CHARS]} {middle} {text[-TAIL_CHARS:]}"
    plain = _plain(text)
    if plain is not None and _IN_UUID.search(plain) is None:
        parts = _NUMERAL.split(plain)
        runs = None if any(parts[2::3]) else _runs(" 0 ".join(parts[::3]))
        if runs is not None:
            words = [*filter(str.isalpha, runs)]
            if len(words) == len(runs):
                return words, []
            numerals = iter(parts[1::3])
            return words, [next(numerals) if run == "0" else run for run in runs if not run.isalpha()]
    told = _TOKEN.findall(text.casefold())
    slots = {token for token in told if not token.isalpha() and _DIGIT.search(token)}
    return [token for token in told if token not in slots], [token for token in told if token in slots]


LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""A hash as a word: its digits would make it an id, which moves by itself."""


def first_words(text: str, most: int = sys.maxsize) -> list[str]:
    """The first `most` words and numbers of a text, in lower case."""
    plain = _plain(text)
    runs = _runs(plain, most) if plain is not None else None
    return re.findall(_WORD, text.casefold())[:most] if runs is None else runs


def unspaced_in(text: str) -> int:
    """The number of characters of scripts without spaces."""
    return 0 if text.isascii() else len(re.findall(f"[{_UNSPACED}]", text))


def items_of(text: str) -> list[str]:
    """The names in a text that have several words, each once: paths, hosts, addresses. A plain
    number is none.
    """
    plain = _plain(text)
    if plain is None:
        read = text.casefold()
    else:
        pieces = plain.encode("ascii").translate(_SPACED_ITEMS).decode("ascii").split()
        read = " ".join(filterfalse(str.isalnum, pieces))
    return [
        item
        for item in dict.fromkeys(_ITEM.findall(read))
        if not item[0].isdecimal() or not (DECIMAL.fullmatch(item) or IS_CLOCK.fullmatch(item))
    ]
