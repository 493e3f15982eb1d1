"""Changes of files: planned first, then made, all or none, as the only writer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.base import CallingRun, excerpt
from monitor.tools.files.edits import difference, replaced
from monitor.tools.files.known_files import KnownFiles
from monitor.tools.files.notebooks import cells_of, edited
from monitor.tools.files.patches import FilePatch, patched
from monitor.tools.files.text_files import TextFile, encoded, read_text
from monitor.tools.workspace.encodings import UTF_8, Encoding
from monitor.tools.workspace.workspace import NO_FILE, Workspace


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
        if patch.deed == "add":
            self._check_missing(patch.path)
            yield FileChange(patch.path, None, patch.content)
            return
        self._check_free(patch.path)
        before = self.whole(patch.path)
        if patch.deed == "delete":
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
