"""A run whose tools say where their texts came from: what is not shown twice, and what stays named
when the texts have left the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.context import Extractive, KeepTokens
from monitor.context.reduce import PruneResults
from monitor.messages import AssistantMessage
from monitor.testing import call
from monitor.tools import FileMemory, FileTools, ToolAnswer, Workspace
from monitor.tools.artifacts.artifact_store import InMemoryArtifacts, Reference
from tests.runs.driving import Drive, drive, text_of_user

pytestmark = pytest.mark.anyio

DONE = call("terminate", status="success")
CLEARS = PruneResults(protect_turns=0, protect_tokens=0, more_than_tokens=0)


def read(path: str, **more: Any) -> Any:
    return call("read_file", path=path, **more)


def lines(word: str) -> str:
    return "".join(f"{word} {number}\n" for number in range(500))


@pytest.fixture
def files(tmp_path: Path) -> FileTools:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(lines("note"))
    return FileTools(Workspace(tmp_path), read_first=False)


async def compacted(*answers: Any, **options: Any) -> Drive:
    """A run in which the tool `compact` puts a summary in the place of everything before it."""

    async def compact() -> str:
        """Make the history smaller."""
        await driven.run.compact()
        return "done"

    driven = Drive(
        *answers,
        **{**options, "tools": [*options["tools"], compact]},
        window=100_000,
        compaction=monitor.Compaction(steps=(), keep=KeepTokens(1), summarizer=Extractive()),
    )
    return await driven.go()


def texts(history: Sequence[monitor.messages.Message]) -> list[str]:
    """The results of calls in a history."""
    return [result.text for one in history if isinstance(one, AssistantMessage) for result in one.results]


def cleared(run: Drive) -> str:
    """The first result, when a reducer has cleared it."""
    return texts(CLEARS.reduce(run.run.history))[0]


@pytest.mark.feature("MA-01")
async def test_a_file_that_was_read_can_be_had_again_by_its_reference(files: FileTools):
    store = InMemoryArtifacts()
    run = await drive(
        read("./a.txt", offset=101, limit=300), DONE, tools=[files], results=monitor.runs.Results(artifacts=store)
    )
    (kept,) = await store.artifacts()
    assert kept.references == (Reference(kind="document", path="a.txt", position="lines 101 to 400"),)
    assert cleared(run).endswith(f"kept as artifact {kept.ref} document a.txt lines 101 to 400]")
    assert (await store.read(kept.ref)).startswith("note 100\n")


@pytest.mark.feature("MA-01", "MA-03")
async def test_a_tool_of_ones_own_gives_a_reference_with_its_answer():
    async def ask(city: str) -> ToolAnswer:
        """Ask for the weather."""
        return ToolAnswer(lines(city), status="HTTP 200", reference=Reference(kind="reply", request={"city": city}))

    run = await drive(
        call("ask", city="Rom"),
        call("ask", city="Rom"),
        DONE,
        tools=[ask],
        results=monitor.runs.Results(artifacts=InMemoryArtifacts()),
    )
    assert cleared(run).endswith('reply {"city":"Rom"}]')
    assert run.results(1)[0].text.startswith("HTTP 200\n[not changed since it was shown above; read_artifact(ref=")
    assert run.results(1)[0].truncated


@pytest.mark.feature("MA-03")
async def test_a_file_is_shown_again_only_when_it_has_changed(files: FileTools):
    store = InMemoryArtifacts()
    change = call("write_file", path="a.txt", content=lines("new note"))
    run = await drive(
        read("a.txt"),
        read("a.txt"),
        change,
        read("a.txt"),
        DONE,
        tools=[files],
        results=monitor.runs.Results(artifacts=store),
    )
    ref = (await store.artifacts())[0].ref
    assert run.results(0)[0].text.startswith("note 0\n")
    assert run.results(1)[0].text == (
        f'[not changed since it was shown above; read_artifact(ref="{ref}") has all of it: document a.txt]'
    )
    assert run.results(3)[0].text.startswith("new note 0\n")


@pytest.mark.feature("MA-03")
async def test_another_source_and_another_part_are_shown(files: FileTools):
    parts = [read("a.txt"), read("b.txt"), read("a.txt", limit=400)]
    run = await drive(*parts, DONE, tools=[files], results=monitor.runs.Results(artifacts=InMemoryArtifacts()))
    assert not [run.results(at)[0].text for at in range(3) if "not changed" in run.results(at)[0].text]


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_loop_of_reads_is_found_one_round_later_with_a_store_than_without(files: FileTools, names: str):
    """The second answer, which says that nothing has changed, is a new one."""
    reads = [read(f"{name}.txt") for name in names] * 10
    turns = []
    for store in (None, InMemoryArtifacts()):
        run = await drive(*reads, DONE, tools=[files], results=monitor.runs.Results(artifacts=store))
        assert run.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
        turns.append(next(one.turn for one in run.of(monitor.events.DetectionRaised) if one.detection.level == "loop"))
    assert turns[1] - turns[0] == len(names)


@pytest.mark.feature("MA-03")
async def test_without_a_store_a_file_is_shown_each_time(files: FileTools):
    run = await drive(read("a.txt"), read("a.txt"), DONE, tools=[files])
    assert run.results(0)[0].text == run.results(1)[0].text


@pytest.mark.feature("MA-03")
async def test_a_text_that_a_summary_has_replaced_is_shown_again(files: FileTools):
    run = await compacted(
        read("a.txt"),
        call("compact"),
        read("a.txt"),
        DONE,
        tools=[files],
        results=monitor.runs.Results(artifacts=InMemoryArtifacts()),
    )
    assert len(run.of(monitor.events.CompactionFinished)) == 1
    assert run.results(-2)[0].text.startswith("note 0\n")


@pytest.mark.feature("MA-03")
async def test_a_text_that_was_cleared_is_shown_again(files: FileTools):
    history: list[monitor.messages.Message] = []
    store = InMemoryArtifacts()
    for task in ("read it", "again"):
        run = await drive(
            read("a.txt"),
            DONE,
            tools=[files],
            results=monitor.runs.Results(artifacts=store),
            history=history,
            task=task,
        )
        history = [*CLEARS.reduce(run.run.history)]
        assert not [one for one in texts(history) if one.startswith("note 0")]
        assert texts(run.run.history)[-2].startswith("note 0")


@pytest.mark.feature("MA-04")
@pytest.mark.parametrize(
    ("write", "named"),
    [
        (call("remember", kind="findings", name="prices", text="Prices of May"), "findings/prices of the memory"),
        (call("write_file", path="./report.md", content="x"), "report.md"),
        (call("edit", path="a.txt", old="499", new="done"), "a.txt"),
        (call("publish"), "out/page.html"),
    ],
)
async def test_a_file_that_the_run_wrote_is_named_beside_the_summary(
    files: FileTools, tmp_path: Path, write: Any, named: str
):
    async def publish() -> ToolAnswer:
        """Publish."""
        return ToolAnswer("ok", wrote=("out/page.html",))

    memory = FileMemory(tmp_path / "memory")
    run = await compacted(
        write,
        read("b.txt"),
        call("compact"),
        DONE,
        tools=[files, memory, publish],
        instructions=monitor.runs.Instructions(notes=[memory]),
    )
    shown = text_of_user(run.requests[-1].messages[0])
    assert f"Files that were changed: 1\n- {named}\n" in shown.replace("[agent-monitor] ", "")
    assert "Files that were read: 1\n- b.txt\n" in shown
    assert run.requests[-1].instructions == run.requests[0].instructions


@pytest.mark.feature("MA-04")
async def test_a_call_that_failed_has_written_nothing():
    async def publish() -> ToolAnswer:
        """Publish."""
        return ToolAnswer("no", is_error=True, wrote=("out/page.html",))

    run = await drive(call("publish"), DONE, tools=[publish])
    assert run.results(0)[0].wrote == ()
