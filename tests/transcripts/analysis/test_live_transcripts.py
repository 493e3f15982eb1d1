"""Transcripts that grow while they are followed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monitor.policy import ObserveOnly
from monitor.transcripts.analysis.following import REST, Begun, Live
from monitor.transcripts.analysis.survey import SurveyedFile, WatchSettings, survey_file
from monitor.transcripts.source import Source

ASK = {"role": "user", "content": "Tidy up."}


class Clock:
    """Time that only the test moves, and that each reading of a file takes some of."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read: list[Path] = []
        self.cost = 0.0

    def __call__(self) -> float:
        return self.now

    def survey(self, path: Path) -> Iterator[SurveyedFile]:
        self.read.append(path)
        self.now += self.cost
        yield survey_file(Source.of_path(path), watched=WatchSettings(policy=ObserveOnly))


def turn(name: str, at: int, arguments: str = "{}") -> list[dict[str, Any]]:
    call = {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": "permission denied"},
    ]


def put(path: Path, *turns: list[dict[str, Any]]) -> None:
    half = path.with_suffix(".half")
    half.write_text("".join(json.dumps(message) + "\n" for message in [ASK, *(one for pair in turns for one in pair)]))
    half.replace(path)


def begun(live: Live) -> list[Begun]:
    return [news for news in live.poll() if isinstance(news, Begun)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def live_in(folder: Path, clock: Clock, *start: Path) -> Live:
    return Live(lambda: sorted(folder.glob("*.jsonl")), clock.survey, clock, start=start)


def test_a_loop_is_said_once_when_it_begins(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    put(file, *(turn("ls", at) for at in range(3)))
    live = live_in(tmp_path, clock, file)
    assert begun(live) == []
    put(file, *(turn("ls", at) for at in range(5)))
    (one,) = begun(live)
    assert (one.finding.detection.kind, one.before) == ("identical_calls", False)
    put(file, *(turn("ls", at) for at in range(9)))
    assert begun(live) == []


def test_another_loop_of_the_same_run_is_said_too(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    first = [turn("ls", at) for at in range(6)]
    put(file, *first)
    live = live_in(tmp_path, clock, file)
    assert len(begun(live)) == 1
    put(file, *first, *(turn("cat", at, '{"a": 1}') for at in range(10, 16)))
    found = begun(live)
    assert [
        one.finding.detection.evidence.excerpt.split("(")[0]
        for one in found
        if one.finding.detection.kind == "identical_calls"
    ] == ["cat"]


def test_a_loop_that_stood_there_at_the_start_is_not_said_to_begin(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    put(file, *(turn("ls", at) for at in range(6)))
    (one,) = begun(live_in(tmp_path, clock, file))
    assert one.before


def test_a_file_that_comes_later_is_followed_from_its_beginning(tmp_path: Path, clock: Clock):
    live = live_in(tmp_path, clock)
    assert begun(live) == []
    put(tmp_path / "s.jsonl", *(turn("ls", at) for at in range(6)))
    clock.now += 1
    (one,) = begun(live)
    assert not one.before


def test_a_file_that_does_not_change_is_not_read_again(tmp_path: Path, clock: Clock):
    put(tmp_path / "s.jsonl", turn("ls", 0))
    live = live_in(tmp_path, clock)
    for _ in range(5):
        clock.now += 1
        list(live.poll())
    assert clock.read == []


def test_a_slow_file_is_read_a_tenth_of_the_time_at_most(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    clock.cost = 2.0
    put(file, turn("ls", 0))
    live = live_in(tmp_path, clock, file)
    for at in range(1, 101):
        put(file, *(turn(f"tool{n}", n) for n in range(at % 7 + 1)))
        os.utime(file, ns=(at, at))
        list(live.poll())
        clock.now += 1
    assert len(clock.read) * clock.cost <= clock.now / (REST + 1) + clock.cost


def test_a_file_that_is_removed_is_no_error(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    put(file, turn("ls", 0))
    live = live_in(tmp_path, clock, file)
    list(live.poll())
    file.unlink()
    assert begun(live) == []


def test_a_last_line_that_is_half_written_is_nothing_bad(tmp_path: Path, clock: Clock):
    file = tmp_path / "s.jsonl"
    put(file, *(turn("ls", at) for at in range(4)))
    whole = file.read_text()
    live = Live(lambda: [file], partial(clock.survey), clock, start=[file])
    file.write_text(whole + json.dumps(turn("ls", 4)[0])[:30])
    found = [news for news in live.poll() if isinstance(news, SurveyedFile)]
    assert [one.report.bad for one in found] == [0]
    assert found[0].report.cut
