"""The bench of many streams, and the arithmetic of workers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from bench import _cost_model, streams
from bench._cost_model import Costs, Fleet
from bench._report import RESULTS

COSTS = Costs(chunk_us=20.0, set_up_us=400.0, stream_kb=20.0, commits_per_s=500.0, commit_ms=1.0)
FLEET = Fleet(sessions=2_000, within_s=360.0, slots=40)


def test_workers_follow_from_the_slots_where_the_cores_have_room():
    need = _cost_model.simulated(COSTS, FLEET)
    turn_s = FLEET.chunks / FLEET.chunks_per_s + FLEET.tools_s
    assert need.sessions_at_once == pytest.approx(2_000 / 360 * 10 * turn_s)
    assert need.workers_for_slots == pytest.approx(need.sessions_at_once / 40)
    assert need.workers_for_slots <= need.workers <= 1.5 * need.workers_for_slots + 1
    assert need.start_wait_p99_s <= 1.0


def test_workers_follow_from_the_cores_where_chunks_are_dear():
    need = _cost_model.simulated(replace(COSTS, chunk_us=2_000.0), FLEET)
    assert need.workers >= need.workers_for_cpu > need.workers_for_slots
    assert need.core_p99 <= 0.8


def test_the_costs_are_those_of_the_committed_results():
    assert _cost_model.costs().chunk_us == json.loads((RESULTS / "streams.json").read_text())["costs"]["chunk_us"]


def test_streams_beside_a_flood_get_all_their_chunks():
    alone, beside = asyncio.run(streams._fairness(5, 0.2))
    assert (alone.flooded, beside.flooded) == (False, True)
    assert beside.flood_chunks > 64
