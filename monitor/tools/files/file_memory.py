"""Notes that outlive the context: notes of a project, which are read at the start, and notes that
the model writes into files.

    notes = [NotesFile("AGENTS.md"), FileMemory("memory")]
    supervisor = monitor.Supervisor(model, notes=notes)

The context holds the text of the project's notes and the index of the memory, but not the text of
the memory's files. Both stand in the instructions of a run, which no compaction touches. They stay
as they were when the run began; the answers of the tools show later changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Protocol

import anyio.to_thread
from pydantic import Field

from monitor._util.explained_options import explained
from monitor._util.text import foreign, printable
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe
from monitor.tools.artifacts.artifact_store import PAGE_LINES, page
from monitor.tools.artifacts.folder_artifacts import folder_of, write_whole
from monitor.tools.functions import FunctionTool
from monitor.tools.registry import ToolGroup
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.workspace import only_writer_of

NOTES_CHARS: Final = 40_000
"""The most characters of a project's notes, because they stand in every request."""
FILE_CHARS: Final = 100_000
"""The most characters of a file of a memory."""
MOST_FILES: Final = 200
"""The most files of a memory: each has a line in the index."""
_TITLE_CHARS: Final = 120
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Notes(Protocol):
    """Notes that stand in the instructions of a run."""

    def text(self) -> str:
        """The text for the instructions. Empty: nothing is added. Raises `ConfigError` if the notes
        cannot be read.
        """
        ...


@explained(example="monitor.tools.NotesFile('AGENTS.md')")
class NotesFile:
    """The notes of a project, e.g. `AGENTS.md`. They are read when a run begins. They stand in its
    instructions word for word, and so survive every compaction.

    `required=False`: a missing file counts as empty. Raises `ConfigError` if the file is missing,
    is no text, or has more than 40,000 characters. It is never cut.
    """

    def __init__(self, path: str | os.PathLike[str], *, required: bool = True) -> None:
        self.path = Path(path)
        self._required = required

    def text(self) -> str:
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            if not self._required:
                return ""
            raise ConfigError(f"the notes {str(self.path)!r} are not there") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the notes {str(self.path)!r} cannot be read: {describe(error)}") from error
        if len(text) > NOTES_CHARS:
            raise ConfigError(
                f"the notes {str(self.path)!r} have {len(text):,} characters, and they stand in every request: at most"
                f" {NOTES_CHARS:,}"
            )
        return f"Notes of the project, from {self.path.name}:\n\n{text.strip()}" if text.strip() else ""


