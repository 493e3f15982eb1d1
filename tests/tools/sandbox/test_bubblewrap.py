"""bubblewrap is found, tried once, and never believed without a try."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from monitor.tools import Workspace, find_sandbox
from monitor.tools.sandbox import bubblewrap
from monitor.tools.sandbox.sandbox_places import SandboxPlaces
from tests.processes import BUBBLEWRAP

TEXTS = {
    "no namespaces": "bwrap: No permissions to create new namespace, likely because the kernel does not allow it.",
    "root without rights": "bwrap: Creating new namespace failed: Operation not permitted",
    "too many": "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded",
    "a masked /proc": "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
    "AppArmor": "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
    "AppArmor, later": "bwrap: setting up uid map: Permission denied",
    "an old one": "bwrap: Unknown option --json-status-fd",
}


def fake(folder: Path, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder in which programs are looked for."""
    monkeypatch.setattr(bubblewrap, "SYSTEM", ())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "bin"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_one_that_does_not_work_says_why(only: Path, text: str):
    fake(only, f'echo "{text}" >&2; exit 1')
    found = find_sandbox()
    assert found.kind in ("landlock", "none")
    assert text in found.detail
    assert ("bwrap-userns-restrict" in found.detail) == ("RTM_NEWADDR" in text or "uid map" in text)


def test_one_that_only_ends_well_has_confined_nothing(only: Path):
    fake(only, "exit 0")
    assert find_sandbox().kind in ("landlock", "none")


def test_one_that_hangs_is_given_up(only: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bubblewrap, "PROBE_S", 0.05)
    fake(only, "exec sleep 100")
    assert "did not end within 0.05 s" in find_sandbox().detail


def test_it_is_tried_once(only: Path, tmp_path: Path):
    fake(only, f"echo x >> {tmp_path}/tried; exit 1")
    for _ in range(3):
        find_sandbox()
    assert (tmp_path / "tried").read_text() == "x\n"


def test_one_that_is_missing_is_said(only: Path):
    assert "bubblewrap is not installed" in find_sandbox().detail


def test_one_in_the_workspace_is_never_used(only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor by a link, nor from a relative entry of `PATH`."""
    workspace = Workspace(tmp_path).root
    fake(only, "exit 42")
    assert bubblewrap.program(workspace) is None
    elsewhere = tmp_path.parent / f"{tmp_path.name}-links"
    elsewhere.mkdir()
    (elsewhere / "bwrap").symlink_to(only / "bwrap")
    monkeypatch.setenv("PATH", os.pathsep.join(["bin", ".", "", str(elsewhere)]))
    monkeypatch.chdir(tmp_path)
    assert bubblewrap.program(workspace) is None
    assert bubblewrap.program() == str((only / "bwrap").resolve())


@BUBBLEWRAP
def test_the_one_of_this_machine_works():
    assert find_sandbox().detail == ""


def test_the_order_of_the_mounts_keeps_what_is_protected():
    places = SandboxPlaces(
        workspace=Path("/home/u/w"),
        home=Path("/home/u"),
        hidden=(Path("/tmp"), Path("/run")),
        read=(Path("/home/u/.pyenv"),),
        write=(Path("/data"),),
        protected=(Path("/home/u/w/.git"), Path("/home/u/w/.git/hooks")),
        watched=(),
    )
    given = bubblewrap.arguments(places, network=False, scratch=Path("/scratch"))
    mounts = ["/", "/tmp", "/home/u", "/home/u/.pyenv", "/data", "/home/u/w", "/home/u/w/.git"]
    positions = [max(index for index, word in enumerate(given[:-2]) if word == mount) for mount in mounts]
    assert positions == sorted(positions)
    assert given.index("/proc/sys") > given.index("--proc")
    assert "/home/u/w/.git/hooks" not in given  # it stands in .git
    for word in ("--unshare-net", "--unshare-pid", "--new-session"):
        assert word in given
    assert given[given.index("--cap-drop") + 1] == "ALL"
    assert "--unshare-net" not in bubblewrap.arguments(places, network=True, scratch=None)
