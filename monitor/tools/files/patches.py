"""Patches over several files: read from a text, and applied to the texts of the files.

Two forms are read. One begins with `*** Begin Patch` and names its files by `*** Add File:`,
`*** Update File:` and `*** Delete File:`; models are trained on it. The other one is what `diff -u`
and `git diff` write. In both a piece is looked for by its lines, which must be there exactly.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from monitor._util.hashing import fingerprint
from monitor.chunks import Media
from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.base import CallingRun, excerpt
from monitor.tools.files.edits import KnownFiles, TextFile, difference, encoded, read_text, replaced
from monitor.tools.processes.printed_output import screen_text
from monitor.tools.results.call_results import is_base64, named
from monitor.tools.workspace import NO_FILE, UTF_8, Encoding, Workspace

PatchAction: TypeAlias = Literal["add", "update", "delete"]
_BEGIN: Final = "*** Begin Patch"
_ACTIONS: Final[dict[str, PatchAction]] = {
    "*** Add File: ": "add",
    "*** Update File: ": "update",
    "*** Delete File: ": "delete",
}
_MOVE: Final = "*** Move to: "
_END_OF_FILE: Final = "*** End of File"
_NOWHERE: Final = "/dev/null"
_AT: Final = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
"""The counts are not used: models often get them wrong."""
_NO_FILES: Final = (" 120000", " 160000")
"""Modes of git for a link and for a submodule."""
_NO_NEWLINE: Final = "\\"
"""Begins the line which says that the line before has no newline."""


@dataclass(slots=True)
class Hunk:
    """One piece of a file, before and after."""

    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    near: str = ""
    """A line above the piece, which says where it is. Empty: anywhere."""
    line: int | None = None
    """The number of the first line of the piece, from 1, of which `diff` knew. It may be wrong."""
    at_end: bool = False
    """The piece is the end of the file."""
    old_newline: bool = True
    new_newline: bool = True
    """Whether the last line of `old`, or of `new`, has a newline."""
    blanks: int = 0
    """Empty lines that were read last. They belong to the piece only if more of it follows."""

    def take(self, line: str) -> bool:
        """Take in a line of the patch. False: it is none of a piece."""
        mark, rest = line[:1], line[1:]
        if not mark:
            self.blanks += 1
            return True
        if mark not in " -+":
            return False
        empty = [""] * self.blanks
        self.blanks = 0
        self.old += [*empty, *([rest] if mark != "+" else ())]
        self.new += [*empty, *([rest] if mark != "-" else ())]
        return True


@dataclass(slots=True)
class FilePatch:
    """What a patch does with one file."""

    path: str
    action: PatchAction
    hunks: list[Hunk] = field(default_factory=list)
    new_path: str | None = None
    """Where the file is moved to."""

    @property
    def paths(self) -> list[str]:
        """The files that are changed."""
        return [self.path, *([self.new_path] if self.new_path is not None else ())]

    @property
    def content(self) -> str:
        """The text of an added file."""
        lines = [line for hunk in self.hunks for line in hunk.new]
        newline = not self.hunks or self.hunks[-1].new_newline
        return "\n".join(lines) + ("\n" if lines and newline else "")


def read_patch(text: str) -> list[FilePatch]:
    """The files of a patch. Raises `ToolError`, with the number of the line, if it is none."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    patches = _begun(lines) if lines[0].strip() == _BEGIN else _unified(lines)
    paths = [path for one in patches for path in one.paths]
    if not paths:
        raise _wrong(f"this is no patch: begin with {_BEGIN!r} or with the lines '--- a/file' and '+++ b/file'")
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise _wrong(f"{excerpt(twice)} is there twice; put all its changes into one part")
    return patches


