"""Files as tools: list, read, write, edit, find by name and by content, within a workspace.

Text keeps its encoding, its byte order mark and its line ends. A file is replaced whole or not at
all. An edit names the exact text that it replaces, and answers with the difference.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import anyio
import anyio.to_thread
from pydantic import Field

from monitor._util.argument_checks import is_finite, is_whole
from monitor.errors import ConfigError, ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.artifacts.artifact_store import Reference
from monitor.tools.base import CallPlace, Tool, ToolContext, excerpt
from monitor.tools.files import search_program
from monitor.tools.files.edits import difference, replaced
from monitor.tools.files.search import check_pattern, matches_in, name_of, printed_by
from monitor.tools.functions import FunctionTool
from monitor.tools.registry import ToolGroup
from monitor.tools.results.tool_answer import ToolAnswer
from monitor.tools.workspace.encodings import UTF_8, Encoding, decoded
from monitor.tools.workspace.workspace import Workspace, WorkspacePath

FILE_BYTES: Final = 16 * 1024 * 1024
"""A larger file is not edited, and only its beginning can be read."""
PAGE_LINES: Final = 2_000
PAGE_CHARS: Final = 38_000
"""The most that one call reads. It is less than the bound of a result, so no page is cut again."""
ENTRIES: Final = 1_000
"""The most entries that `ls` and `glob` show."""
WALKED: Final = 200_000
"""The most entries that `glob` looks at."""
MATCHES: Final = 1_000
"""The most lines that `grep` shows; the others are counted."""
GREP_S: Final = 20.0
PROTECTED: Final = (".git", "agent-monitor.toml")
"""Hooks and settings of git run programs, and the settings of this library say what needs a yes."""

_Path = Annotated[str, Field(description="Relative to the workspace.")]


class _Editing(FunctionTool[..., Any]):
    """A tool that can say what a call would change."""

    changes: Callable[..., str]

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """The difference that the call would make; nothing is written. Raises `ToolError` if the
        call would fail.
        """
        self.check(arguments)
        return self.changes(**arguments)


class FileTools(ToolGroup):
    """The tools `ls`, `read_file`, `write_file`, `edit`, `glob` and `grep` for a workspace.

    - `ignored`: names of folders that `glob` and `grep` do not search.
    - `grep_s`: the most seconds of a search. A pattern may take exponential time, so it runs in a
      process of its own, which is then killed.
    - `protected`: names of folders and files that `write_file` and `edit` do not change, wherever
      they stand.
    - `file_bytes`: a larger file is not edited, and only its beginning can be read.
    - `needs_approval`: of `write_file` and `edit`, as for any tool. `prefix`, `filter`: as for any
      group; `filter=["ls", "read_file"]` leaves the others out.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        ignored: Sequence[str] = search_program.IGNORED,
        grep_s: float = GREP_S,
        protected: Sequence[str] = PROTECTED,
        file_bytes: int = FILE_BYTES,
        needs_approval: bool | Callable[[Mapping[str, Any], ToolContext], bool] = False,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - as ToolGroup has it
    ) -> None:
        if isinstance(ignored, str) or isinstance(protected, str):
            raise ConfigError("FileTools: ignored and protected are lists of names")
        if not (is_finite(grep_s) and grep_s > 0 and is_whole(file_bytes) and file_bytes > 0):
            raise ConfigError("FileTools: grep_s and file_bytes are numbers above 0")
        self._workspace = workspace
        self._ignored = tuple(ignored)
        self._protected = frozenset(name.casefold() for name in protected)
        self._grep_s = grep_s
        self._file_bytes = file_bytes
        self._writing = threading.Lock()
        """Two edits of one file must not both start from its old text."""
        edit = _Editing(self._edit, name="edit", kind="edit", needs_approval=needs_approval)
        edit.changes = self._would_edit
        write = _Editing(self._write, name="write_file", kind="edit", needs_approval=needs_approval)
        write.changes = self._would_write
        tools: list[FunctionTool[..., Any]] = [
            FunctionTool(self._ls, name="ls", kind="read", keep="head"),
            FunctionTool(self._read, name="read_file", kind="read", keep="head"),
            write,
            edit,
            FunctionTool(self._glob, name="glob", kind="read", keep="head"),
            FunctionTool(self._grep, name="grep", kind="read", keep="matches"),
        ]
        for one in tools:
            one.place = self._place
        tools[-1].place = self._searched
        super().__init__(tools, prefix=prefix, filter=filter)

    def _place(self, arguments: Mapping[str, Any]) -> CallPlace:
        """Where a call takes effect: paths begin in the workspace."""
        del arguments
        return CallPlace(self._workspace.root, self._workspace.root)

    def _searched(self, arguments: Mapping[str, Any]) -> CallPlace:
        """Return what `_place` does, for a search, which reads all files of a folder."""
        folder = str(arguments.get("path", "."))
        return CallPlace(self._workspace.root, self._workspace.root, reads_below=(folder,))

    # --- the tools

    async def _ls(self, *, path: _Path = ".") -> ToolAnswer:
        """List a folder: folders end with a slash, links show where they lead, files their size."""
        return await anyio.to_thread.run_sync(self._listed, path)

    async def _read(
        self,
        *,
        path: _Path,
        offset: Annotated[int, Field(ge=1, description="The first line to read.")] = 1,
        limit: Annotated[int, Field(ge=1, le=PAGE_LINES, description="The most lines to read.")] = PAGE_LINES,
    ) -> ToolAnswer:
        """Read a text file. Of a long one, a page: the answer says at which line to continue."""
        return await anyio.to_thread.run_sync(self._page, path, offset, limit)

    async def _write(
        self, *, path: _Path, content: Annotated[str, Field(description="The whole text of the file.")]
    ) -> ToolAnswer:
        """Write a file: a new one, or in the place of the old one. Missing folders are made. To
        change a part of a file, use edit.
        """
        return await anyio.to_thread.run_sync(self._written, path, content)

    async def _edit(
        self,
        *,
        path: _Path,
        old: Annotated[str, Field(description="The text to replace, exactly as it is in the file.")],
        new: Annotated[str, Field(description="The text to put in its place.")],
        replace_all: Annotated[bool, Field(description="Replace it everywhere, not once.")] = False,
    ) -> ToolAnswer:
        """Replace a piece of a file. old must be there exactly once, with its spaces and line ends;
        give enough of the lines around it. The answer is the difference.
        """
        return await anyio.to_thread.run_sync(self._edited, path, old, new, replace_all)

    async def _glob(
        self,
        *,
        pattern: Annotated[str, Field(min_length=1, description="Such as **/*.py or src/*.{ts,tsx}.")],
        path: Annotated[str, Field(description="The folder to look in, relative to the workspace.")] = ".",
    ) -> ToolAnswer:
        """Find files by name. * is anything within a name, ** any number of folders. A pattern
        without a slash is looked for in all folders.
        """
        return await anyio.to_thread.run_sync(self._found, pattern, path)

    async def _grep(
        self,
        *,
        pattern: Annotated[str, Field(min_length=1, description="A regular expression, as Python has it.")],
        path: Annotated[str, Field(description="A folder or a file, relative to the workspace.")] = ".",
        files: Annotated[str, Field(description="Only files with such a name: *.py, or src/**/*.ts.")] = "",
        ignore_case: bool = False,
    ) -> ToolAnswer:
        """Find lines by a regular expression. Each is shown as path:line: text."""
        check_pattern(pattern, files)
        place = await anyio.to_thread.run_sync(self._workspace.place, path)
        request = {
            "root": str(self._workspace.root),
            "start": str(place),
            "pattern": pattern,
            "files": files,
            "ignore_case": ignore_case,
            "ignored": self._ignored,
            "most": MATCHES,
        }
        if not os.path.lexists(self._workspace.root / str(place)):  # noqa: ASYNC240 - a glance
            raise ToolError(f"{excerpt(path)} does not exist", kind=ToolErrorKind.NOT_FOUND)
        found, over = await printed_by(request, self._grep_s)
        return matches_in(found, over=over, seconds=self._grep_s)

    def _would_write(self, path: str, content: str) -> str:
        return self._rewrite(path, content)[3]

    def _would_edit(self, path: str, old: str, new: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002
        return self._change(path, old, new, replace_all)[2]

    # --- the work of the tools, in a thread

    def _listed(self, path: str) -> ToolAnswer:
        with self._workspace.listed(path) as (_, descriptor):
            names = sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
            lines = [_entry(name, descriptor) for name in names[:ENTRIES]]
        more = f"; the first {ENTRIES:,} are shown" if len(names) > ENTRIES else ""
        return ToolAnswer("\n".join(lines), status=f"{len(names):,} entries{more}")

    def _page(self, path: str, offset: int, limit: int) -> ToolAnswer:
        place, text, encoding, whole = self._text(path)
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        if not lines:
            return ToolAnswer("", status="the file is empty")
        if offset > len(lines):
            raise ToolError(f"offset={offset}: the file has {len(lines):,} lines", kind=ToolErrorKind.INVALID_ARGUMENTS)
        page, notes = _paged(lines, offset, limit)
        last = offset + len(page) - 1
        of = f"{len(lines):,}" if whole else f"more than {len(lines):,}"
        position = None
        if offset > 1 or last < len(lines) or not whole:
            position = f"lines {offset} to {last}"
            notes.insert(0, f"{position} of {of}")
        if last < len(lines):
            notes.append(f"continue at line {last + 1}: offset={last + 1}")
        elif not whole:
            notes.append(f"the rest, after {self._file_bytes:,} bytes, is not read here: use shell")
        if encoding != UTF_8:
            notes.append(str(encoding))
        return ToolAnswer(
            "\n".join(page),
            status="; ".join(notes) or None,
            data={"lines": len(lines)},
            reference=Reference(kind="document", path=str(place), position=position),
        )

    def _written(self, path: str, content: str) -> ToolAnswer:
        with self._writing:
            data, encoding, new, changes = self._rewrite(path, content)
            place = self._workspace.write(path, data)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        said = "" if encoding == UTF_8 else f", {encoding}"
        status = f"{'made' if new else 'replaced'} {name_of(str(place))}: {lines:,} lines{said}"
        return ToolAnswer("" if new else changes, status=status, wrote=(str(place),))

    def _edited(self, path: str, old: str, new: str, every: bool) -> ToolAnswer:  # noqa: FBT001 - run_sync passes by place
        with self._writing:
            data, count, changes = self._change(path, old, new, every)
            place = self._workspace.write(path, data)
        times = f"{count} places" if count > 1 else "1 place"
        return ToolAnswer(changes, status=f"edited {name_of(str(place))} in {times}", wrote=(str(place),))

    def _found(self, pattern: str, path: str) -> ToolAnswer:
        try:
            wanted = [one if "/" in one else f"**/{one}" for one in search_program.alternatives(pattern)]
        except ValueError as error:
            raise ToolError(str(error), kind=ToolErrorKind.INVALID_ARGUMENTS) from None
        with self._workspace.listed(path) as (place, _):
            start = str(place)
        found: list[str] = []
        walked = matched = 0
        under = "" if start == "." else f"{start}/"
        for prefix, folders, names, _ in search_program.walk(str(self._workspace.root), start, self._ignored):
            for name in [*(f"{folder}/" for folder in folders), *names]:
                inner = (prefix + name).removeprefix(under)
                if any(search_program.matches(inner, one) for one in wanted):
                    matched += 1
                    if len(found) < ENTRIES:
                        found.append(name_of(prefix + name))
            walked += len(folders) + len(names)
            if walked > WALKED:
                break
        notes = [f"{matched:,} found"]
        if matched > len(found):
            notes.append(f"the first {ENTRIES:,} are shown; give a narrower pattern")
        if walked > WALKED:
            notes.append(f"the search ended after {WALKED:,} entries; give a folder as path")
        return ToolAnswer("\n".join(found), status="; ".join(notes))

    # --- parts of that work

    def _text(self, path: str) -> tuple[WorkspacePath, str, Encoding, bool]:
        """The place of the file, its text, its encoding, and whether the text is whole."""
        place, content, size = self._workspace.read(path, self._file_bytes)
        whole = size <= len(content)
        found = decoded(content, whole=whole)
        if found is None:
            raise ToolError(
                f"{excerpt(path)} is no text: a binary file of {size:,} bytes", kind=ToolErrorKind.INVALID_ARGUMENTS
            )
        return place, *found, whole

    def _check_free(self, path: str) -> None:
        """Raise `ToolError` if the real place of `path` is protected."""
        for part in self._workspace.place(path).parts:
            if part.casefold() in self._protected:
                raise ToolError(f"{excerpt(path)}: {part} is not changed by this tool", kind=ToolErrorKind.PERMISSION)

    def _rewrite(self, path: str, content: str) -> tuple[bytes, Encoding, bool, str]:
        """The bytes of the file with `content`, its encoding, whether it is new, and the
        difference.
        """
        self._check_free(path)
        try:
            _, before, encoding, whole = self._text(path)
        except ToolError as error:
            if error.kind is not ToolErrorKind.NOT_FOUND:
                raise
            return _encoded(content, UTF_8), UTF_8, True, difference(path, "", content)
        try:
            data = encoding.encode(content)
        except UnicodeEncodeError:
            encoding = UTF_8
            data = _encoded(content, UTF_8)
        changes = difference(path, before, content) if whole else "the whole file is replaced\n"
        return data, encoding, False, changes

    def _change(self, path: str, old: str, new: str, every: bool) -> tuple[bytes, int, str]:  # noqa: FBT001 - as above
        """The bytes of the edited file, in how many places it changes, and the difference."""
        self._check_free(path)
        _, before, encoding, whole = self._text(path)
        if not whole:
            raise ToolError(f"{excerpt(path)} has more than {self._file_bytes:,} bytes: use shell")
        if encoding.crlf:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        after = replaced(before, old, new, every=every)
        return _encoded(after, encoding), before.count(old), difference(path, before, after)


def _encoded(text: str, encoding: Encoding) -> bytes:
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


def _entry(name: str, folder: int) -> str:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return f"{name_of(name)}  (cannot be read)"
    if stat.S_ISDIR(status.st_mode):
        return f"{name_of(name)}/"
    if stat.S_ISLNK(status.st_mode):
        try:
            return f"{name_of(name)} -> {name_of(os.readlink(name, dir_fd=folder))}"
        except OSError:
            return f"{name_of(name)}  (a link)"
    if not stat.S_ISREG(status.st_mode):
        return f"{name_of(name)}  (no ordinary file)"
    return f"{name_of(name)}  {status.st_size:,} bytes"


def _paged(lines: Sequence[str], offset: int, limit: int) -> tuple[list[str], list[str]]:
    """The lines of a page, and notes about it. A line that is longer than a page is cut."""
    page: list[str] = []
    room = PAGE_CHARS
    for line in lines[offset - 1 : offset - 1 + limit]:
        if len(line) >= room:
            if page:
                break
            return [line[:PAGE_CHARS]], [f"line {offset} has {len(line):,} characters: its beginning is shown"]
        page.append(line)
        room -= len(line) + 1
    return page, []
