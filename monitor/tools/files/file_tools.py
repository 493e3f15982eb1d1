"""Files as tools: list, read, write, edit, find by name and by content, within a workspace.

Text keeps its encoding, its byte order mark and its line ends. A file is replaced whole or not at
all. An edit names the exact text that it replaces, and answers with the difference.
"""

from __future__ import annotations

import json
import os
import stat
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import anyio.to_thread
from pydantic import Field

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.explained_options import explained
from monitor.chunks import Media
from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.artifacts.artifact_store import Reference
from monitor.tools.base import CallingRun, CallPlace, NeedsApproval, Tool, ToolContext, excerpt
from monitor.tools.files import search_program
from monitor.tools.files.edits import KnownFiles, as_text
from monitor.tools.files.patches import FileChange, FileChanges, cells_of, read_patch, shown
from monitor.tools.functions import FunctionTool
from monitor.tools.processes.printed_output import printed
from monitor.tools.registry import ToolGroup
from monitor.tools.results.call_results import ToolAnswer, named
from monitor.tools.workspace import UTF_8, FileContent, Workspace

# --------------------------------------------------------------------------------------------------
# A search for lines, in a process of its own: see `monitor.tools.files.search_program`.

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


# --------------------------------------------------------------------------------------------------
# Images and PDF in files, which a model is shown as media.

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

_DONE: Final = {"add": "made", "update": "changed", "delete": "removed"}

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


