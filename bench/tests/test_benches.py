"""The benchmarks still run, find nothing wrong, and have numbers for all that they promise. Nothing
is timed: a busy machine is no bug.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench import close, judge, stream
from bench._close_sdks import GOOGLE, SDKS
from tests.adapters.google.sdk import sdk_warnings

TINY = replace(
    stream.QUICK,
    chunks=500,
    rounds=2,
    megabytes=(0.01, 0.05),
    memory_megabytes=(0.01, 0.02),
    streams=(2, 20),
    closes=5,
    peer_chunks=100,
)


def _as_written(results: close.Results | stream.Results | judge.Results) -> Any:
    return json.loads(json.dumps(results.to_dict()))


@sdk_warnings
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore2 leaves generators behind on trio
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the same
def test_close() -> None:
    results = close.measure(runs=1, floods=1, races=1)
    close.show(results)
    data = _as_written(results)

    places = {(sdk.name, *place) for sdk in SDKS for place in sdk.transports}
    assert {(row["sdk"], row["backend"], row["transport"]) for row in data["endings"]} == places
    assert {row["name"]: row["what"] for row in data["endings"] if row["wrong"]} == {}
    assert all(row["usable"] == row["runs"] == 1 for row in data["endings"])
    assert all((row["p99_ms"] is None) == (row["unasked"] == 1) for row in data["endings"])
    assert all("opening" in row["name"] for row in data["endings"] if row["unasked"])
    assert {(flood["sdk"], flood["backend"], flood["transport"]) for flood in data["floods"]} == places
    assert [flood["wrong"] for flood in data["floods"] if flood["wrong"]] == []
    assert {row["backend"] for row in data["races"]} == {"asyncio", "trio"}
    assert {row["name"]: row["what"] for row in data["races"] if row["wrong"]} == {}
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}


@pytest.mark.timeout(180)  # it runs each of its parts twice, on a machine that may be busy
def test_stream() -> None:
    results = stream.measure(TINY)
    stream.show(results)
    data = _as_written(results)

    places = {(row["backend"], row["source"]) for row in data["costs"]}
    assert places == {
        (backend, source) for backend in ("asyncio", "trio") for source in ("never suspends", "one turn a chunk")
    }
    assert all(row["us"]["median"] > 0 for row in data["costs"] + data["decoding"] + data["peers"])
    assert [age["megabytes"] for age in data["ages"]] == [0.01, 0.05]
    assert {row["script"]: len(row["kilobytes"]) for row in data["held"]} == {
        "ascii": 2,
        "cjk": 2,
        "emoji": 2,
        "ascii, all default detectors": 2,
        "ascii, and its text, kept to a million characters": 2,
    }
    assert {(crowd["backend"], crowd["streams"]) for crowd in data["crowds"]} == {
        ("asyncio", 2),
        ("asyncio", 20),
        ("trio", 2),
        ("trio", 20),
    }
    assert [(row["backend"], row["pulled_too_many"]) for row in data["closings"]] == [("asyncio", 0), ("trio", 0)]
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}


@sdk_warnings
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore2 leaves generators behind on trio
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the same
def test_judge() -> None:
    results = judge.measure(judge.Sizes(rounds=1, verdicts=1, stream_s=0.4, judge_s=0.05))
    judge.show(results)
    data = _as_written(results)

    assert [(row["backend"], row["transport"]) for row in data["deliveries"]] == list(GOOGLE.transports)
    assert all(row["chunks"] == 200 for row in data["deliveries"])
    assert [(row["runs"], row["wrong"]) for row in data["verdicts"]] == [(1, 0)] * 3
    assert {goal["goal"]: goal["value"] for goal in data["goals"]}["questions without an answer"] == 0
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
