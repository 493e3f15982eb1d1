"""The first look of a hook: it must be awake wherever the detectors of calls see a loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from monitor.chunks import ToolCall, ToolResult
from monitor.cli.hooks.answer import STILL_TURNS, NewestMessages, WatchedEnd
from monitor.cli.hooks.session_lines import RecentSteps
from monitor.detectors.defaults import OF_CALLS
from monitor.transcripts.base import Chunker, RecordedRun
from monitor.transcripts.corpus import Corpus
from monitor.transcripts.places import runs
from monitor.transcripts.source import Source
from tests.examples import every_second

FIXTURES = Path(__file__).parents[3] / "fixtures"
SESSIONS = ("claude-code", "codex", "gemini-cli")


def loops() -> Iterator[RecordedRun]:
    composed = FIXTURES / "transcripts" / "composed.jsonl.gz"
    yield from every_second(run for run in Corpus(composed) if run.label == "loop" and len(run.messages) < 120)


def sessions() -> Iterator[RecordedRun]:
    for agent in SESSIONS:
        for path in sorted((FIXTURES / "readers" / agent).rglob("*.json*")):
            yield from runs(Source.of_path(path))


def looked_at(run: RecordedRun) -> Iterator[tuple[bool, bool]]:
    """For each call of the run: whether the first look is awake, and whether a loop goes on."""
    end, steps, chunker = WatchedEnd(NewestMessages()), RecentSteps(), Chunker()
    for detector in OF_CALLS.make():
        end.ask(detector)
    last_loop = -1
    for message in run.messages:
        calls, asked = message.tool_calls, 0
        for chunk in chunker.chunks(message):
            if isinstance(chunk, ToolCall):
                asked += 1
                awake = steps.may_loop(chunk.name, chunk.arguments)
                at_call = end.branch() if asked < len(calls) else end
                if at_call.take(replace(message, tool_calls=calls[:asked], tool_results=())):
                    last_loop = at_call.turns
                goes_on = last_loop >= at_call.turns - STILL_TURNS
                yield awake, goes_on
                if awake and not goes_on:
                    free = at_call.branch().free_calls()
                    steps.is_calm(free, chunk.name, chunk.arguments)  # before the call stands in the session
                steps.called(chunk.id, chunk.name, chunk.arguments)
            elif isinstance(chunk, ToolResult) and not chunk.vetoed:
                steps.answered(chunk.id, chunk.text)
        if end.take(replace(message, role="tool", tool_calls=()) if calls else message):
            last_loop = end.turns


@cache
def looks(recorded: Callable[[], Iterator[RecordedRun]]) -> list[tuple[str, tuple[bool, bool]]]:
    return [(run.id, look) for run in recorded() for look in looked_at(run)]


@pytest.mark.parametrize("recorded", [loops, sessions])
def test_the_detectors_are_asked_wherever_they_would_see_a_loop(recorded: Callable[[], Iterator[RecordedRun]]):
    seen = looks(recorded)
    assert sum(goes_on for _, (_, goes_on) in seen) > 50
    assert [id for id, (awake, goes_on) in seen if goes_on and not awake] == []


def test_in_a_quiet_session_the_detectors_are_seldom_asked():
    quiet = [look for _, look in looks(sessions) if not look[1]]
    assert sum(awake for awake, _ in quiet) < 0.2 * len(quiet)


def test_the_state_goes_through_json():
    steps = RecentSteps()
    for at in range(4):
        steps.called(str(at), "read", {"path": "a.py"})
        steps.answered(str(at), "some words of a file that is read")
        steps = RecentSteps(json.loads(json.dumps(steps.save())))
    assert steps.may_loop("read", {"path": "a.py"})
    steps.is_calm(0, "read", {"path": "a.py"})
    assert not RecentSteps(json.loads(json.dumps(steps.save()))).may_loop("read", {"path": "a.py"})


@pytest.mark.parametrize(("made", "awake"), [("aaa", False), ("aaaa", True), ("aab", False), ("abab", True)])
def test_the_fifth_equal_call_wakes_the_detectors_and_the_third_round_of_calls_in_turn(made: str, *, awake: bool):
    steps = RecentSteps()
    for at, path in enumerate(made):
        steps.called(str(at), "read", {"path": path})
        steps.answered(str(at), f"{' '.join(f'new{chr(97 + at)}{chr(97 + word)}' for word in range(20))}")
    assert steps.may_loop("read", {"path": "a"}) is awake
    assert not steps.may_loop("read", {"path": "c"})


def stuck() -> RecentSteps:
    """Six equal calls with equal results."""
    steps = RecentSteps()
    for at in range(6):
        steps.called(str(at), "read", {"path": "a"})
        steps.answered(str(at), "no such file")
    return steps


def test_that_another_call_is_free_says_nothing_of_the_call_of_the_loop():
    steps = stuck()
    assert steps.may_loop("write", {"path": "b"})
    steps.is_calm(8, "write", {"path": "b"})
    assert not steps.may_loop("write", {"path": "b"})
    assert steps.may_loop("read", {"path": "a"})
    steps.called("w", "read", {"path": "a"})
    steps.answered("w", "no such file")
    assert steps.may_loop("read", {"path": "a"})


def test_once_the_free_call_was_made_nothing_is_asked_for_as_long_as_was_said():
    steps = stuck()
    steps.is_calm(1, "write", {"path": "b"})
    steps.called("w", "write", {"path": "b"})
    assert not steps.may_loop("read", {"path": "a"})
    steps.called("x", "read", {"path": "a"})
    assert steps.may_loop("read", {"path": "a"})


@pytest.mark.parametrize("first", ["asked", "recorded"])
def test_a_call_is_one_sign_whether_it_is_recorded_before_it_is_asked_or_after(first: str):
    steps = stuck()
    for event in (first, "recorded" if first == "asked" else "asked"):
        if event == "asked":
            steps.is_calm(0, "read", {"path": "a"})
        else:
            steps.called("w", "read", {"path": "a"})
    assert not steps.may_loop("write", {"path": "b"})
    steps.answered("w", "no such file")
    assert steps.may_loop("write", {"path": "b"})


def test_a_call_that_comes_again_under_its_id_is_one_call():
    steps = RecentSteps()
    for _ in range(9):
        steps.called("one", "read", {"path": "a.py"})
        steps.answered("one", "text")
    assert not steps.may_loop("read", {"path": "b.py"})


@pytest.mark.parametrize("saved", [{}, {"calls": 3, "open": None, "stale": "x", "signs": "y", "words": 1}])
def test_a_foreign_state_is_none(saved: dict[str, object]):
    assert not RecentSteps(saved).may_loop("read", {})
