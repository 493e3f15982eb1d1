"""A search for lines, in a process of its own: see `monitor.tools.files.search_program`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.files import search_program
from monitor.tools.processes.printed_output import printed
from monitor.tools.results.tool_answer import ToolAnswer

GREP_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that a search may print."""


def name_of(name: str) -> str:
    """A name in a form that fits on one line, also if it holds a newline."""
    return name if name.isprintable() else repr(name)


def check_pattern(pattern: str, files: str) -> None:
    """Raise `ToolError` for patterns that the search would refuse."""
    try:
        search_program.compiled(pattern, ignore_case=False)
    except ValueError as error:
        raise ToolError(f"pattern: {error}", kind=ToolErrorKind.INVALID_ARGUMENTS) from None
    try:
        search_program.alternatives(files)
    except ValueError as error:
        raise ToolError(f"files: {error}", kind=ToolErrorKind.INVALID_ARGUMENTS) from None


async def printed_by(request: Mapping[str, Any], seconds: float) -> tuple[str, bool]:
    """The output of the search, and whether it was ended because its time was over."""
    argv = [search_program.__file__, json.dumps(request)]
    return await printed(argv, directory=Path(str(request["root"])), bound=GREP_BYTES, seconds=seconds)


def matches_in(printed: str, *, over: bool, seconds: float) -> ToolAnswer:
    """The answer of `grep`. `over`: the search was ended after `seconds`."""
    rows: list[Any] = []
    for line in printed.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            if not over:
                raise ToolError(f"the search failed: {printed[-500:]}") from None
    count = rows.pop() if rows and isinstance(rows[-1], dict) else None
    text = "\n".join(f"{name_of(path)}:{number}: {_printable(line)}" for path, number, line in rows)
    if count is None:
        status = f"the search did not end within {seconds:g} s and was ended; give a simpler pattern or a narrower path"
        return ToolAnswer(text, is_error=True, error_kind=ToolErrorKind.TIMEOUT, status=status)
    notes = [f"{count['lines']:,} lines in {count['hits']:,} of {count['searched']:,} files"]
    if count["lines"] > len(rows):
        notes.append(f"the first {len(rows):,} are shown")
    if count["large"]:
        notes.append(f"{count['large']:,} files of more than {search_program.FILE_BYTES:,} bytes were not searched")
    return ToolAnswer(text, status="; ".join(notes))


def _printable(line: str) -> str:
    """`line` without characters that could not be sent, and on one line."""
    line = line.rstrip("\r")
    return line if line.isprintable() else "".join(char if char.isprintable() or char == "\t" else "?" for char in line)