@explained(example="monitor.tools.FileTools('.')")
class FileTools(ToolGroup):
    """The tools `ls`, `read_file`, `write_file`, `edit`, `glob` and `grep` for a workspace.

    - `ignored`: names of folders that `glob` and `grep` do not search.
    - `grep_s`: the most seconds of a search. A pattern may take exponential time, so it runs in a
      process of its own, which is then killed.
    - `protected`: names of folders and files that `write_file` and `edit` do not change, wherever
      they stand.
    - `file_bytes`: a larger file is not edited, and only its beginning can be read.
    - `read_first`: a file is changed only if the run has read it, or written it, as it is now. Else
      the answer says what has changed since.
    - `patch`: offer `apply_patch` too, which changes several files, all or none.
    - `needs_approval`: of the tools that write, as for any tool. `prefix`, `filter`: as for any
      group; `filter=["ls", "read_file"]` leaves the others out.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str],
        *,
        ignored: Sequence[str] = search_program.IGNORED,
        grep_s: float = GREP_S,
        protected: Sequence[str] = PROTECTED,
        file_bytes: int = FILE_BYTES,
        read_first: bool = True,
        patch: bool = False,
        needs_approval: bool | Callable[[Mapping[str, Any], ToolContext], bool] = False,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - as ToolGroup has it
    ) -> None:
        if isinstance(ignored, str) or isinstance(protected, str):
            raise ConfigError("FileTools: ignored and protected are lists of names")
        if not (is_finite(grep_s) and grep_s > 0 and is_whole(file_bytes) and file_bytes > 0):
            raise ConfigError("FileTools: grep_s and file_bytes are numbers above 0")
        self._workspace = workspace = Workspace.at(workspace)
        self._ignored = tuple(ignored)
        self._grep_s = grep_s
        self._file_bytes = file_bytes
        self._known = KnownFiles()
        self._changes = FileChanges(
            workspace,
            protected=frozenset(name.casefold() for name in protected),
            file_bytes=file_bytes,
            known=self._known if read_first else None,
        )
        edit = _Editing(self._edit, name="edit", kind="edit", needs_approval=needs_approval)
        edit.changes = self._would_edit
        write = _Editing(self._write, name="write_file", kind="edit", needs_approval=needs_approval)
        write.changes = self._would_write
        tools: list[FunctionTool[..., Any]] = [
            FunctionTool(self._ls, name="ls", kind="read", keep="head"),
            FunctionTool(self._read, name="read_file", kind="read", keep="head"),
            write,
            edit,
            *([self._patch_tool(needs_approval)] if patch else ()),
            FunctionTool(self._glob, name="glob", kind="read", keep="head"),
            FunctionTool(self._grep, name="grep", kind="read", keep="matches"),
        ]
        for one in tools:
            one.place = one.place or self._place
        tools[-1].place = self._searched
        super().__init__(tools, prefix=prefix, filter=filter)

    def _patch_tool(self, needs_approval: NeedsApproval) -> FunctionTool[..., Any]:
        made = _Editing(self._apply, name="apply_patch", kind="edit", needs_approval=needs_approval)
        made.changes = self._would_patch
        made.place = self._changed
        return made

    def _changed(self, arguments: Mapping[str, Any]) -> CallPlace:
        """Return what `_place` does, for a patch, which names its files itself."""
        paths = [path for one in read_patch(str(arguments.get("patch", ""))) for path in one.paths]
        return CallPlace(self._workspace.root, self._workspace.root, changes=tuple(paths))

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
        context: ToolContext,
        path: _Path,
        offset: Annotated[int, Field(ge=1, description="The first line to read.")] = 1,
        limit: Annotated[int, Field(ge=1, le=PAGE_LINES, description="The most lines to read.")] = PAGE_LINES,
    ) -> ToolAnswer:
        """Read a file. Of a long text, a page: the answer says at which line to continue. Images
        and PDF are shown, and of a notebook the cells.
        """
        return await anyio.to_thread.run_sync(self._page, path, offset, limit, context.run)

    async def _write(
        self,
        *,
        context: ToolContext,
        path: _Path,
        content: Annotated[str, Field(description="The whole text of the file.")],
    ) -> ToolAnswer:
        """Write a file: a new one, or in the place of the old one, which you have to read first.
        Missing folders are made. To change a part of a file, use edit.
        """
        return await anyio.to_thread.run_sync(self._written, path, content, context.run)

    async def _edit(
        self,
        *,
        context: ToolContext,
        path: _Path,
        old: Annotated[str, Field(description="The text to replace, exactly as it is in the file.")],
        new: Annotated[str, Field(description="The text to put in its place.")],
        replace_all: Annotated[bool, Field(description="Replace it everywhere, not once.")] = False,
    ) -> ToolAnswer:
        """Replace a piece of a file that you have read. old must be there exactly once, with its
        spaces and line ends; give enough of the lines around it. The answer is the difference.
        """
        return await anyio.to_thread.run_sync(self._edited, path, old, new, replace_all, context.run)

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

    async def _apply(
        self,
        *,
        context: ToolContext,
        patch: Annotated[str, Field(description="From *** Begin Patch to *** End Patch, or as diff -u writes it.")],
    ) -> ToolAnswer:
        """Change several files that you have read, all or none.

        A patch is what diff -u writes, or this: *** Begin Patch, a line *** Update File: path, ***
        Add File: path or *** Delete File: path for each file, and *** End Patch. Below an updated
        file stand its pieces. Each begins with @@ and perhaps a line above the piece. Lines
        that stay begin with a space, removed ones with -, new ones with +. A line *** Move to: path
        below *** Update File moves the file.
        """
        return await anyio.to_thread.run_sync(self._patched, patch, context.run)

    def _would_patch(self, patch: str) -> str:
        return "".join(change.shown for change in self._changes.patched(read_patch(patch)))

    def _would_write(self, path: str, content: str) -> str:
        return self._changes.written(path, content).shown

    def _would_edit(self, path: str, old: str, new: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002
        return self._changes.edited(path, old, new, every=replace_all)[0].shown

    # --- the work of the tools, in a thread

    def _listed(self, path: str) -> ToolAnswer:
        with self._workspace.listed(path) as (_, descriptor):
            names = sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
            lines = [_entry(name, descriptor) for name in names[:ENTRIES]]
        more = f"; the first {ENTRIES:,} are shown" if len(names) > ENTRIES else ""
        return ToolAnswer("\n".join(lines), status=f"{len(names):,} entries{more}")

    def _page(self, path: str, offset: int, limit: int, run: CallingRun) -> ToolAnswer:
        place, content, size = self._workspace.read(path, self._file_bytes)
        if (media := media_in(path, FileContent(content, size))) is not None:
            media = replace(media, name=name_of(str(place)))
            return ToolAnswer(named(media), media=(media,))
        found = as_text(path, place, FileContent(content, size))
        encoding, whole = found.encoding, found.whole
        self._known.saw(run, str(place), content, found.text)
        cells = cells_of(found.text)
        notebook = shown(cells) if cells is not None else None
        lines = notebook.lines if notebook is not None else found.text.split("\n")
        if lines and lines[-1] == "":
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
        if cells is not None:
            notes.append(f"a notebook of {len(cells)} cells; edit takes the text of a cell")
        return ToolAnswer(
            "\n".join(page),
            status="; ".join(notes) or None,
            data={"lines": len(lines)},
            media=tuple(one for at, one in notebook.media if offset <= at + 1 <= last) if notebook is not None else (),
            reference=Reference(kind="document", path=str(place), position=position),
        )

    def _written(self, path: str, content: str, run: CallingRun) -> ToolAnswer:
        (change,) = self._changes.make([path], lambda: [self._changes.written(path, content)], run)
        new = change.before is None
        place = str(self._workspace.place(path))
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        said = "" if change.encoding == UTF_8 else f", {change.encoding}"
        status = f"{'made' if new else 'replaced'} {name_of(place)}: {lines:,} lines{said}"
        return ToolAnswer("" if new else change.shown, status=status, wrote=(place,))

    def _edited(self, path: str, old: str, new: str, every: bool, run: CallingRun) -> ToolAnswer:  # noqa: FBT001 - run_sync passes by place
        count = 0

        def plan() -> Sequence[FileChange]:
            nonlocal count
            change, count = self._changes.edited(path, old, new, every=every)
            return [change]

        (change,) = self._changes.make([path], plan, run)
        place = str(self._workspace.place(path))
        times = f"{count} places" if count > 1 else "1 place"
        return ToolAnswer(change.shown, status=f"edited {name_of(place)} in {times}", wrote=(place,))

    def _patched(self, patch: str, run: CallingRun) -> ToolAnswer:
        parts = read_patch(patch)
        paths = [path for part in parts for path in part.paths]
        changes = self._changes.make(paths, lambda: self._changes.patched(parts), run)
        lines = [f"{_DONE[part.action]} {name_of(' to '.join(part.paths))}" for part in parts]
        wrote = tuple(str(self._workspace.place(change.path)) for change in changes if change.text is not None)
        return ToolAnswer("".join(change.shown for change in changes), status="; ".join(lines), wrote=wrote)

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
