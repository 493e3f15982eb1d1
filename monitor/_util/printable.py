"""Text that a terminal shows and does not obey. Without rich, which takes long to import."""

from __future__ import annotations

import json
from unicodedata import category

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of characters that a terminal may obey: controls, marks of direction and of
no width, lone surrogates, line separators.
"""


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal would obey rather than show. Line ends
    stay.
    """
    return text if text.isprintable() else text.translate(_SHOWN)


class _Escapes(dict[int, str]):
    """How each character is shown; a cache that fills on demand."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shown = self[code] = ascii(char)[1:-1] if category(char) in _OBEYED else char
        return shown


_SHOWN = _Escapes({ord("\n"): "\n", ord("\t"): "    "})


def printable_json(text: str) -> str:
    """The JSON `text` with its control characters as escapes. They stand only inside strings."""
    return text if text.isprintable() else "".join(map(_in_json, text))


def _in_json(char: str) -> str:
    if char == "\x7f":
        return "\\u007f"  # the one control character that JSON writes as it is
    return json.dumps(char)[1:-1] if char != "\n" and category(char) in _OBEYED else char


def on_one_line(text: str) -> str:
    """`text` with its line breaks as escapes, for a row of a table."""
    return printable(text.replace("\n", "\\n"))
