"""A server of files for tests, made with the SDK. Its tools have the names and the arguments of the
server-filesystem of the protocol's authors.

    files.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("files")
ROOT = Path(sys.argv[1]).resolve()
READS = ToolAnnotations(read_only_hint=True)


class Edit(BaseModel):
    """A text to replace, and the text in its place."""

    old: str = Field(alias="oldText")
    new: str = Field(alias="newText")


def inside(path: str) -> Path:
    """The place of `path`, which must be in the folder."""
    place = (ROOT / path).resolve()
    if not place.is_relative_to(ROOT):
        raise PermissionError(f"{path} is outside of the folder")
    return place


@server.tool(annotations=READS)
def list_directory(path: str) -> str:
    """List a folder."""
    return "\n".join(sorted(one.name for one in inside(path).iterdir()))


@server.tool(annotations=READS)
def read_text_file(path: str) -> str:
    """Read a text file."""
    return inside(path).read_text("utf-8")


@server.tool()
def edit_file(path: str, edits: list[Edit]) -> str:
    """Replace texts of a file."""
    place = inside(path)
    text = place.read_text("utf-8")
    for edit in edits:
        if edit.old not in text:
            raise ValueError(f"Could not find exact match for edit:\n{edit.old}")
        text = text.replace(edit.old, edit.new, 1)
    place.write_text(text, "utf-8")
    return f"{len(edits)} edits in {path}"


if __name__ == "__main__":
    server.run()
