"""Images and PDF in files, which a model is shown as media."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from monitor.chunks import Media
from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.base import excerpt
from monitor.tools.workspace.workspace import FileContent

MEDIA_BYTES: Final = 3_900_000
"""A larger file is not shown. As base64 it stays below 5 MiB, which Anthropic takes for an image;
other providers take more.
"""
_RIFF: Final = b"RIFF"
_BEGINNINGS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}


def media_in(path: str, content: FileContent) -> Media | None:
    """The file as media. `None`: models do not read such files as media. Raises `ToolError` if it
    is too large. Its content says what it is, and its name does not matter.
    """
    mime_type = _type_of(content.content)
    if mime_type is None:
        return None
    if content.size > min(MEDIA_BYTES, len(content.content)):
        said = f"{excerpt(path)} ({mime_type}) has {content.size:,} bytes, and at most {MEDIA_BYTES:,} can be shown"
        raise ToolError(f"{said}: make a smaller copy", kind=ToolErrorKind.INVALID_ARGUMENTS)
    return Media(mime_type, b64encode(content.content).decode("ascii"))


def _type_of(content: bytes) -> str | None:
    if content.startswith(_RIFF) and content[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for begin, mime_type in _BEGINNINGS.items() if content.startswith(begin)), None)
