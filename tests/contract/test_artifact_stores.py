"""What holds for every store of artifacts. A new one needs a line in `MAKERS` and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import ConfigError
from monitor.tools.artifacts.artifact_store import (
    ArtifactGone,
    ArtifactsFull,
    ArtifactStore,
    InMemoryArtifacts,
    Reference,
)
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts

pytestmark = pytest.mark.anyio

Maker = Callable[..., Any]
MAKERS: dict[str, Callable[[Path], Maker]] = {
    "memory": lambda path: InMemoryArtifacts,
    "folder": lambda path: lambda **options: FolderArtifacts(path / "kept", **options),
}
PAGE = Reference(kind="page", url="https://example.org/prices", note="prices of May")


@pytest.fixture(params=list(MAKERS.values()), ids=list(MAKERS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    made: Maker = request.param(tmp_path)
    return made


@pytest.mark.feature("MA-02")
@pytest.mark.parametrize("text", ["", "one\n", "漢字\ud800\x00\r\n" * 1_000, "x" * 1_000_000])
async def test_what_is_kept_comes_back_as_it_was(make: Maker, text: str):
    store: ArtifactStore = make()
    kept = await store.put(text)
    assert (kept.chars, len(kept.digest)) == (len(text), 64)
    for ref in (kept.digest, kept.ref, kept.digest[:12].upper()):
        assert await store.read(ref) == text


async def test_the_same_text_is_kept_once_with_each_place_it_came_from(make: Maker):
    store: ArtifactStore = make(max_bytes=1_000)
    first = await store.put("x" * 900, reference=PAGE)
    again = await store.put("x" * 900, reference=Reference(kind="document", path="prices.txt", pages="1-2"))
    third = await store.put("x" * 900, reference=Reference(kind="page", url=PAGE.url, note="newer note"))
    assert first.digest == again.digest == third.digest
    assert [one.note or one.path for one in third.references] == ["prices.txt", "newer note"]
    assert list(await store.artifacts()) == [third]


@pytest.mark.feature("MA-05")
async def test_asking_whether_it_is_there_loads_nothing(make: Maker):
    store = make()
    kept = await store.put("a text", reference=PAGE)
    assert await store.find(kept.ref) == kept
    assert await store.find("0" * 16) is None
    assert await store.artifacts() == [kept]
    assert kept.line() == f"{kept.ref} page https://example.org/prices (prices of May)"
    assert store.loads == 0
    await store.read(kept.ref)
    assert store.loads == 1


@pytest.mark.parametrize("ref", ["", "abc", "../../etc/passwd", "zz" * 8, "0" * 64, "é" * 16])
async def test_a_reference_that_means_nothing_is_refused_and_never_guessed(make: Maker, ref: str):
    store: ArtifactStore = make()
    await store.put("a text")
    with pytest.raises(ArtifactGone):
        await store.read(ref)
    assert await store.find(ref) is None


async def test_the_least_recently_used_go_first(make: Maker):
    store: ArtifactStore = make(max_bytes=1_000)
    a = await store.put("a" * 400)
    await _later()
    b = await store.put("b" * 400)
    await _later()
    await store.read(a.ref)
    await _later()
    c = await store.put("c" * 400)
    assert await store.find(b.ref) is None
    assert {one.digest for one in await store.artifacts()} == {a.digest, c.digest}


async def test_what_a_running_session_needs_is_never_removed(make: Maker):
    store: ArtifactStore = make(max_bytes=1_000)
    pinned = await store.put("a" * 600, pin="run 1")
    await _later()
    await store.put("b" * 300)
    await store.put("c" * 400)  # in the place of b
    assert await store.read(pinned.ref) == "a" * 600
    with pytest.raises(ArtifactsFull, match="no room"):
        await store.put("d" * 500)
    assert len(await store.artifacts()) == 2  # nothing went for a text that has no room
    await store.unpin("run 1")
    await store.put("d" * 500)
    assert await store.find(pinned.ref) is None


async def test_an_artifact_of_an_earlier_run_can_be_pinned(make: Maker):
    store: ArtifactStore = make(max_bytes=1_000)
    old = await store.put("a" * 600)
    await store.pin([old.ref], "run 2")
    with pytest.raises(ArtifactsFull):
        await store.put("b" * 600)
    with pytest.raises(ArtifactGone):
        await store.pin(["0" * 16], "run 2")


async def test_a_text_larger_than_the_store_is_refused(make: Maker):
    store: ArtifactStore = make(max_bytes=1_000)
    await store.put("a" * 900)
    with pytest.raises(ArtifactsFull):
        await store.put("b" * 1_001)
    assert len(await store.artifacts()) == 1


async def test_many_tasks_may_keep_texts_at_once(make: Maker):
    store: ArtifactStore = make(max_bytes=100_000)

    async def keep(number: int) -> None:
        kept = await store.put(f"text {number % 5}\n" * 100, pin=f"run {number}")
        assert (await store.read(kept.ref)).startswith(f"text {number % 5}\n")

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(keep, number)
    assert len(await store.artifacts()) == 5


@pytest.mark.parametrize("most", [0, -1, True, 1.5])
async def test_a_bound_that_is_none_is_refused(make: Maker, most: Any):
    with pytest.raises(ConfigError, match="max_bytes"):
        make(max_bytes=most)


async def _later() -> None:
    """The times of files are those of the kernel's clock, which ticks every few milliseconds."""
    await anyio.sleep(0.012)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 60), st.booleans()), max_size=20))
def test_the_bound_holds_after_each_step_whatever_is_pinned(steps: list[tuple[str, int, bool]]):
    async def play() -> None:
        store = InMemoryArtifacts(max_bytes=100)
        pinned: set[str] = set()
        for letter, size, pin in steps:
            try:
                kept = await store.put(letter * size, pin="run" if pin else None)
            except ArtifactsFull:
                continue
            if pin:
                pinned.add(kept.digest)
            there = await store.artifacts()
            assert sum(one.chars for one in there) <= 100
            assert pinned <= {one.digest for one in there}

    anyio.run(play)
