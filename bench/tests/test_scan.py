"""What stands beside a scan. Nothing is timed: a busy machine is no bug."""

from __future__ import annotations

from pathlib import Path

from bench._scan_peers import SESSIONS, parts, peers
from bench.scan import fill
from monitor.detectors.defaults import default_detectors


def test_the_parts_of_a_scan_name_each_detector_and_peers_find_the_sessions_where_they_look(tmp_path: Path) -> None:
    written = fill(tmp_path / SESSIONS, 3, 0.0, ("claude-code",))
    assert written > 0
    assert len([*tmp_path.glob(".claude/projects/*/*.jsonl")]) == 3
    spent = parts(tmp_path)
    assert all(milliseconds > 0 for milliseconds in spent.values())
    assert {f"all detectors but {type(one).__name__}" for one in default_detectors()} < set(spent)
    assert all(other.seconds > 0 for other in peers(tmp_path))
