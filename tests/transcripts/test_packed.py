"""Packed transcripts, and archives: all of what they hold is read, and what is damaged is said."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from monitor.transcripts.analysis.following import Follower, States
from monitor.transcripts.analysis.survey import SurveyedFile, survey_file
from monitor.transcripts.places import sources_of
from monitor.transcripts.source import Source

SESSION = gzip.decompress(
    (Path(__file__).parents[2] / "fixtures/readers/claude-code/entire-8e0a64736bc7-0.jsonl.gz").read_bytes()
)
TURNS = survey_file(Source.of_bytes("session.jsonl", SESSION)).runs[0].total.turns


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def frames(data: bytes) -> bytes:
    """As a file that was appended to."""
    half = data.index(b"\n", len(data) // 2) + 1
    return zst(data[:half]) + zst(data[half:])


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


WHOLE = {
    "one.jsonl.zst": zst(SESSION),
    "appended.jsonl.zst": frames(SESSION),
    "members.jsonl.gz": gzip.compress(SESSION[: len(SESSION) // 2]) + gzip.compress(SESSION[len(SESSION) // 2 :]),
    "logs.zip": zipped({"in/a.jsonl.zst": zst(SESSION)}),
    "logs.tar.gz": tarred({"a.jsonl.zst": frames(SESSION)}),
}
DAMAGED = {
    "cut.jsonl.zst": zst(SESSION)[:20_000],
    "cut.jsonl.gz": gzip.compress(SESSION)[:20_000],
    "nonsense.jsonl.zst": b"\x28\xb5\x2f\xfd" + b"nonsense" * 30,
    "cut.zip": zipped({"a.jsonl": SESSION})[:20_000],
    "cut.tar.gz": tarred({"a.jsonl": SESSION, "b.jsonl": SESSION})[:-2_000],
    "other.zip": b"not an archive" * 100,
}


def surveyed(place: Path, name: str, data: bytes) -> list[SurveyedFile]:
    path = place / name
    path.write_bytes(data)
    return [survey_file(source) for source in sources_of(path)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_packed_session_is_read_to_its_end(tmp_path: Path, name: str):
    (found,) = surveyed(tmp_path, name, WHOLE[name])
    assert not found.error
    assert [run.total.turns for run in found.runs] == [TURNS]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_never_passes_for_one_that_was_read(tmp_path: Path, name: str):
    found = surveyed(tmp_path, name, DAMAGED[name])
    assert any(file.error or file.report.bad or file.report.cut for file in found)


def test_the_members_before_the_damage_are_read(tmp_path: Path):
    found = surveyed(tmp_path, "cut.tar.gz", tarred({f"{number}.jsonl": SESSION for number in range(40)})[:-900])
    assert found[0].runs
    assert "damaged" in found[-1].error


def test_an_archive_is_not_held_in_memory(tmp_path: Path):
    path = tmp_path / "logs.tar.gz"
    path.write_bytes(DAMAGED["cut.tar.gz"])
    assert next(iter(sources_of(path))).name.endswith("a.jsonl")  # before the damage behind it is met


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has a module of its own")
def test_without_the_package_a_packed_file_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    packed, plain = surveyed(tmp_path, "logs.tar.gz", tarred({"a.jsonl.zst": zst(SESSION), "b.jsonl": SESSION}))
    assert "pip install 'agent-monitor[zstd]'" in packed.error
    assert plain.runs[0].total.turns == TURNS
    (followed,) = Follower(States()).survey(Path(tmp_path, "logs.tar.gz"))[:1]
    assert followed.error == packed.error


@pytest.mark.parametrize("name", ["one.jsonl.zst", "members.jsonl.gz"])
def test_a_packed_file_that_is_followed_is_read_whole(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(WHOLE[name])
    (found,) = Follower(States()).survey(path)
    assert (found.report.bad, [run.total.turns for run in found.runs]) == (0, [TURNS])


def test_the_module_of_python_3_14_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch):
    zstd = pytest.importorskip("compression.zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for data in (zst(SESSION), frames(SESSION), zstd.compress(SESSION)):
        assert survey_file(Source.of_bytes("a", data)).runs[0].total.turns == TURNS
    assert survey_file(Source.of_bytes("a", zst(SESSION)[:20_000])).error
