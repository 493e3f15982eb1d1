"""Sessions as files: exported, imported, forked, kept for a while, removed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.chunks import TextDelta, ToolCall
from monitor.errors import SessionBusy, SessionDamaged, StoreError
from monitor.events import Nudged, ToolFinished, ToolStarted, TurnEnded
from monitor.messages import ApprovalAnswer, CallState
from monitor.outcome import Turn
from monitor.sessions import (
    Changes,
    RunRecord,
    SessionReader,
    SQLiteSession,
    TurnChunks,
    branch_note,
    compaction,
    context_edit,
    copy_session,
    exported,
    fork,
    imported,
    marker,
    message,
    remove,
)
from tests.sessions.making import assistant, call, request, result, says, summary, user

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]

LONG = "a text that stands in several places, and is stored once. " * 3


async def everything(path: Path) -> list[str]:
    """A session with something of every kind. The ids of its nodes."""
    async with SQLiteSession(path) as session:
        await session.commit(Changes(runs=[RunRecord(id="r", agent="a", data={"x": [1]}), RunRecord(id="s")]))
        first, *_ = await session.append(says("a\0\ud800 漢", run="r", turn=1, tokens=5), says("b"))
        odd = replace(call("1"), arguments={"$node": [1, 2], "$as_is": LONG, "text": LONG}, turn=1)
        turn = Turn(number=1, text=LONG, tool_calls=(ToolCall("1", "look", {"text": LONG}),))
        said = assistant(LONG, "1")
        await session.commit(
            Changes(
                nodes=[message(said, run="r", turn=1)],
                calls=[odd],
                requests=[request("q"), request("p")],
                answers=[ApprovalAnswer(id="q", decision="approved", by="me")],
                events=[Nudged(1.5, 1, LONG), ToolStarted(1.75, 1, turn.tool_calls[0])],
                events_run="r",
                chunks=[TurnChunks("r", 1, ((0.1, TextDelta("\udc00")),))],
            )
        )
        running = replace(odd, state=CallState.RUNNING, attempt=1, started_at_s=0.1 + 0.2)
        answer = result("1", f"{LONG} seen")
        await session.advance(running)
        await session.commit(
            Changes(
                nodes=[message(answer, run="r", turn=1)],
                calls=[replace(running, state=CallState.DONE, text=answer.text)],
                events=[ToolFinished(2.0, 1, answer, 0.25), TurnEnded(2.5, turn)],
                events_run="r",
            )
        )
        await session.append(context_edit(first.id, user("short")), marker("m"), branch_note("why"))
        await session.append(compaction(summary(first.id)), says("x" * 70_000))
        await session.switch_node(first.id, branch="früher")
        return [node.id for node in await session.nodes()]


def lines_of(path: Path) -> list[str]:
    with SessionReader(path) as reader:
        return list(exported(reader))


async def test_export_import_export_gives_equal_bytes(path: Path, tmp_path: Path):
    await everything(path)
    lines = lines_of(path)
    assert {json.loads(line)["type"] for line in lines} == {
        *("session", "run", "node", "head", "call", "approval", "event", "chunks")
    }
    copy = tmp_path / "copy.session"
    imported((f"{line}\n" for line in lines), copy)
    assert lines_of(copy) == lines
    with SessionReader(path) as one, SessionReader(copy) as other:
        assert (one.id, one.nodes(), one.calls(), one.events(), one.context()) == (
            *(other.id, other.nodes(), other.calls(), other.events(), other.context()),
        )
        assert other.verify() == ()
    async with SQLiteSession(copy) as session:
        await session.append(says("goes on"))
        assert await session.verify() == ()


async def test_what_is_stored_once_is_read_back_in_every_place(path: Path):
    await everything(path)
    with SessionReader(path) as reader:
        (record,) = reader.calls()
        assert record.arguments == {"$node": [1, 2], "$as_is": LONG, "text": LONG}
        assert record.text == f"{LONG} seen"
        nudged, started, finished, ended = (one.event for one in reader.events())
        assert isinstance(nudged, Nudged)
        assert nudged.text == LONG
        assert isinstance(started, ToolStarted)
        assert started.call.arguments == {"text": LONG}
        assert isinstance(finished, ToolFinished)
        assert finished.result.text == f"{LONG} seen"
        assert isinstance(ended, TurnEnded)
        assert ended.turn.text == LONG
        rows = reader._connection.execute(
            "SELECT body FROM monitor_calls UNION ALL SELECT body FROM monitor_events"
        ).fetchall()
        assert sum(body.count(LONG) for (body,) in rows) == 0


CHANGES = [
    lambda lines: lines[1:],
    lambda lines: [],
    lambda lines: [lines[0], *lines],
    lambda lines: [*lines, "no JSON"],
    lambda lines: [*lines, "[]"],
    lambda lines: [*lines, '{"type":"unheard of"}'],
    lambda lines: [line.replace('"b"', '"B"') for line in lines],
    lambda lines: [line for line in lines if '"seq":2,' not in line],
    lambda lines: [line.replace('"format":1', '"format":2') for line in lines],
    lambda lines: [*lines[:3], lines[3], *lines[3:]],
]


@pytest.mark.parametrize("change", CHANGES)
async def test_lines_that_were_changed_are_refused_and_nothing_is_made(path: Path, tmp_path: Path, change: Any):
    await everything(path)
    lines = lines_of(path)
    assert change(lines) != lines
    with pytest.raises(StoreError):
        imported(change(lines), tmp_path / "copy.session")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("copy")] == []


async def test_nothing_is_written_over_another_session(path: Path, tmp_path: Path):
    await everything(path)
    lines, before = lines_of(path), path.read_bytes()
    with pytest.raises(StoreError, match="is there already"):
        imported(lines, path)
    with pytest.raises(StoreError, match="is there already"):
        fork(path, path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".new")] == []


async def test_a_fork_while_writing_is_consistent_and_has_an_id_of_its_own(path: Path, tmp_path: Path):
    forks: list[Path] = []
    async with SQLiteSession(path) as session:
        (first,) = await session.append(says("x" * 70_000))

        async def write() -> None:
            for number in range(60):
                await session.append(says(f"{number}"), says(f"{number}"))

        async def copy() -> None:
            for number in range(3):
                forks.append(tmp_path / f"fork{number}.session")
                await anyio.to_thread.run_sync(fork, path, forks[-1])

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(copy)
        whole = await session.nodes()
        assert len(whole) == 121
    ids = {session.id}
    for one in forks:
        async with SQLiteSession(one) as copied:
            nodes = await copied.nodes()
            assert nodes == whole[: len(nodes)]
            assert len(nodes) % 2 == 1  # a step is there whole, or not at all
            assert await copied.verify() == ()
            await copied.append(says("goes its own way"))
            ids.add(copied.id)
    assert len(ids) == 4
    assert first.seq == 1


async def test_a_fork_may_end_at_an_older_node(path: Path, tmp_path: Path):
    ids = await everything(path)
    copy = tmp_path / "copy.session"
    fork(path, copy, at=ids[1])
    with SessionReader(copy) as reader, SessionReader(path) as origin:
        assert [node.id for node in reader.active_path()] == ids[:2]
        assert reader.nodes() == origin.nodes()
        assert reader.meta["forked_from"] == origin.id
    with pytest.raises(StoreError, match="there is no node"):
        fork(path, tmp_path / "other.session", at="f" * 32)
    assert not (tmp_path / "other.session").exists()


async def test_removing_takes_all_files_and_none_of_a_session_in_use(path: Path, tmp_path: Path):
    await everything(path)
    async with SQLiteSession(path) as session:
        with pytest.raises(SessionBusy):
            remove(path)
        assert await session.verify() == ()
    remove(path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="there is no session"):
        remove(path)


async def test_import_of_an_export_that_was_cut_off_is_refused(path: Path, tmp_path: Path):
    await everything(path)
    lines = lines_of(path)
    nodes = [number for number, line in enumerate(lines) if '"type":"node"' in line]
    with pytest.raises(SessionDamaged):
        imported([*lines[: nodes[4]], *(line for line in lines if '"type":"head"' in line)], tmp_path / "c.session")


async def test_an_export_of_a_session_in_use_can_be_imported(path: Path, tmp_path: Path):
    await everything(path)
    async with SQLiteSession(path) as session:
        with SessionReader(path) as reader:
            before = list(exported(reader))
            lines = exported(reader)
            during = [next(lines)]
            for line in lines:  # the owner writes between any two lines
                (node,) = await session.append(says("more"))
                await session.switch_node(node.id, branch="new")
                during.append(line)
            assert during == before
            assert len(list(exported(reader))) > len(before)
    imported(during, tmp_path / "copy.session")
    assert lines_of(tmp_path / "copy.session") == before


async def test_a_snapshot_is_of_one_moment(path: Path):
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
        with session.reader() as reader:
            with reader.snapshot() as same, same.snapshot():
                assert reader.count() == 1
                await session.append(says("b"))
                assert (reader.count(), len(reader.nodes()), len(reader.context().messages)) == (1, 1, 1)
                assert reader.verify() == ()
            assert reader.count() == 2


async def test_a_copy_of_a_session_in_use_has_everything_and_its_id(path: Path, tmp_path: Path):
    await everything(path)
    copy = tmp_path / "copy.session"
    async with SQLiteSession(path) as session:
        await session.append(says("y" * 70_000))
        copy_session(path, copy)
        with SessionReader(copy) as reader:
            assert (reader.id, reader.nodes()) == (session.id, await session.nodes())
            assert reader.verify() == ()
    with pytest.raises(StoreError, match="is there already"):
        copy_session(path, copy)
    with pytest.raises(StoreError, match="there is no session"):
        copy_session(tmp_path / "none.session", tmp_path / "other.session")
    remove(path)
    assert lines_of(copy)
