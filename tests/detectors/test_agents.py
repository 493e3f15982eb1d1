"""Whole runs, all default detectors together: good agents whose work looks repetitive are not
stopped; stuck ones are, or they are doubted so that a judge is asked.
"""

from __future__ import annotations

import pytest

from tests.detectors.made import AGENTS, of_group, watched


@pytest.mark.parametrize("kind", of_group(AGENTS, "good"))
def test_good_agents_are_not_stopped(kind: str):
    assert not any(found.level == "loop" for found in watched(AGENTS[kind]))


@pytest.mark.parametrize("kind", of_group(AGENTS, "stuck"))
def test_stuck_agents_are_stopped_or_doubted(kind: str):
    assert any(watched(AGENTS[kind]))


def test_counting_alone_stops_most_stuck_agents():
    stuck = of_group(AGENTS, "stuck")
    stopped = [kind for kind in stuck if any(found.level == "loop" for found in watched(AGENTS[kind]))]
    assert len(stopped) > len(stuck) / 2
