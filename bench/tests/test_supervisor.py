"""The benchmark of the supervisor still runs, and has numbers for all that it promises. Nothing is
timed: a busy machine is no bug.
"""

from __future__ import annotations

import json
from dataclasses import replace

from bench import supervisor


def test_supervisor() -> None:
    plan = replace(supervisor.QUICK, turns=3, rounds=1, long_run=40, block=20, crowd=5, crowd_turns=2)
    results = supervisor.measure(plan)
    supervisor.show(results)
    data = json.loads(json.dumps(results.to_dict()))
    assert len(data["parts"]) == 5
    assert data["peers"][0]["row"] == supervisor.OURS
    assert all(row["us"] > 0 for row in data["parts"] + data["peers"])
    assert data["age"]["turns"] == 40
    assert data["crowd"]["runs"] == 5
    assert data["crowd"]["kilobytes"] > 0
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
