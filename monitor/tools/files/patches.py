"""Patches over several files: read from a text, and applied to the texts of the files.

Two forms are read. One begins with `*** Begin Patch` and names its files by `*** Add File:`,
`*** Update File:` and `*** Delete File:`; models are trained on it. The other one is what `diff -u`
and `git diff` write. In both a piece is looked for by its lines, which must be there exactly.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.base import excerpt

Deed: TypeAlias = Literal["add", "update", "delete"]
_BEGIN: Final = "*** Begin Patch"
_DEEDS: Final[dict[str, Deed]] = {
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
    deed: Deed
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
        begin = next((one for one in _DEEDS if line.startswith(one)), None)
        if line.strip() == "*** End Patch":
            break
        if begin is not None:
            patches.append(FilePatch(line.removeprefix(begin).strip(), _DEEDS[begin]))
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
    if (patch.deed == "add" and line[:1] not in ("+", "")) or (patch.deed == "delete" and line) or not hunk.take(line):
        begin = {"add": "'+'", "update": "' ', '-' or '+'", "delete": "'***'"}[patch.deed]
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
