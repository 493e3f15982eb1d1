"""A text file of a workspace: its text, and the bytes and the encoding behind it."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.base import excerpt
from monitor.tools.workspace.encodings import Encoding, decoded
from monitor.tools.workspace.workspace import FileContent, Workspace, WorkspacePath


@dataclass(slots=True, frozen=True)
class TextFile:
    """A text file as it was read."""

    place: WorkspacePath
    content: FileContent
    text: str
    encoding: Encoding

    @property
    def whole(self) -> bool:
        """Whether `text` is all of the file, and not its beginning."""
        return self.content.size <= len(self.content.content)


def read_text(workspace: Workspace, path: str, most: int) -> TextFile:
    """The text of a file, or of its first `most` bytes. Raises `ToolError` if it is no text."""
    place, content, size = workspace.read(path, most)
    return as_text(path, place, FileContent(content, size))


def as_text(path: str, place: WorkspacePath, content: FileContent) -> TextFile:
    """The text in `content`. Raises `ToolError` if it is none."""
    found = decoded(content.content, whole=content.size <= len(content.content))
    if found is None:
        said = f"{excerpt(path)} is no text: a binary file of {content.size:,} bytes"
        raise ToolError(said, kind=ToolErrorKind.INVALID_ARGUMENTS)
    return TextFile(place, content, *found)


def encoded(text: str, encoding: Encoding) -> bytes:
    """The bytes of a file with this text. Raises `ToolError` if the encoding lacks a character."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.start + 1]
        raise ToolError(
            f"{wrong!r} cannot be written in {encoding}; write the whole file, which makes it UTF-8"
            if encoding.name != "utf-8"
            else f"{wrong!r} is half of a character and cannot be written",
            kind=ToolErrorKind.INVALID_ARGUMENTS,
        ) from None
