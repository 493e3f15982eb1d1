"""Helpers of the monitor's own tools: how they read the model's arguments, and how they answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from monitor._util.codec import text_of

SHOWN_CHARS = 80
"""How much of a wrong value is shown to the model."""
COMPARED_CHARS = 100
"""How much of a name is compared with the known ones: a model that loops may send a very
long one.
"""


@dataclass(slots=True, frozen=True)
class GoalAnswer:
    """The answer of one of the monitor's own tools."""

    text: str
    is_error: bool = False


def arguments_in(arguments: object) -> dict[str, Any]:
    """The arguments of a call as a dict: also from the text of a JSON object, and `None` as none at
    all.

    Anything else is a `ValueError` whose message is for the model.
    """
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"The arguments are not valid JSON ({error}).") from None
    if not isinstance(arguments, Mapping):
        raise ValueError(f"The arguments must be a JSON object, not {shown(arguments)}.")
    return dict(arguments)


def was_cut_off(arguments: object) -> bool:
    """Whether `arguments` are a text that is empty or a whole JSON object.

    An adapter gives the text if its provider did not say that the arguments are complete. Missing
    pieces may change them, so such a call is not carried out. (Any other text is not a JSON object,
    and is refused for that reason.)
    """
    if not isinstance(arguments, str):
        return False
    if not arguments.strip():
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def shown(value: object) -> str:
    """`value` as JSON, cut to `SHOWN_CHARS` code points."""
    try:
        text = json.dumps(value[:SHOWN_CHARS], ensure_ascii=False) if isinstance(value, str) else text_of(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        return f"({type(value).__name__})"
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def is_blank(text: str) -> bool:
    """Whether `text` shows nothing: only space, and characters without a width. Only the beginning
    of a long text is checked.
    """
    return _SEEN.search(text) is None


_SEEN = re.compile("[^\\s\u200b\u200c\u200d\u2060\ufeff\u00ad]")


def closest(name: object, names: Iterable[str]) -> str | None:
    """The one of `names` that was probably meant: equal except for case, spaces and punctuation,
    else similar. `None`: no name is similar.
    """
    if not isinstance(name, str):
        return None
    known: dict[str, str] = {}
    for candidate in names:
        known.setdefault(_bare(candidate), candidate)
    found = get_close_matches(_bare(name), known, n=1)
    return known[found[0]] if found else None


def _bare(name: str) -> str:
    return "".join(char for char in name[:COMPARED_CHARS].casefold() if char.isalnum())
