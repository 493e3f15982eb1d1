"""Failed results in the two forms that have no field for it: the first word says it, and no other
text may begin with that word.
"""

from __future__ import annotations

import re
from typing import Final

ERROR: Final = "Error: "
"""Before the text of a result that is an error."""
OUTPUT: Final = "Output: "
"""Before one that is none, where it would read like one."""

_LIKE_ONE: Final = re.compile(r"(?:Output: )*Error: ")


def failed_text(text: str) -> str:
    """The text of an error, as the model reads it."""
    return text if text.startswith(ERROR) else f"{ERROR}{text}"


def plain_text(text: str) -> str:
    """The same of a result that is none."""
    return f"{OUTPUT}{text}" if _LIKE_ONE.match(text) else text


def read_failed(text: str) -> tuple[str, bool]:
    """The inverse of both: the text, and whether it is an error. The text of an error keeps its
    first word.
    """
    if text.startswith(ERROR):
        return text, True
    return (text.removeprefix(OUTPUT) if _LIKE_ONE.match(text) else text), False
