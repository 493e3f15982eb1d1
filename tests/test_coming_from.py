"""The page for newcomers has every row, and names what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import monitor
from monitor.cli.app import COMMANDS, app

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
ROWS = {
    id: (here, why) for id, here, why in re.findall(r"^\| ([A-Z]{2}-\d+) \| (.+?) \| ?(.*?) ?\|$", PAGE, re.MULTILINE)
}


def test_every_row_has_its_place():
    asked = [line.split("\t")[0] for line in (ROOT / "fixtures" / "features.tsv").read_text("utf-8").splitlines()]
    assert sorted(ROWS) == sorted(asked)


@pytest.mark.parametrize("id", ROWS)
def test_what_a_newcomer_is_sent_to_is_there(id: str):
    code = re.findall(r"`([^`]+)`", "\n".join(ROWS[id]))
    assert code or ROWS[id][0] == "later"
    for dotted in re.findall(r"\bmonitor((?:\.[A-Za-z_]\w*)+)", "\n".join(code)):
        thing: Any = monitor
        for name in dotted[1:].split("."):
            assert name in getattr(thing, "__all__", dir(thing)) or name in monitor._ROOMS, dotted
            thing = getattr(thing, name)
    for name in re.findall(r"\brun\.(\w+)", "\n".join(code)):
        assert hasattr(monitor.Run, name)
    for name in re.findall(r"\bsession\.(\w+)", "\n".join(code)):
        assert hasattr(monitor.sessions.SQLiteSession, name)
    for command in re.findall(r"agent-monitor ([a-z-]+)(?: ([a-z-]+))?", "\n".join(code)):
        assert command[0] in COMMANDS
        if command[1]:
            group: Any = typer.main.get_command(app).get_command(None, command[0])  # type: ignore[attr-defined]
            assert command[1] in group.commands