@explained(example="monitor.tools.FileMemory('memory')")
class FileMemory(ToolGroup):
    """Files of findings that the model writes, by kind and name, in a folder of their own. This is
    a toolset with the tools `remember`, `recall` and `forget`. Put it also into `notes=`, so that
    its index stands in the instructions.

    - `kinds`: the names of the allowed kinds.
    - `project`: the memory of this project has a folder of its own, and only its index is shown.

    Several runs may use one folder: each file is written whole or not at all. A file that a run has
    written is named beside each summary of its history.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        kinds: Sequence[str] = ("findings", "decisions", "plans"),
        project: str | None = None,
        prefix: str = "",
    ) -> None:
        if isinstance(kinds, str) or not kinds or not all(_NAME.fullmatch(kind) for kind in kinds):
            raise ConfigError(f"kinds={kinds!r}: give a list of names of letters, digits, - and _")
        self.folder = folder_of(folder, project)
        self.kinds = tuple(kinds)
        said = f"One of: {', '.join(self.kinds)}."
        super().__init__(
            [
                FunctionTool(self._remember, name="remember", description=f"{self._remember.__doc__}\nkind: {said}"),
                FunctionTool(self._recall, name="recall", kind="read"),
                FunctionTool(self._forget, name="forget"),
            ],
            prefix=prefix,
        )

    def text(self) -> str:
        """The index, for the instructions; see `Notes`."""
        index = self.index()
        about = "Your memory, which later runs have too. Use `remember`, `recall` and `forget`."
        return f"{about} It has these files:\n{index}" if index else f"{about} It is empty."

    def index(self) -> str:
        """One line for each file: kind, name, size and first line. The rest is not loaded."""
        lines = []
        for kind in self.kinds:
            for path in self._files(kind):
                with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
                    title = printable(file.readline(_TITLE_CHARS).strip())
                    lines.append(f"- {kind}/{path.stem} ({path.stat().st_size:,} bytes): {title}")
        return "\n".join(lines)

    async def _remember(
        self,
        kind: str,
        name: Annotated[str, Field(description="A short name, of letters, digits, - and _.")],
        text: Annotated[str, Field(max_length=FILE_CHARS, description="The first line says what it is about.")],
        append: Annotated[bool, Field(description="Add to the file instead of replacing it.")] = False,  # noqa: FBT002 - named by the model
    ) -> ToolAnswer:
        """Write a finding into a file of your memory. It stays there when it has left the
        conversation, and in later runs.
        """
        said = await anyio.to_thread.run_sync(self._write, self._place(kind, name), text, append)
        return ToolAnswer(said, wrote=(f"{kind}/{name} of the memory",))

    async def _recall(
        self,
        kind: str,
        name: str,
        offset: Annotated[int, Field(ge=1, description="The line to begin at.")] = 1,
        limit: Annotated[int, Field(ge=1, le=2_000, description="How many lines.")] = PAGE_LINES,
    ) -> str:
        """Read a file of your memory, whole or in part."""
        path = self._place(kind, name)
        part = page(await anyio.to_thread.run_sync(self._read, path), offset, lines=limit)
        if part.next is None:
            return part.text or "(there is no more)"
        return f"{part.text.removesuffix(chr(10))}\n[continue with offset={part.next[0]}]"

    async def _forget(self, kind: str, name: str) -> str:
        """Remove a file of your memory that is wrong, or of no use any more."""
        path = self._place(kind, name)
        await anyio.to_thread.run_sync(self._read, path)
        await anyio.to_thread.run_sync(path.unlink)
        return f"{kind}/{name} is removed"

    # ------------------------------------------------------------------ files

    def _place(self, kind: str, name: str) -> Path:
        if kind not in self.kinds:
            raise ToolError(
                f"there is no kind {printable(kind[:100])!r}; the kinds are: {', '.join(self.kinds)}",
                kind=ToolErrorKind.INVALID_ARGUMENTS,
            )
        if not _NAME.fullmatch(name):
            raise ToolError(
                f"{printable(name[:100])!r} is no name: letters, digits, - and _, at most 64",
                kind=ToolErrorKind.INVALID_ARGUMENTS,
            )
        return self.folder / kind / f"{name}.md"

    def _files(self, kind: str) -> list[Path]:
        with suppress(OSError):
            return sorted(path for path in (self.folder / kind).iterdir() if path.suffix == ".md")
        return []

    def _read(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            index = self.index() or "(none)"
            text = f"there is no {path.parent.name}/{path.stem}; the files are:\n{index}"
            raise ToolError(text, kind=ToolErrorKind.NOT_FOUND) from None

    def _write(self, path: Path, text: str, append: bool) -> str:  # noqa: FBT001 - as the model gives it
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with only_writer_of(path.parent):  # else two runs that append would each keep its own text only
            return self._written(path, text, append)

    def _written(self, path: Path, text: str, append: bool) -> str:  # noqa: FBT001 - as above
        known = {one for kind in self.kinds for one in self._files(kind)}
        if path not in known and len(known) >= MOST_FILES:
            raise ToolError(f"the memory has {MOST_FILES} files; `forget` one, or write into one that is there")
        if append and path in known:
            text = f"{self._read(path).rstrip()}\n{text}"
        if len(text) > FILE_CHARS:
            raise ToolError(f"a file has at most {FILE_CHARS:,} characters, this one would have {len(text):,}")
        write_whole(path, text.encode("utf-8", "replace"))
        return f"{path.parent.name}/{path.stem} is written ({len(text):,} characters)"


def with_notes(instructions: str | None, notes: Sequence[Notes]) -> str | None:
    """`instructions` with the texts of `notes` behind them. Models and people wrote them, so
    nothing in them is read as the monitor's.
    """
    texts = [foreign(text) for one in notes if (text := one.text())]
    if not texts:
        return instructions
    return "\n\n".join([*([instructions.rstrip()] if instructions else []), *texts])
