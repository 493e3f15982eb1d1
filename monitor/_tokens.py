"""How many tokens a text will be counted as, without a tokenizer.

A quarter of a token per ASCII character is what English prose and code come to with today's vocabularies; characters
outside ASCII cost more, about in proportion to their UTF-8 bytes: 5/8 of a token for Cyrillic or Arabic letters, one for
a CJK character, 11/8 for an emoji. Good to about 20 % on ordinary text; a provider's own count replaces it when it comes.
"""

MOST_TOKENS_PER_CHAR = 11 / 8
"""No character is estimated at more than this."""


def estimate_tokens(text: str) -> int:
    """Estimated tokens of `text`, rounded up. Linear in its length; constant for ASCII."""
    extra_bytes = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
    return (2 * len(text) + 3 * extra_bytes + 7) // 8