def patched(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """`text` with the pieces replaced. Raises `ToolError` if a piece is not there, or is there more
    than once.
    """
    file = _Lines(path, text)
    newline = text.endswith("\n")
    after: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        at = file.find(hunk, done, number)
        after += [*file.lines[done:at], *hunk.new]
        done = at + len(hunk.old)
        if done == len(file.lines) and hunk.old_newline is not hunk.new_newline:
            newline = hunk.new_newline
    after += file.lines[done:]
    return "\n".join(after) + ("\n" if newline and after else "")


class _Lines:
    """The lines of a file, in which pieces are looked for."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self.lines = text.removesuffix("\n").split("\n") if text else []
        self._text = "".join(f"\n{line}" for line in self.lines) + "\n"
        """Each line with a newline before it, so that a search finds whole lines only."""
        self._starts = [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]

    def find(self, hunk: Hunk, begin: int, number: int) -> int:
        """The index of the first line of a piece, from `begin` on. `number`: of the piece."""
        what = f"piece {number} of {excerpt(self._path)}"
        if hunk.near:
            begin = self._below(hunk.near, begin, what)
        if not hunk.old:
            known = begin if hunk.near else len(self.lines)
            return known if hunk.line is None else min(max(hunk.line, begin), len(self.lines))
        wanted = "".join(f"\n{line}" for line in hunk.old) + "\n"
        found = self._places(wanted, begin, hunk)
        if not found:
            said = f"{what} is not there; its first line is {excerpt(hunk.old[0])}"
            raise ToolError(f"{said}. Read the file again; nothing was changed", kind=ToolErrorKind.NOT_FOUND)
        if len(found) > 1 and not hunk.near and hunk.line is None:
            raise _wrong(
                f"{what} is there more than once, at the lines {found[0] + 1} and {found[1] + 1}. Give more lines"
                " around it, or a line above it behind @@"
            )
        return found[0] if hunk.line is None else min(found, key=lambda at: abs(at + 1 - (hunk.line or 0)))

    def _places(self, wanted: str, begin: int, hunk: Hunk) -> list[int]:
        """The first two places of a piece; or, where a line is known, the nearest to it."""
        if hunk.at_end:
            at = len(self.lines) - len(hunk.old)
            return [at] if at >= begin and self._text.endswith(wanted) else []
        middle = self._starts[min(max((hunk.line or 1) - 1, begin), len(self.lines))]
        if hunk.line is None:
            first = self._text.find(wanted, middle)
            found = [first, self._text.find(wanted, first + 1)] if first >= 0 else []
        else:
            before = self._text.rfind(wanted, self._starts[begin], middle + len(wanted) - 1)
            found = [before, self._text.find(wanted, middle)]
        return [bisect_left(self._starts, at) for at in found if at >= 0]

    def _below(self, near: str, begin: int, what: str) -> int:
        for at in range(begin, len(self.lines)):
            if self.lines[at].strip() == near:
                return at + 1
        raise ToolError(f"{what}: there is no line {excerpt(near)}; nothing was changed", kind=ToolErrorKind.NOT_FOUND)


# ---------------------------------------------------------------------- *** Begin Patch


def _begun(lines: Sequence[str]) -> list[FilePatch]:
    patches: list[FilePatch] = []
    hunk: Hunk | None = None
    for number, line in enumerate(lines[1:], 2):
        begin = next((one for one in _ACTIONS if line.startswith(one)), None)
        if line.strip() == "*** End Patch":
            break
        if begin is not None:
            patches.append(FilePatch(line.removeprefix(begin).strip(), _ACTIONS[begin]))
            hunk = None
        elif not patches:
            raise _wrong(f"line {number} of the patch: {excerpt(line)} stands before the first file")
        elif line.startswith(_MOVE) and not patches[-1].hunks:
            patches[-1].new_path = line.removeprefix(_MOVE).strip()
        elif line.strip() == _END_OF_FILE and hunk is not None:
            hunk.at_end = True
        elif line.startswith("@@"):
            hunk = Hunk(near=line.removeprefix("@@").removesuffix("@@").strip())
            patches[-1].hunks.append(hunk)
        else:
            if hunk is None:
                hunk = Hunk()
                patches[-1].hunks.append(hunk)
            _take(hunk, patches[-1], line, number)
    return patches


def _take(hunk: Hunk, patch: FilePatch, line: str, number: int) -> None:
    if (
        (patch.action == "add" and line[:1] not in ("+", ""))
        or (patch.action == "delete" and line)
        or not hunk.take(line)
    ):
        begin = {"add": "'+'", "update": "' ', '-' or '+'", "delete": "'***'"}[patch.action]
        raise _wrong(f"line {number} of the patch: {excerpt(line)} does not begin with {begin}")


# ---------------------------------------------------------------------- diff -u


def _unified(lines: Sequence[str]) -> list[FilePatch]:
    patches: list[FilePatch] = []
    moved: str | None = None
    hunk: Hunk | None = None
    for at, line in enumerate(lines):
        below = lines[at + 1] if at + 1 < len(lines) else ""
        if line.startswith("diff --git "):
            hunk = None
        elif line.startswith("--- ") and below.startswith("+++ "):
            patches.append(_of_names(_named(line), _named(below)))
            hunk = None
        elif (found := _AT.match(line)) is not None and patches:
            hunk = Hunk(line=int(found[1]))
            patches[-1].hunks.append(hunk)
        elif hunk is not None and line.startswith(_NO_NEWLINE):
            _without_newline(hunk, lines[at - 1])
        elif hunk is not None:
            if not hunk.take(line):
                raise _wrong(f"line {at + 1} of the patch: {excerpt(line)} does not begin with ' ', '-' or '+'")
        elif line.startswith("rename from "):
            moved = line.removeprefix("rename from ")
        elif line.startswith("rename to ") and moved is not None:
            patches.append(FilePatch(moved, "update", new_path=line.removeprefix("rename to ")))
        elif line.startswith(("new file mode ", "new mode ")) and line.endswith(_NO_FILES):
            raise _wrong(f"line {at + 1} of the patch: {excerpt(line)} makes a link or a submodule, and no file")
        elif line.startswith(("@@", "Binary files ", "GIT binary patch")):
            raise _wrong(f"line {at + 1} of the patch: {excerpt(line)} cannot be read; write '@@ -1,2 +1,3 @@'")
    return _with_moves(patches)


def _without_newline(hunk: Hunk, line: str) -> None:
    if not line.startswith("+"):
        hunk.old_newline = False
    if not line.startswith("-"):
        hunk.new_newline = False


def _named(line: str) -> str:
    """The path behind `---` or `+++`, without the time that `diff` writes behind it."""
    return line[4:].partition("\t")[0].strip()


def _of_names(before: str, after: str) -> FilePatch:
    if before.startswith("a/") and (after.startswith("b/") or after == _NOWHERE):
        before = before[2:]
    after = after.removeprefix("b/")
    if before == _NOWHERE:
        return FilePatch(after, "add")
    if after == _NOWHERE:
        return FilePatch(before, "delete")
    return FilePatch(before, "update", new_path=None if after == before else after)


def _with_moves(patches: Sequence[FilePatch]) -> list[FilePatch]:
    """`git diff` names a moved file twice, if it has changed too: that is one part."""
    made: dict[tuple[str, str | None], FilePatch] = {}
    others: list[FilePatch] = []
    for one in patches:
        known = made.get((one.path, one.new_path)) if one.new_path is not None else None
        if known is not None:
            known.hunks += one.hunks
            continue
        made[one.path, one.new_path] = one
        others.append(one)
    return others


def _wrong(text: str) -> ToolError:
    return ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)


# --------------------------------------------------------------------------------------------------
# Notebooks of Jupyter: read as their cells, and edited in the source of a cell.

MEDIA_CHARS: Final = 5_000_000
"""The most characters of base64 that are shown of one notebook: the bound of one image."""
IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Outputs that are shown as media. Of the others their text is shown."""


@dataclass(slots=True)
class ShownNotebook:
    """The cells of a notebook, as lines."""

    lines: list[str] = field(default_factory=list)
    media: list[tuple[int, Media]] = field(default_factory=list)
    """The images of its outputs, each with the index of its line."""


def cells_of(text: str) -> list[dict[str, Any]] | None:
    """The cells in the text of a file. `None`: it is no notebook."""
    found = _notebook(text)
    return found[1] if found is not None else None


def shown(cells: Sequence[Mapping[str, Any]]) -> ShownNotebook:
    """The cells as a model reads them: the source of each, and its outputs."""
    made = ShownNotebook()
    for number, cell in enumerate(cells, 1):
        made.lines.append(f"<cell {number}: {cell.get('cell_type', 'unknown')}>")
        made.lines += _lines(_joined(cell.get("source")))
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, Mapping):
                _show_output(made, output)
    return made


