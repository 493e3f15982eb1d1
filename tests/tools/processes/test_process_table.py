"""Processes are found without a look at the whole table, and none is missed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitor.tools.processes import process_table
from monitor.tools.processes.process_table import (
    MARKER,
    RecentProcesses,
    below,
    living,
    marked,
    members,
    owner_token,
    sweep,
)

pytestmark = pytest.mark.skipif(not process_table.HAS_TABLE, reason="there is no /proc here")

TREES = {
    "a child": "sleep 100 & echo; wait",
    "a session of its own": "setsid sleep 100 & echo; wait",
    "without the marker": "env -i sleep 100 & echo; wait",
    "threads": f"{sys.executable} -I -S -c 'import threading, time; "
    "[threading.Thread(target=time.sleep, args=(100,)).start() for _ in range(5)]; print(flush=True)' & wait",
}


@pytest.mark.parametrize("line", TREES.values(), ids=TREES.keys())
def test_the_newest_processes_hold_all_descendants(line: str):
    token = owner_token("t")
    environment = {MARKER: marked(token), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(["bash", "-c", line], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    recent = RecentProcesses(process.pid)
    try:
        process.stdout.readline()
        until = time.monotonic() + 30  # a process that starts a program has no marker for a moment
        while (found := {entry.pid for entry in members(token, None, (), recent)}) != {
            entry.pid for entry in members(token, None)
        }:
            assert time.monotonic() < until, found
        assert found - {process.pid} <= {entry.pid for entry in below(process.pid)}
    finally:
        sweep(lambda: members(token, None))
        process.wait()
        process.stdout.close()


def test_a_short_command_looks_at_few_processes(monkeypatch: pytest.MonkeyPatch):
    process = subprocess.Popen(["sleep", "100"])
    try:
        ids = RecentProcesses(process.pid).ids()
        if ids is None:
            pytest.skip("ids may have come round: many processes started here meanwhile")
        assert process.pid in ids
        assert len(ids) <= process_table.MOST_LOOKED_AT
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("first", "newest", "seen"),
    [(100, 103, [100, 101, 102, 103]), (32_766, 2, [32_766, 32_767, 0, 1, 2]), (5, 5, [5]), (100, 99, None)],
    ids=["in order", "come round", "alone", "all ids"],
)
def test_ids_go_from_the_first_to_the_newest(
    first: int, newest: int, seen: list[int] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "loadavg").write_text(f"0.00 0.00 0.00 1/100 {newest}\n")
    monkeypatch.setattr(process_table, "_PROC", str(tmp_path))
    monkeypatch.setattr(process_table, "_highest_id", lambda: 32_768)
    assert RecentProcesses(first).ids() == seen


def test_ids_that_may_have_come_round_mean_the_whole_table(monkeypatch: pytest.MonkeyPatch):
    recent = RecentProcesses(1)
    monkeypatch.setattr(process_table, "PROCESSES_A_SECOND", 1e12)
    assert recent.ids() is None


def test_without_a_list_of_children_the_table_is_read(monkeypatch: pytest.MonkeyPatch):
    process = subprocess.Popen(["bash", "-c", "sleep 100 & wait"])
    try:
        while not (direct := {entry.pid for entry in below(process.pid)}):
            pass
        monkeypatch.setattr(process_table, "_children", lambda pid: None)
        assert {entry.pid for entry in below(process.pid)} == direct
        assert process.pid in {entry.pid for entry in living()}
    finally:
        sweep(lambda: below(process.pid))
        process.kill()
        process.wait()
