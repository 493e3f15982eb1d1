from __future__ import annotations

import re
from random import Random

from monitor.detectors.calls.novelty import words
from monitor.detectors.calls.novelty.words import first_words, items_of, tokens

PIECES = (
    *("grep", "feed", "a1b2", "zeta9", "x" * 201, "ab1" * 70, "12", "0", "3.5", "1,000", "5 ms", "12 sec", "5\x1cms"),
    *(
        "\u0663\u0664",
        "\u00e9",
        "na\u00efve",
        "\u6f22\u5b57",
        "\u00bd",
        "\u2460",
        "\u24b6",
        "\U0001f600",
        "\ud800",
        "Zeta",
        "\u0130",
    ),
    *("10:11:12.5", "2026-05-12t10:11:12z", "12 may 2026 10:11", "5m12s", "abcdef12-1234-1234-1234-0123456789ab"),
    *("10:11", "7/8/2026", "9" * 45, "src/a.py", "v1.2.3", "a@b.org", "\u2192", "\u2502", "\u2026", "\u00a0", "\u2028"),
    *("-", "_", "/", " ", "  ", "\n", ".", ":", "%", "ms", "x"),
)


def texts(times: int, pieces: int) -> list[str]:
    chosen = Random(7)
    plain = [piece for piece in PIECES if piece.isascii()]  # with one letter beyond ASCII, the pattern alone reads
    return ["".join(chosen.choices(plain if at % 2 else PIECES, k=pieces)) for at in range(times)]


def test_words_and_numbers_are_read_as_if_each_form_was_tried_in_turn():
    form = re.compile(
        rf"{words.UUID}|{words.CLOCK}|{words.NUMBER}(?:\s?{words._UNIT}\b|(?![^\W_]))|[^\W_]{{1,{words.WORD_CHARS}}}"
    )
    for text in texts(6_000, 9):
        told = form.findall(text.casefold())
        slots = [one for one in told if not one.isalpha() and re.search(r"\d", one)]
        assert tokens(text) == ([one for one in told if one not in slots], slots), text


def test_the_first_words_are_those_of_the_pattern():
    for text in texts(3_000, 9):
        for most in (0, 3, 1_000):
            assert first_words(text, most) == re.findall(words._WORD, text.casefold())[:most], text


def test_names_of_several_words_are_those_of_the_pattern():
    for text in texts(3_000, 9):
        found = dict.fromkeys(words._ITEM.findall(text.casefold()))
        plain = [one for one in found if words.DECIMAL.fullmatch(one) or words.IS_CLOCK.fullmatch(one)]
        assert items_of(text) == [one for one in found if one not in plain], text


def test_a_change_in_the_middle_of_a_long_result_is_seen():
    text = "word " * 4_000
    assert tokens(text) != tokens(text[:9_000] + "other" + text[9_005:])
