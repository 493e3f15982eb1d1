"""The benches of agent frameworks still run, and nothing is wrong. Nothing is timed."""

from __future__ import annotations

import json

import pytest

from bench import integrations
from bench._close_frameworks import FrameworkEndings, framework_rows
from bench.frameworks.base import Framework, frameworks


@pytest.fixture(scope="module")
def installed() -> list[Framework]:
    """Imported here and not where the tests are collected: every process does that."""
    found = [framework for framework in frameworks().values() if framework is not None]
    return found or pytest.skip("no framework is installed")


def test_there_is_a_row_for_each_module():
    assert {"langchain", "openai_agents", "pydantic_ai"} <= set(frameworks())


def test_every_framework_stops_at_once_and_has_numbers(installed: list[Framework]):
    results = integrations.measure(integrations.Sizes(closings=1, rounds=1, chunks=50))
    integrations.show(results)
    data = json.loads(json.dumps(results.to_dict()))
    assert [row["name"] for row in data["rows"]] == [framework.name for framework in installed]
    for row in data["rows"]:
        assert (row["wrong"], row["closings"], row["chunks_after"]) == (0, 1, 0)
        assert row["bare_us"] > 0
        assert row["guarded_us"] > 0
        assert row["packages"]
    assert {one["goal"]: one["passed"] for one in data["goals"]}["runs that were not stopped, or not closed"]


def test_every_ending_inside_every_framework_is_seen_by_the_server(installed: list[Framework]):
    rows = framework_rows(1)
    kinds = len(list(FrameworkEndings(installed[0], None, None).all()))  # type: ignore[arg-type]
    assert len(rows) == kinds * len(installed)
    assert {f"{row.sdk}, {row.name}": dict(row.what) for row in rows if row.wrong} == {}
    assert all(row.usable == row.runs == 1 for row in rows)
