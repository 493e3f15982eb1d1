"""Estimates the tokens of a text, without a tokenizer.

With today's vocabularies, English prose and code have about a quarter of a token per ASCII
character. Other characters cost more, about in proportion to their UTF-8 bytes: 5/8 of a token for
Cyrillic or Arabic letters, one for a CJK character, 11/8 for an emoji. The estimate is within about
20 % on ordinary text, and is replaced by the provider's own count.

The unit is an eighth of a token, so that a text costs the same in one piece and in many.

That estimate is for text while it streams. `weigh` is more accurate, at four times the cost, for
texts that are counted once. JSON, numbers, hashes and tables have up to three times the tokens of
prose of their length.
"""

from typing import Final

MOST_EIGHTHS_PER_CHAR = 11
"""The highest estimate for one character."""


def eighths_of_tokens(text: str) -> int:
    """Estimated eighths of a token in `text`. Linear in its length; constant for ASCII."""
    if text.isascii():
        return 2 * len(text)
    return 3 * len(text.encode("utf-8", "surrogatepass")) - len(text)


def estimate_tokens(text: str) -> int:
    """Estimated tokens of `text`, rounded up."""
    return -(-eighths_of_tokens(text) // 8)


_DENSE: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MARKS: Final = bytes(code for code in range(33, 127) if not chr(code).isalnum())
_LIGHT: Final = bytes(set(range(256)).difference(_DENSE, _MARKS))
_BEYOND_ASCII: Final = bytes(range(128, 256))


def weigh(text: str) -> tuple[int, int]:
    """Estimated eighths of a token in `text`, in two numbers: of its ASCII characters, and of all
    others.

    Letters count 2/8, digits and capitals 6/8, punctuation 3/8, a blank 1/8; other characters as in
    `eighths_of_tokens`. Fitted to four vocabularies (cl100k, o200k, Claude, DeepSeek) over agents'
    texts, arguments, results, code, JSON, numbers and hashes. In 145 recorded runs, 19 in 20 came
    within 35 % of the estimate. A quarter of a token per character is up to 75 % too low there.
    Other scripts cost one vocabulary three times what they cost another. Linear: about 2 ns a
    character.
    """
    data = text.encode("utf-8", "surrogatepass")
    ascii_bytes = len(data) if text.isascii() else len(data.translate(None, _BEYOND_ASCII))
    heavy = data.translate(None, _LIGHT)
    dense = heavy.translate(None, _MARKS)
    beyond = 3 * (len(data) - ascii_bytes) - (len(text) - ascii_bytes)
    return 2 * ascii_bytes + len(heavy) + 3 * len(dense) - data.count(b" "), beyond
