"""The bench of sessions, in small: power cuts and kills lose nothing, and a loss would be seen."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench import sessions
from bench._power import cuts


def test_power_cuts_lose_nothing_that_was_acknowledged():
    found = cuts(40, seed=7, steps=45, logs=2)
    assert (found.cuts, found.lost, found.damaged, found.what) == (40, 0, 0, [])
    assert found.phases.keys() >= {"writing", "writing side by side", "compacting"}


def test_cuts_of_a_session_that_does_not_sync_lose_nodes():
    """Else the test above would prove nothing."""
    found = cuts(25, seed=7, steps=45, synchronous="NORMAL", logs=1)
    assert found.lost > 3


TINY = replace(
    sessions.QUICK,
    kills=4,
    flips=8,
    appends=40,
    crowds=(1, 5),
    peer_appends=10,
    turns=20,
    nodes=1_000,
    rounds=1,
    cost_turns=2,
)


def test_kills_and_the_other_parts_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "installed", lambda *_: [])  # without the peers, which take seconds to import
    results = sessions.measure(TINY, ("flips", "kills", "cost", "speed", "size", "context", "reader"))
    sessions.show(results)
    data: Any = json.loads(json.dumps(results.to_dict()))
    kills = data["kills"]
    assert (kills["kills"], kills["lost"], kills["damaged"], kills["twice"], kills["unrecorded"]) == (4, 0, 0, 0, 0)
    assert [row["runs"] for row in data["cost"]] == [20] * 5
    assert [row["appends"] for row in data["speed"][:2]] == [40, 40]
    assert data["speed"][1]["commits"] < 40
    assert [row["text_mb"] > 0 for row in data["sizes"][:2]] == [True, True]
    assert data["context"]["nodes"] == 1_300
    assert data["reader"]["consistent"]
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
