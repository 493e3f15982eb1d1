"""What every detector in `monitor.detectors` keeps to. A new one is found by itself; it needs no
line here.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import random
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor.detectors
from monitor.chunks import (
    CHUNK_TYPES,
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
    UsageReport,
)
from monitor.detectors import Detector, default_detectors
from monitor.detectors.detector import is_channel_detector
from monitor.errors import FinishReason
from monitor.testing import rechunk
from monitor.verdicts import Detection, detection_codec

FORBIDDEN = {
    "time",
    "random",
    "logging",
    "asyncio",
    "anyio",
    "threading",
    "datetime",
    "os",
    "socket",
    "structlog",
    "sqlite3",
    "xxhash",
}
DETECTORS = [
    value
    for value in (getattr(monitor.detectors, name) for name in sorted(dir(monitor.detectors)))
    if inspect.isclass(value) and isinstance(getattr(value, "observe", None), type(lambda: None))
    if not getattr(value, "_is_protocol", False)
]
DONE = TurnFinished(FinishReason.DONE)
WORDS = [
    *("the", "parser", "reads", "one", "more", "file", "and", "compares", "what", "it", "found", "with"),
    *("the", "plan", "said", "about", "state", "of", "a", "request"),
]


def make(kind: type[Any], **options: Any) -> Detector:
    detector: Detector = kind(**options)
    return detector


def benign(turns: int, seed: int = 1) -> Iterator[Chunk]:
    """An agent that gets on: no turn like another."""
    rng = random.Random(seed)
    for turn in range(turns):
        yield ReasoningDelta(" ".join(rng.choices(WORDS, k=40)) + f" {turn}. ")
        for _ in range(5):
            yield TextDelta(" ".join(rng.choices(WORDS, k=30)) + f" {rng.random()}.\n\n- {rng.choice(WORDS)}\n")
        arguments = {"path": f"src/file_{turn}.py", "line": rng.randrange(999)}
        yield ToolCallDelta(f"c{turn}", "read", json.dumps(arguments))
        yield ToolCall(f"c{turn}", "read", arguments)
        yield UsageReport(input_tokens=turn, output_tokens=10)
        yield DONE
        yield ToolResult(f"c{turn}", "read", " ".join(rng.choices(WORDS, k=20)) + str(turn))


def looping(turns: int) -> Iterator[Chunk]:
    """An agent that does everything wrong at once."""
    yield from benign(2)
    for turn in range(turns):
        text = "I will now read the configuration file again, to be sure of it. "
        yield ReasoningDelta(text * 8)
        yield TextDelta(text * 8)
        yield ToolCallDelta(f"l{turn}", "read", '{"path": "' + text * 20 + '"}')
        yield ToolCall(f"l{turn}", "read", {"path": text})
        if turn == 3:
            yield StreamRetried("lost")
            continue
        yield DONE
        yield ToolResult(f"l{turn}", "read", "the same")


SENTENCE = "I will now read the configuration file again, to be sure that nothing of it was lost. "
TEXTS = st.sampled_from(
    [
        "",
        "Done.",
        SENTENCE,
        SENTENCE * 6,
        SENTENCE.replace("nothing", "not one") + "Then I go on. ",
        "```\n" + "x = 1\n" * 9,
        "ha " * 60,
    ]
)
CALLS = st.tuples(
    st.sampled_from(["read", "think", "send_mail", "invented", "sql"]),
    st.sampled_from([{}, {"a": 1}, {"a": 2}, {"action": "wait"}]),
    st.sampled_from(["ok", "Unknown tool", "Error: no such table", "x" * 300, None]),
    st.booleans(),
)
Turn: TypeAlias = tuple[str, str, list[tuple[str, dict[str, Any], str | None, bool]]]
TURN: st.SearchStrategy[Turn] = st.tuples(TEXTS, TEXTS, st.lists(CALLS, max_size=3))
TURNS = st.lists(TURN, min_size=1, max_size=4).map(lambda turns: turns * 4) | st.lists(TURN, max_size=12)
"""An agent that may do anything, and often does it again."""


def chunks_of(turns: Sequence[Turn], first: int = 0) -> list[Chunk]:
    """The turns as chunks; every call has an id of its own."""
    out: list[Chunk] = []
    for number, (thought, text, calls) in enumerate(turns, start=first):
        out += [ReasoningDelta(thought), TextDelta(text)]
        for place, (name, arguments, _, _) in enumerate(calls):
            id = f"{number}.{place}"
            out += [ToolCallDelta(id, name, json.dumps(arguments)), ToolCall(id, name, arguments)]
        out.append(DONE)
        answers = [
            (place, name, text, is_error) for place, (name, _, text, is_error) in enumerate(calls) if text is not None
        ]
        out += [ToolResult(f"{number}.{place}", name, text, is_error) for place, name, text, is_error in answers]
    return out


def delivered_again(chunks: list[Chunk], again: list[tuple[int, int]]) -> list[Chunk]:
    """Some calls and results twice: a call somewhat later in its turn, a result somewhat later at
    all.
    """
    out = list(chunks)
    for place, later in again:
        here = place % len(out) if out else 0
        chunk = out[here] if out else None
        if isinstance(chunk, ToolCall):
            end = next(at for at in range(here, len(out)) if isinstance(out[at], TurnFinished))
            out.insert(min(here + later, end), chunk)
        elif isinstance(chunk, ToolResult):
            out.insert(min(here + 1 + later, len(out)), chunk)
    return out


def run(detector: Detector, chunks: Sequence[Chunk] | Iterator[Chunk]) -> list[Detection]:
    return [finding for chunk in chunks for finding in detector.observe(chunk)]


every = pytest.mark.parametrize("kind", DETECTORS)


def test_they_are_found_and_the_default_ones_are_new_and_named_apart():
    assert {"ToolCallRepetition", "ContentRepetition"} <= {kind.__name__ for kind in DETECTORS}
    names = [make(kind).name for kind in DETECTORS]
    assert len(set(names)) == len(names)
    assert {type(one) for one in default_detectors()} <= set(DETECTORS)
    once, again = default_detectors(), default_detectors()
    assert all(one is not other for one, other in zip(once, again, strict=True))
    assert all(make(kind, name="mine").name == "mine" for kind in DETECTORS)


@every
def test_it_has_the_protocol(kind: type[Any]):
    detector = make(kind)
    assert isinstance(detector, Detector)
    assert not hasattr(detector, "__dict__"), "slots, so that a thousand streams stay small"
    if is_channel_detector(detector):
        assert detector.feed_of("text") is not None
        assert detector.feed_of("tools") is None


@every
def test_it_is_silent_on_an_agent_that_gets_on(kind: type[Any]):
    assert run(make(kind), benign(60)) == []


@every
def test_its_findings_are_ordered_carry_its_name_and_survive_json(kind: type[Any]):
    detector = make(kind)
    for chunk in looping(12):
        findings = list(detector.observe(chunk))
        assert [finding.offset for finding in findings] == sorted(finding.offset for finding in findings)
        for finding in findings:
            assert finding.detector == detector.name
            assert finding.count >= finding.threshold
            assert finding.start_offset <= finding.offset
            assert len(finding.evidence.excerpt) <= 200
            assert len(finding.evidence.xxhash) == 16
            assert finding.message
            assert detection_codec.loads(detection_codec.dumps(finding)) == finding


@every
def test_reset_is_like_new(kind: type[Any]):
    detector = make(kind)
    fresh = json.dumps(make(kind).snapshot(), sort_keys=True)
    first = run(detector, looping(12))
    detector.reset()
    assert run(detector, looping(12)) == first
    detector.reset()
    again = make(kind)
    again.restore(json.loads(json.dumps(detector.snapshot())))
    assert run(again, looping(12)) == first
    again.restore(json.loads(fresh))
    assert run(again, looping(12)) == first


@every
@given(at=st.integers(0, 130))
def test_a_snapshot_is_small_versioned_json_and_restoring_it_goes_on(kind: type[Any], at: int):
    chunks = list(looping(12))
    detector, whole = make(kind), make(kind)
    assert run(detector, chunks[:at]) == run(whole, chunks[:at])
    state = detector.snapshot()
    line = json.dumps(state)
    assert isinstance(state["version"], int)
    assert len(line) < 64_000
    restored = make(kind)
    restored.restore(json.loads(line))
    assert run(restored, chunks[at:]) == run(whole, chunks[at:])
    assert json.dumps(detector.snapshot()) == line


@every
@given(turns=TURNS, at=st.integers(0, 200), sizes=st.lists(st.integers(1, 90), min_size=1, max_size=4))
def test_restored_anywhere_is_never_interrupted(kind: type[Any], turns: list[Turn], at: int, sizes: list[int]):
    chunks = list(rechunk(chunks_of(turns), sizes))
    at = min(at, len(chunks))
    whole, detector, restored = make(kind), make(kind), make(kind)
    before = run(detector, chunks[:at])
    restored.restore(json.loads(json.dumps(detector.snapshot())))
    assert before + run(restored, chunks[at:]) == run(whole, chunks)
    assert json.dumps(restored.snapshot()) == json.dumps(whole.snapshot())


@every
@pytest.mark.parametrize("version", [None, 0, 999, "1"])
def test_a_snapshot_of_another_version_is_refused_by_name(kind: type[Any], version: object):
    detector = make(kind, name="mine")
    state = {**detector.snapshot(), "version": version}
    with pytest.raises(ValueError, match=rf"mine: cannot restore version {version!r}"):
        detector.restore(state)


@every
@given(
    turns=TURNS, again=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12), at=st.integers(0, 60)
)
def test_a_call_or_result_that_is_delivered_twice_changes_nothing(
    kind: type[Any], turns: list[Turn], again: list[tuple[int, int]], at: int
):
    """A step that is carried out at least once may tell of it twice, on either side of a crash."""
    chunks = chunks_of(turns)
    twice, detector = delivered_again(chunks, again), make(kind)
    found = run(detector, twice[:at])
    restored = make(kind)
    restored.restore(json.loads(json.dumps(detector.snapshot())))
    assert found + run(restored, twice[at:]) == run(make(kind), chunks)


@every
@given(turns=TURNS, lost=TURN, at=st.integers(0, 8), cut=st.integers(0, 8))
def test_what_a_failed_attempt_contributed_is_rolled_back(
    kind: type[Any], turns: list[Turn], lost: Turn, at: int, cut: int
):
    before, after = chunks_of(turns[:at]), chunks_of(turns[at:], first=100)
    attempt = [chunk for chunk in chunks_of([lost], first=900) if not isinstance(chunk, TurnFinished | ToolResult)][
        :cut
    ]
    retried, spared = make(kind), make(kind)
    run(spared, before)
    run(retried, [*before, *attempt, StreamRetried("lost")])
    assert run(retried, after) == run(spared, after)


@every
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5).filter(any))
def test_how_the_text_is_cut_makes_no_difference(kind: type[Any], sizes: list[int]):
    chunks = list(looping(6))
    assert run(make(kind), rechunk(chunks, sizes)) == run(make(kind), chunks)


@every
def test_hostile_chunks_do_no_harm(kind: type[Any]):
    detector = make(kind)
    odd: list[Any] = ["", "\x00" * 300, "\ud800" * 300, "\U0001f600" * 300]
    for text in odd:
        for chunk in (
            TextDelta(text),
            ReasoningDelta(text),
            ToolCallDelta(text, None, text),
            ToolResult(text, text, text, is_error=True),
        ):
            detector.observe(chunk)
        for arguments in (None, text, [text], {text: float("nan")}, {"a": object()}, 10**5000):
            detector.observe(ToolCall(text, text, arguments))
        detector.observe(StreamRetried(text))
        detector.observe(DONE)
        json.dumps(detector.snapshot())
    assert {type(chunk) for chunk in looping(5)} == set(CHUNK_TYPES)


@every
def test_memory_does_not_grow_with_the_run(kind: type[Any]):
    def held(turns: int) -> int:
        tracemalloc.start()
        try:
            detector = make(kind)
            for chunk in benign(5):
                detector.observe(chunk)
            before = tracemalloc.get_traced_memory()[0]
            for chunk in benign(turns):
                detector.observe(chunk)
            gc.collect()  # empties the interpreter's lists of freed tuples, too
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

    held(400)  # what all runs share is made once, such as the marks of common words
    assert held(400) < held(40) + 10_000


@every
def test_it_imports_nothing_that_has_time_chance_or_effects(kind: type[Any]):
    package = Path(inspect.getfile(sys.modules[kind.__module__])).parent
    files = [Path(inspect.getfile(kind))] if package.name == "detectors" else sorted(package.glob("*.py"))
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & FORBIDDEN, file.name
