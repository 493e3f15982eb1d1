"""A folder of artifacts is safe among processes, and for its owner only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.errors import StoreError
from monitor.tools.artifacts.artifact_store import ArtifactGone, ArtifactsFull, Reference
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts

pytestmark = pytest.mark.anyio


OWNER = """
import anyio, sys
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts
async def main():
    print((await FolderArtifacts(sys.argv[1]).put("a" * 600, pin="run")).ref, flush=True)
    sys.stdin.read()
anyio.run(main)
"""


async def test_only_the_owner_may_read_the_files(tmp_path: Path):
    store = FolderArtifacts(tmp_path / "kept")
    await store.put("secret", pin="run", reference=Reference(kind="document", path="x"))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").rglob("*")}
    assert len(modes) >= 5
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}


async def test_another_store_on_the_same_folder_reads_what_the_first_kept(tmp_path: Path):
    kept = await FolderArtifacts(tmp_path).put("text", reference=Reference(kind="page", url="https://a.b"))
    other = FolderArtifacts(tmp_path)
    assert await other.find(kept.ref) == kept
    assert await other.read(kept.ref) == "text"


async def test_a_text_that_was_changed_on_the_disk_is_refused(tmp_path: Path):
    store = FolderArtifacts(tmp_path)
    kept = await store.put("text")
    (tmp_path / kept.digest[:2] / kept.digest).write_text("forged")
    with pytest.raises(StoreError, match="damaged"):
        await store.read(kept.ref)
    about = tmp_path / kept.digest[:2] / f"{kept.digest}.json"
    for wrong in ("{", "[]", json.dumps({"chars": 1, "lines": 1, "references": [{"kind": "page"}]})):
        about.write_text(wrong)
        with pytest.raises(StoreError, match="damaged"):
            await store.find(kept.ref)


async def test_a_text_whose_description_is_missing_is_not_there_and_can_be_kept_again(tmp_path: Path):
    store = FolderArtifacts(tmp_path)
    kept = await store.put("text")
    (tmp_path / kept.digest[:2] / f"{kept.digest}.json").unlink()
    assert await store.find(kept.ref) is None
    assert await store.put("text") == kept
    assert await store.find(kept.ref) == kept


async def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path):
    store = FolderArtifacts(tmp_path, max_bytes=100)
    kept = await store.put("text")
    half = tmp_path / kept.digest[:2] / "tmpabcdef"
    half.write_text("half")
    await store.put("more")
    assert half.exists()  # somebody may write it just now
    os.utime(half, (0, 0))
    await store.put("even more")
    assert not half.exists()


async def test_a_session_of_another_process_keeps_its_artifacts_until_it_ends(tmp_path: Path):
    child = subprocess.Popen(  # noqa: ASYNC220 - it is started and ended by hand
        [
            sys.executable,
            "-c",
            OWNER,
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        ref = child.stdout.readline().strip()
        store = FolderArtifacts(tmp_path, max_bytes=1_000)
        with pytest.raises(ArtifactsFull):
            await store.put("b" * 600)
    finally:
        child.kill()  # it unpins nothing
        child.communicate()
    await store.put("b" * 600)
    with pytest.raises(ArtifactGone):
        await store.read(ref)
    assert list((tmp_path / "pins").iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match="cannot be read or written"):
        await FolderArtifacts(tmp_path / "file").put("text")


async def test_a_folder_that_is_not_there_has_no_artifacts(tmp_path: Path):
    store = FolderArtifacts(tmp_path / "never")
    assert await store.artifacts() == []
    assert await store.find("0" * 16) is None
    assert not (tmp_path / "never").exists()


@pytest.mark.feature("MA-01")
async def test_the_texts_of_two_projects_are_kept_apart(tmp_path: Path):
    pump, valve = (FolderArtifacts(tmp_path, project=name, max_bytes=10) for name in ("pump", "valve"))
    kept = await pump.put("of pumps")
    await valve.put("of valves")  # there is room: the bound holds for each project
    assert [one.digest for one in await pump.artifacts()] == [kept.digest]
    assert await valve.find(kept.ref) is None
    assert await FolderArtifacts(tmp_path).artifacts() == []
    assert await FolderArtifacts(tmp_path, project="pump").read(kept.ref) == "of pumps"
