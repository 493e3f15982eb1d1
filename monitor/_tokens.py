"""How many tokens a text will be counted as, without a tokenizer.

A quarter of a token per ASCII character is what English prose and code come to with today's vocabularies; characters
outside ASCII cost more, about in proportion to their UTF-8 bytes: 5/8 of a token for Cyrillic or Arabic letters, one for
a CJK character, 11/8 for an emoji. Good to about 20 % on ordinary text; a provider's own count replaces it when it comes.

Counted in eighths of a token, so that a text costs the same in one piece and in many.
"""

MOST_EIGHTHS_PER_CHAR = 11
"""No character is estimated at more than this."""


def eighths_of_tokens(text: str) -> int:
    """Estimated eighths of a token in `text`. Linear in its length; constant for ASCII."""
    if text.isascii():
        return 2 * len(text)
    return 3 * len(text.encode("utf-8", "surrogatepass")) - len(text)


def estimate_tokens(text: str) -> int:
    """Estimated tokens of `text`, rounded up."""
    return -(-eighths_of_tokens(text) // 8)
