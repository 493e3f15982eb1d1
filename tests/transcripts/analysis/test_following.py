"""A file that grows is read on, and what is found is what a reading from the start finds."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from monitor.policy import ObserveOnly
from monitor.transcripts.analysis import following
from monitor.transcripts.analysis.following import Follower, States
from monitor.transcripts.analysis.survey import SurveyedFile, WatchSettings, survey_file
from monitor.transcripts.readers.base import LineReader
from monitor.transcripts.readers.registry import READERS, reader_of
from monitor.transcripts.source import Source
from tests.examples import ALL_CASES

ROOT = Path(__file__).parents[3] / "fixtures" / "readers"
CUTS = int(os.environ.get("MONITOR_EXAMPLES", "4" if ALL_CASES else "1"))


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def is_stepwise(path: Path) -> bool:
    source = Source.of_bytes(path.name, content(path))
    reader = reader_of(source)
    return isinstance(reader, LineReader) and reader.reading_of(source) is not None


SAMPLES = [path for path in sorted(ROOT.rglob("*")) if path.is_file() and is_stepwise(path)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def stem(path: Path) -> str:
    return path.name.removesuffix(".gz")


def whole(file: Path) -> list[SurveyedFile]:
    return [survey_file(Source.of_path(file), watched=WatchSettings(policy=ObserveOnly))]


class Counting(Follower):
    """Counts how often a file is read from its start."""

    starts = 0

    def _read_anew(self, *arguments: Any) -> SurveyedFile | None:
        self.starts += 1
        return super()._read_anew(*arguments)


def follower(states: States) -> Counting:
    return Counting(states, policy=ObserveOnly)


def call(at: int, name: str = "ls") -> bytes:
    made = {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    turn = [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": "denied"},
    ]
    return b"".join(json.dumps(message).encode() + b"\n" for message in turn)


def test_the_formats_of_the_hooks_are_among_those_that_are_read_on():
    stepwise = {reader.format for reader in READERS if isinstance(reader, LineReader)}
    assert {"claude-code", "codex", "gemini-cli"} <= stepwise
    assert {path.relative_to(ROOT).parts[0] for path in SAMPLES} == stepwise


@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_a_file_that_is_cut_at_any_byte_has_the_runs_of_reading_it_whole(path: Path, tmp_path: Path):
    data = content(path)
    file = tmp_path / stem(path)
    chance = random.Random(name_of(path))
    cuts = sorted(chance.randrange(len(data)) for _ in range(CUTS))
    ends = [at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n"]
    cuts = sorted([*cuts, *chance.sample(ends, min(CUTS, 3, len(ends)))])
    reading = follower(States())
    for cut in [*cuts, len(data)]:
        file.touch()
        with file.open("ab") as out:
            out.write(data[file.stat().st_size : cut])
        assert reading.survey(file) == whole(file), cut


GROWN = (
    "554b9fa6",
    "rollout-skills-6cfb81c05ca9",
    "gemini-cli-jsonl",
    "large-session",
    "events-agentv-269e",
    "assistant_",
)


@pytest.mark.parametrize("path", [p for p in SAMPLES if any(name in p.name for name in GROWN)], ids=name_of)
def test_a_file_that_grows_is_read_from_its_start_once(path: Path, tmp_path: Path):
    lines = content(path).splitlines(keepends=True)
    file = tmp_path / stem(path)
    reading = follower(States())
    first = min(40, len(lines) - 2)
    for at in (first, *range(first, len(lines) + 9, 1 + len(lines) // 9)):
        file.touch()
        with file.open("ab") as out:
            out.write(b"".join(lines)[file.stat().st_size : sum(map(len, lines[:at]))])
        reading.survey(file)
    assert reading.starts == 1
    assert reading.survey(file) == whole(file)


def change_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(bytes(data) + call(9))


def cut_it(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def replace_it(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes() + call(9))
    other.replace(file)


def begin_otherwise(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data.replace(b"go", b"no", 1) + call(9))


@pytest.mark.parametrize("change", [change_a_byte, cut_it, replace_it, begin_otherwise])
def test_a_file_that_was_changed_is_read_from_its_start(change: Any, tmp_path: Path):
    file = tmp_path / "s.jsonl"
    file.write_bytes(b'{"role": "user", "content": "go"}\n' + b"".join(map(call, range(6))))
    reading = follower(States())
    reading.survey(file)
    change(file)
    assert reading.survey(file) == whole(file)
    assert reading.starts == 2


def test_a_gemini_session_in_which_an_earlier_message_changes_is_read_whole(tmp_path: Path):
    lines = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "1", "type": "user", "content": "go"},
        {"id": "2", "type": "gemini", "content": "one", "model": "m"},
        {"id": "3", "type": "gemini", "content": "two", "model": "m"},
    ]
    file = tmp_path / "s.jsonl"
    reading = follower(States())
    for extra in ({}, {"$rewindTo": "2"}, {"id": "2", "type": "gemini", "content": "other", "model": "m"}):
        lines += [extra] if extra else []
        file.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        assert reading.survey(file) == whole(file)


def test_memory_keeps_a_bounded_number_of_states(tmp_path: Path):
    states = States()
    for at in range(100):
        states.put(tmp_path / str(at), {"at": at})
    assert states.get(tmp_path / "0") is None
    assert states.get(tmp_path / "99") == {"at": 99}


def test_what_cannot_be_stored_is_read_whole_each_time(tmp_path: Path):
    states = States()
    states.put(tmp_path, lambda: None)
    assert states.get(tmp_path) is None


def test_a_file_that_is_gone_is_an_error_of_the_file(tmp_path: Path):
    (found,) = follower(States()).survey(tmp_path / "none.jsonl")
    assert found.error == "No such file or directory"
    assert following.COMPARED_BYTES
