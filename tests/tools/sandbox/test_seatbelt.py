"""The rules for `sandbox-exec`, as far as a text shows them: no Mac runs these tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from monitor.tools import SandboxFound, find_sandbox
from monitor.tools.sandbox import confinement, seatbelt
from monitor.tools.sandbox.sandbox_places import SandboxPlaces

PLACES = SandboxPlaces(
    workspace=Path('/Users/u/a "b"'),
    home=Path("/Users/u"),
    hidden=(),
    read=(Path("/Users/u/.pyenv"),),
    write=(),
    protected=(),
    watched=(Path('/Users/u/a "b"/.git'),),
)


def test_later_rules_win_so_what_is_protected_comes_last():
    rules = seatbelt.profile(PLACES, Path("/private/tmp/s"), network=False)
    assert '(subpath "/Users/u/a \\"b\\"")' in rules
    hidden = rules.index('(deny file-read* (subpath "/Users/u"))')
    shown = rules.index('(allow file-read* (subpath "/Users/u/.pyenv"))')
    written = rules.index("(allow file-write* (subpath")
    protected = rules.index("(deny file-write* (subpath")
    assert hidden < shown < written < protected
    assert "network" not in rules
    assert "(allow network*)" in seatbelt.profile(PLACES, Path("/private/tmp/s"), network=True)


def test_a_mac_has_one_where_the_program_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(seatbelt, "PROGRAM", str(tmp_path))
    assert find_sandbox().kind == "sandbox-exec"
    monkeypatch.setattr(seatbelt, "PROGRAM", str(tmp_path / "gone"))
    assert find_sandbox() == SandboxFound("none", f"{tmp_path}/gone is not there; {confinement.OPEN}")
