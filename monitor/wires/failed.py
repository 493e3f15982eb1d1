"""Failed results in the two forms that have no field for an error. There the first word marks an
error, so no other result may begin with that word.
"""

from __future__ import annotations

import re
from typing import Final

ERROR: Final = "Error: "
"""Stands before the text of an error."""
OUTPUT: Final = "Output: "
"""Stands before any other text that would read like an error."""

_LIKE_ONE: Final = re.compile(r"(?:Output: )*Error: ")


def failed_text(text: str) -> str:
    """The text of an error, as the model reads it."""
    return text if text.startswith(ERROR) else f"{ERROR}{text}"


def plain_text(text: str) -> str:
    """The text of a result that is not an error, as the model reads it."""
    return f"{OUTPUT}{text}" if _LIKE_ONE.match(text) else text


def read_failed(text: str) -> tuple[str, bool]:
    """The inverse of both: the text, and whether it is an error. The text of an error keeps its
    first word.
    """
    if text.startswith(ERROR):
        return text, True
    return (text.removeprefix(OUTPUT) if _LIKE_ONE.match(text) else text), False