def edited(text: str, old: str, new: str, *, every: bool) -> str:
    """The text of a notebook with `new` in the place of `old` in the source of a cell. The outputs
    of a changed cell are removed: they came from its old source.

    Raises `ToolError` as `replaced` does, over the sources of all cells.
    """
    found = _notebook(text)
    assert found is not None  # noqa: S101 - the caller has asked
    notebook, cells = found
    sources = [_joined(cell.get("source")) for cell in cells]
    holding = [number for number, source in enumerate(sources) if old and old in source]
    if len(holding) > 1 and not every:
        named = ", ".join(str(number + 1) for number in holding[:10])
        said = f"old is in the cells {named}. Give more of the lines around it, so that it is there once"
        raise ToolError(f"{said}; or set replace_all", kind=ToolErrorKind.INVALID_ARGUMENTS)
    if not holding:
        replaced("\n".join(sources), old, new, every=every)  # says why not
        said = "old is in no single cell of this notebook"
        raise ToolError(said, kind=ToolErrorKind.NOT_FOUND)
    for number in holding:
        cell = cells[number]
        cell["source"] = replaced(sources[number], old, new, every=every).splitlines(keepends=True)
        if "outputs" in cell:
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _notebook(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    if not text.lstrip().startswith("{") or '"nbformat"' not in text:
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = read.get("cells") if isinstance(read, dict) and isinstance(read.get("nbformat"), int) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        return None
    return read, cells


def _show_output(made: ShownNotebook, output: Mapping[str, Any]) -> None:
    for line in _output_lines(output):
        made.lines.append(line)
    data = output.get("data")
    for mime_type in IMAGES:
        content = "".join(_joined(data.get(mime_type)).split()) if isinstance(data, Mapping) else ""
        if not is_base64(content):
            continue
        image = Media(mime_type, content)
        room = MEDIA_CHARS - sum(len(one.data or "") for _, one in made.media)
        if len(content) <= room:
            made.media.append((len(made.lines), image))
        made.lines.append(f"<output: {named(image)}{'' if len(content) <= room else ', too large to be shown'}>")


def _output_lines(output: Mapping[str, Any]) -> Iterator[str]:
    data = output.get("data")
    if "traceback" in output:
        said = _joined(output["traceback"], "\n")
    elif isinstance(data, Mapping):
        said = _joined(data.get("text/plain"))
    else:
        said = _joined(output.get("text"))
    if said:
        yield f"<output: {output.get('name') or output.get('output_type', 'unknown')}>"
        yield from _lines(screen_text(said))


def _joined(value: object, between: str = "") -> str:
    """A text, which notebooks hold in one piece or as a list of lines."""
    return between.join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


# --------------------------------------------------------------------------------------------------
# Changes of files: planned first, then made, all or none, as the only writer.


JOURNAL: Final = ".agent-monitor-patch-"
"""Begins the name of a file in the workspace that lists changes which are being made."""
JOURNAL_BYTES: Final = 256 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class FileChange:
    """One change of a file, which is not made yet."""

    path: str
    before: TextFile | None
    """`None`: there is no such file."""
    text: str | None
    """What the file will hold. `None`: it will be removed."""
    encoding: Encoding = UTF_8

    @property
    def shown(self) -> str:
        """The difference, for the model and for people."""
        if self.before is None:
            return difference(self.path, "", self.text or "")
        if not self.before.whole:
            return "the whole file is replaced\n"
        return difference(self.path, self.before.text, self.text or "")


class FileChanges:
    """Plans and makes the changes of files in a workspace.

    `protected`: names of folders and files that are not changed, in lower case. `known`: what each
    run has read. `None`: nothing is compared with it.
    """

    def __init__(
        self, workspace: Workspace, *, protected: Collection[str], file_bytes: int, known: KnownFiles | None
    ) -> None:
        self._workspace = workspace
        self._protected = protected
        self._file_bytes = file_bytes
        self._known = known
        self.take_back()

    # ------------------------------------------------------------------ plans

    def written(self, path: str, content: str) -> FileChange:
        """The change that writes a whole file."""
        before = self.before(path)
        if before is None:
            encoded(content, UTF_8)
            return FileChange(path, None, content)
        try:
            before.encoding.encode(content)
        except UnicodeEncodeError:
            encoded(content, UTF_8)
            return FileChange(path, before, content)
        return FileChange(path, before, content, before.encoding)

    def edited(self, path: str, old: str, new: str, *, every: bool) -> tuple[FileChange, int]:
        """The change that replaces a piece of a file, and in how many places."""
        self._check_free(path)
        before = self.whole(path)
        if before.encoding.crlf:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if cells_of(before.text) is not None and old not in before.text:
            after = edited(before.text, old, new, every=every)
        else:
            after = replaced(before.text, old, new, every=every)
        encoded(after, before.encoding)
        return FileChange(path, before, after, before.encoding), max(1, before.text.count(old))

    def patched(self, patches: Sequence[FilePatch]) -> list[FileChange]:
        """The changes of a patch. Files are removed last, so a patch that fails has lost none."""
        changes = [change for one in patches for change in self._patched(one)]
        return sorted(changes, key=lambda change: change.text is None)

    def _patched(self, patch: FilePatch) -> Iterator[FileChange]:
        if patch.action == "add":
            self._check_missing(patch.path)
            yield FileChange(patch.path, None, patch.content)
            return
        self._check_free(patch.path)
        before = self.whole(patch.path)
        if patch.action == "delete":
            yield FileChange(patch.path, before, None)
            return
        after = patched(patch.path, before.text, patch.hunks)
        encoded(after, before.encoding)
        if patch.new_path is None and after == before.text:
            said = f"the patch changes nothing of {excerpt(patch.path)}"
            raise ToolError(said, kind=ToolErrorKind.INVALID_ARGUMENTS)
        if patch.new_path is None:
            yield FileChange(patch.path, before, after, before.encoding)
            return
        self._check_missing(patch.new_path)
        yield FileChange(patch.path, before, None)
        yield FileChange(patch.new_path, None, after, before.encoding)

    def _check_missing(self, path: str) -> None:
        if self.before(path) is not None:
            said = f"{excerpt(path)} is there already, so it is not made; update it"
            raise ToolError(said, kind=ToolErrorKind.INVALID_ARGUMENTS)

    def before(self, path: str) -> TextFile | None:
        """The file that may be changed, as it is now. `None`: there is none. Raises `ToolError` if
        it is protected.
        """
        self._check_free(path)
        try:
            return read_text(self._workspace, path, self._file_bytes)
        except ToolError as error:
            if error.kind is not ToolErrorKind.NOT_FOUND:
                raise
            return None

    def whole(self, path: str) -> TextFile:
        """The file now. Raises `ToolError` if it is not there, or too large to be edited."""
        found = read_text(self._workspace, path, self._file_bytes)
        if not found.whole:
            raise ToolError(f"{excerpt(path)} has more than {self._file_bytes:,} bytes: use shell")
        return found

    def _check_free(self, path: str) -> None:
        """Raise `ToolError` if the real place of `path` is protected."""
        for part in self._workspace.place(path).parts:
            if part.casefold() in self._protected:
                raise ToolError(f"{excerpt(path)}: {part} is not changed by this tool", kind=ToolErrorKind.PERMISSION)

    # ------------------------------------------------------------------ making them

    def make(
        self, paths: Sequence[str], plan: Callable[[], Sequence[FileChange]], run: CallingRun
    ) -> Sequence[FileChange]:
        """Make the changes that `plan` returns, all or none. `paths`: those that it may change.
        `plan` is called when nobody else writes there.

        Raises `ToolError` if a change cannot be made, or if the run has not read what it replaces.
        """
        for path in paths:
            self._check_free(path)
        plan()  # what cannot be made makes no folder
        with self._workspace.only_writer(*paths):
            changes = plan()
            if self._known is not None:
                for change in changes:
                    if change.before is not None:
                        self._known.check(run, change.path, change.before)
            made: list[FileChange] = []
            with self._journal(changes):
                try:
                    for change in changes:
                        self._make(change)
                        made.append(change)
                except BaseException:
                    for change in reversed(made):
                        self._undo(change)
                    raise
            for change in changes if self._known is not None else ():
                self._note(change, run)
        return changes

    @contextmanager
    def _journal(self, changes: Sequence[FileChange]) -> Iterator[None]:
        """Several changes stand in a file while they are made, so that they can be taken back after
        this program has died.
        """
        if len(changes) < 2:  # noqa: PLR2004 - one change is made by one rename
            yield
            return
        name = f"{JOURNAL}{secrets.token_hex(4)}"
        entries = [
            {
                "path": change.path,
                "before": None if change.before is None else base64.b64encode(change.before.content.content).decode(),
                "after": None if change.text is None else fingerprint(encoded(change.text, change.encoding)),
            }
            for change in changes
        ]
        self._workspace.write(name, json.dumps(entries).encode())
        try:
            yield
        finally:
            self._workspace.remove(name)

    def take_back(self) -> None:
        """Take back changes that a program has begun and not finished, because it died. A file that
        has changed since is left as it is.
        """
        root = self._workspace.root
        for name in [one.name for one in root.glob(f"{JOURNAL}*")]:
            with suppress(ToolError, ValueError, KeyError, TypeError, AttributeError):  # it may be anybody's file
                entries = json.loads(read_text(self._workspace, name, JOURNAL_BYTES).text)
                with self._workspace.only_writer(*(entry["path"] for entry in entries)):
                    if not (root / name).exists():  # the one who made the changes lives, and has finished
                        continue
                    for entry in reversed(entries):
                        self._take_back(entry["path"], entry["before"], entry["after"])
                    self._workspace.remove(name)

    def _take_back(self, path: str, before: str | None, after: str | None) -> None:
        with suppress(ToolError):
            found = self.before(path)
            if (None if found is None else fingerprint(found.content.content)) != after:
                return
            if before is not None:
                self._workspace.write(path, base64.b64decode(before))
            elif found is not None:
                self._workspace.remove(path)

    def _make(self, change: FileChange) -> None:
        before = change.before.content if change.before is not None else NO_FILE
        if change.text is None:
            self._workspace.remove(change.path)
        else:
            self._workspace.write(change.path, encoded(change.text, change.encoding), before=before)

    def _undo(self, change: FileChange) -> None:
        with suppress(ToolError):
            if change.before is None:
                self._workspace.remove(change.path)
            elif change.before.whole:
                self._workspace.write(change.path, change.before.content.content)

    def _note(self, change: FileChange, run: CallingRun) -> None:
        assert self._known is not None  # noqa: S101 - the caller sees to it
        if change.text is not None:
            place = str(self._workspace.place(change.path))
            data = encoded(change.text, change.encoding)
            self._known.saw(run, place, data[: self._file_bytes], change.text)
