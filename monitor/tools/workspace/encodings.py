"""Text of files: read in the encoding of the file, and written back in the same encoding."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark begins like it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL_SHARE: Final = 0.1
"""If a file is not UTF-8, and more of its characters are control characters, it is no text."""
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\r\f\v\b\x1b"))


@dataclass(slots=True, frozen=True)
class Encoding:
    """The way in which the bytes of a file hold its text."""

    name: str = "utf-8"
    """The name that Python has for it."""
    mark: bytes = b""
    """The byte order mark before the text."""
    crlf: bool = False
    """Every line ends with CR LF. The text has LF in their place."""

    def encode(self, text: str) -> bytes:
        """The bytes of a file with this text. Raises `UnicodeEncodeError` if the encoding lacks a
        character of it.
        """
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return self.mark + text.encode(self.name)

    def __str__(self) -> str:
        marked = " with a byte order mark" if self.mark else ""
        return f"{self.name}{marked}{', lines end with CRLF' if self.crlf else ''}"


UTF_8: Final = Encoding()


def decoded(content: bytes, *, whole: bool = True) -> tuple[str, Encoding] | None:
    """The text of a file, and its encoding. `None`: it is no text.

    `whole`: `content` is the whole file; else a character at its end may be cut. A file without a
    mark is UTF-8, or Latin-1 if it cannot be UTF-8. UTF-16 without a mark counts as binary.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            text = _decoded(content[len(mark) :], name, whole=whole)
            return None if text is None else _with_ends(text, name, mark)
    if b"\0" in content:
        return None
    if (text := _decoded(content, "utf-8", whole=whole)) is not None:
        return _with_ends(text, "utf-8", b"")
    controls = len(content) - len(content.translate(None, _CONTROLS))
    if controls > _CONTROL_SHARE * len(content):
        return None
    return _with_ends(content.decode("latin-1"), "latin-1", b"")


def _decoded(content: bytes, name: str, *, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(content, whole)
    except UnicodeDecodeError:
        return None


def _with_ends(text: str, name: str, mark: bytes) -> tuple[str, Encoding]:
    ends = text.count("\r\n")
    crlf = ends > 0 and ends == text.count("\n") and ends == text.count("\r")
    return (text.replace("\r\n", "\n") if crlf else text), Encoding(name, mark, crlf)
