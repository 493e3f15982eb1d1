"""No text that a store of a session is given breaks it: it is kept as it is, or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import TextDelta
from monitor.errors import ConfigError, SessionDamaged, StoreError
from monitor.events import Nudged
from monitor.messages import ApprovalAnswer
from monitor.sessions import (
    Changes,
    InMemorySession,
    PostgresSession,
    RunRecord,
    SessionReader,
    SQLiteSession,
    TurnChunks,
    branch_note,
    compaction,
    context_edit,
    exported,
    imported,
    marker,
)
from tests import databases
from tests.sessions.making import call, request, says, summary

pytestmark = pytest.mark.feature("AC-01")

ODD = {
    "a lone surrogate": "\ud800",
    "two lone surrogates": "\ud83d\ude00",
    "a NUL": "a\0b",
    "nothing": "",
    "a long one": "x" * 70_000,
    "a pointer's key": "$node",
    "an escaping key": "$as_is",
    "a quote": "\"'; DROP TABLE node; --",
}
READS = ("runs", "calls", "approvals", "events", "chunks", "nodes", "heads", "active_path")


def changes(text: str) -> Iterator[Changes]:
    """For each field of a step that takes a text: a step with `text` there."""
    yield Changes(runs=[RunRecord(id=text)])
    yield Changes(runs=[RunRecord(id="r", agent=text, purpose=text)])
    yield Changes(runs=[RunRecord(id="r", parent_run=text, data={text: {text: text}})])
    yield from (Changes(nodes=[says(text, run=run)]) for run in (None, text))
    yield Changes(nodes=[says("a")], branch=text)
    yield from (Changes(nodes=[one]) for one in (marker(text, {text: text}), branch_note(text)))
    yield Changes(nodes=[replace(says("a"), parent=text)])
    yield Changes(nodes=[context_edit(text, None)])
    yield from (Changes(nodes=[compaction(one)]) for one in (summary(text), summary(None, base=text)))
    for name in ("run", "call_id", "key", "tool", "text", "artifact", "approval"):
        given: dict[str, Any] = {name: text}
        yield Changes(calls=[replace(call(name), **given)])
    yield Changes(calls=[replace(call("with arguments"), arguments={text: text})])
    yield Changes(requests=[request(text)])
    yield Changes(requests=[request("q", run=text)])
    yield Changes(answers=[ApprovalAnswer(id=text, decision="approved", by=text)])
    yield from (Changes(events=[Nudged(1.0, 1, text)], events_run=run) for run in (None, text))
    for run in (None, text):
        yield Changes(chunks=[TurnChunks(run, 1, ((0.1, TextDelta(text)),), ({text: text},))])


def others(session: Any, text: str) -> Iterator[Callable[[], Any]]:
    """The other methods that take a text."""
    for read in ("context", "active_path", "find_node", "find", "open_calls", "calls", "events", "chunks"):
        yield partial(getattr(session, read), text)
    yield lambda: session.switch_node(text)
    yield lambda: session.switch_node(None, branch=text)
    yield lambda: session.intend([replace(call("intended"), key=text, text=text)])
    yield lambda: session.advance(replace(call("advanced"), key=text))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


async def is_kept_or_refused(session: Any, text: str) -> int:
    """Give `text` to the session everywhere. Returns how often it was refused."""
    refused = 0
    async with session:
        steps: list[Callable[[], Any]] = [partial(session.commit, one) for one in changes(text)]
        for work in (*steps, *others(session, text)):
            try:
                await work()
            except SessionDamaged:
                raise
            except (StoreError, ConfigError):
                refused += 1
        for read in READS:
            assert isinstance(await getattr(session, read)(), tuple | dict)
        said = await session.append(says("more"))
        assert (await session.find_node(said[0].id)) == said[0]
        assert await session.verify() == ()
    return refused


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_text_is_kept_or_refused_by_every_store_alike(odd: str, tmp_path: Path):
    text, path = ODD[odd], tmp_path / "a.session"
    in_file = anyio.run(is_kept_or_refused, SQLiteSession(path), text)
    assert anyio.run(is_kept_or_refused, InMemorySession(), text) == in_file
    with SessionReader(path) as reader:
        for read in ("context", "active_path", "calls", "events", "chunks"):
            with contextlib.suppress(StoreError) if "surrogate" in odd else contextlib.nullcontext():
                getattr(reader, read)(text)
        lines = list(exported(reader))
    imported(lines, tmp_path / "b.session")
    with SessionReader(tmp_path / "b.session") as again:
        assert list(exported(again)) == lines


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_text_is_kept_or_refused_in_postgresql_as_in_memory(odd: str, address: str):
    in_memory = anyio.run(is_kept_or_refused, InMemorySession(), ODD[odd])
    assert anyio.run(is_kept_or_refused, PostgresSession(address, f"{odd} {uuid4().hex}"), ODD[odd]) == in_memory


@given(text=st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_is_kept_or_refused(text: str):
    anyio.run(is_kept_or_refused, InMemorySession(), text)


@pytest.mark.anyio
async def test_a_surrogate_in_the_name_of_a_branch_is_refused_in_words():
    async with InMemorySession() as session:
        with pytest.raises(StoreError, match=r"'\\ud800' cannot be an id, a key or a name of a session"):
            await session.append(says("a"), branch="\ud800")
        assert await session.nodes() == ()
