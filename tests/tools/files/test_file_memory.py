"""Findings in files of their own, and notes that are never cut."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor import ConfigError
from monitor.chunks import ToolCall
from monitor.errors import ToolErrorKind
from monitor.tools import carry_out
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts
from monitor.tools.files.file_memory import FILE_CHARS, FileMemory, NotesFile, with_notes

pytestmark = pytest.mark.anyio


async def ask(memory: FileMemory, tool: str, **arguments: Any):
    tools = {one.spec.name: one for one in memory.tools()}
    return await carry_out(ToolCall("1", tool, arguments), tools)


@pytest.mark.feature("MA-04")
async def test_a_finding_is_written_read_added_to_and_removed(tmp_path: Path):
    memory = FileMemory(tmp_path / "memory")
    assert memory.index() == ""
    await ask(memory, "remember", kind="findings", name="prices", text="Prices of May\n1\n2")
    await ask(memory, "remember", kind="findings", name="prices", text="3", append=True)
    assert (await ask(memory, "recall", kind="findings", name="prices", offset=3)).text == "2\n3"
    assert (await ask(memory, "recall", kind="findings", name="prices", limit=1)).text == (
        "Prices of May\n[continue with offset=2]"
    )
    assert memory.index() == "- findings/prices (19 bytes): Prices of May"
    assert FileMemory(tmp_path / "memory").index() == memory.index()  # also for another run
    assert stat.S_IMODE((tmp_path / "memory/findings/prices.md").stat().st_mode) == 0o600
    await ask(memory, "forget", kind="findings", name="prices")
    assert memory.index() == ""


@pytest.mark.feature("MA-04")
async def test_the_memories_of_two_projects_are_kept_apart(tmp_path: Path):
    pump, valve = (FileMemory(tmp_path, project=name) for name in ("pump", "valve"))
    await ask(pump, "remember", kind="findings", name="prices", text="Prices of pumps")
    assert pump.index() == "- findings/prices (15 bytes): Prices of pumps"
    assert valve.index() == FileMemory(tmp_path).index() == ""
    assert (await ask(valve, "recall", kind="findings", name="prices")).error_kind is ToolErrorKind.NOT_FOUND


@pytest.mark.parametrize("project", ["", "..", ".", ".a", "a/b", "a\\b", "é", "a\n", "a" * 65, 3])
def test_a_project_that_is_no_name_is_refused(tmp_path: Path, project: Any):
    for kind in (FileMemory, FolderArtifacts):
        with pytest.raises(ConfigError, match="project="):
            kind(tmp_path, project=project)


@pytest.mark.parametrize("tool", ["remember", "recall", "forget"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("other", "a"), ("findings", "../a"), ("findings", ""), ("..", "a"), ("findings", "a/b"), ("findings", "é")],
)
async def test_nothing_outside_the_folder_is_touched(tmp_path: Path, tool: str, kind: str, name: str):
    (tmp_path / "a.md").write_text("mine")
    more = {"text": "x"} if tool == "remember" else {}
    answer = await ask(FileMemory(tmp_path / "memory"), tool, kind=kind, name=name, **more)
    assert answer.error_kind is ToolErrorKind.INVALID_ARGUMENTS
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.md"]  # noqa: ASYNC240 - nothing else runs


async def test_a_file_that_is_not_there_is_an_error_with_the_index(tmp_path: Path):
    memory = FileMemory(tmp_path)
    await ask(memory, "remember", kind="plans", name="now", text="First this")
    answer = await ask(memory, "recall", kind="plans", name="later")
    assert answer.error_kind is ToolErrorKind.NOT_FOUND
    assert answer.text == "Error: there is no plans/later; the files are:\n- plans/now (10 bytes): First this"


async def test_a_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    memory = FileMemory(tmp_path)
    monkeypatch.setattr("monitor.tools.files.file_memory.MOST_FILES", 2)
    for name in ("a", "b"):
        assert not (await ask(memory, "remember", kind="plans", name=name, text="x" * FILE_CHARS)).is_error
    assert "has 2 files" in (await ask(memory, "remember", kind="plans", name="c", text="x")).text
    assert "at most 100,000" in (await ask(memory, "remember", kind="plans", name="a", text="x", append=True)).text
    assert not (await ask(memory, "remember", kind="plans", name="a", text="x")).is_error


async def test_the_index_is_data_on_one_line_for_each_file(tmp_path: Path):
    memory = FileMemory(tmp_path)
    await ask(memory, "remember", kind="plans", name="a", text="\x1b[2J" + "long " * 1_000)
    assert memory.index().count("\n") == 0
    assert "\x1b" not in memory.index()
    assert len(memory.index()) < 200


@pytest.mark.parametrize("kinds", [[], "findings", ["../up"], [""]])
def test_kinds_that_are_no_names_are_refused(tmp_path: Path, kinds: Any):
    with pytest.raises(ConfigError, match="kinds="):
        FileMemory(tmp_path, kinds=kinds)


@pytest.mark.feature("CC-08")
def test_notes_are_whole_or_refused(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    with pytest.raises(ConfigError, match="are not there"):
        NotesFile(path).text()
    assert NotesFile(path, required=False).text() == ""
    path.write_bytes(b"\xef\xbb\xbf  Rule one.\n\n  Rule two.\n")
    assert NotesFile(path).text() == "Notes of the project, from AGENTS.md:\n\nRule one.\n\n  Rule two."
    path.write_text("x" * 40_001)
    with pytest.raises(ConfigError, match="40,001 characters"):
        NotesFile(path).text()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        NotesFile(path).text()
    with pytest.raises(ConfigError, match="cannot be read"):
        NotesFile(tmp_path).text()


def test_notes_stand_behind_the_instructions():
    class Said:
        def __init__(self, text: str) -> None:
            self._text = text

        def text(self) -> str:
            return self._text

    assert with_notes("Work.\n", [Said("a"), Said(""), Said("b")]) == "Work.\n\na\n\nb"
    assert with_notes("Work.\n", []) == "Work.\n"
    assert with_notes(None, [Said("")]) is None


async def test_no_note_of_many_runs_that_append_is_lost(tmp_path: Path):
    async def add(number: int) -> None:
        note = {"kind": "findings", "name": "all", "text": f"<{number}>", "append": True}
        await ask(FileMemory(tmp_path), "remember", **note)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(add, number)
    text = (tmp_path / "findings" / "all.md").read_text()
    assert sorted(text.split()) == sorted(f"<{number}>" for number in range(20))
