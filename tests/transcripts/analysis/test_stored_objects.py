"""Results of scans as bytes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from monitor.transcripts.analysis.recorded_steps import dumped, is_own, loaded
from monitor.transcripts.analysis.survey import survey_file
from monitor.transcripts.source import Source

LOOPING = Path(__file__).parents[3] / "fixtures/readers/claude-code/30e798a3-4b3a-4f9d-8516-c258ef42b336.jsonl"


def test_a_result_is_the_same_again():
    found = survey_file(Source.of_path(LOOPING))
    assert found.runs[0].loops
    assert loaded(dumped(found) or b"") == found


class Harm:
    """What stored bytes must never be able to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize(
    "harm",
    [
        pickle.dumps(Harm()),
        b"cmonitor.tools.shell\nShellTools\n.",
        b"cmonitor.transcripts.source\nSource.of_path\n.",
        b"cmonitor.transcripts.places\nfiles\n.",
        b"cmonitor.transcripts.source\nPath\n.",
        b"cbuiltins\ngetattr\n.",
        b"",
    ],
)
def test_stored_bytes_call_nothing(harm: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert loaded(harm) is None
    assert list(tmp_path.iterdir()) == []


def test_what_holds_a_function_is_not_stored():
    assert dumped(lambda: None) is None


def test_a_file_that_others_may_write_is_nobodys_own(tmp_path: Path):
    file = tmp_path / "cache"
    file.touch(mode=0o600)
    assert is_own(file)
    file.chmod(0o666)
    assert not is_own(file)
