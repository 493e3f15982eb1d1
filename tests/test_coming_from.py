"""The page for newcomers has every row, and names what is there."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import monitor
from monitor.cli.app import COMMANDS, app
from monitor.context.compaction.preset import Preset
from monitor.messages import UserMessage
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel
from monitor.tools.base import ToolTraits
from monitor.tools.remote.web import WebTools

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([A-Z]{2}-\d+) [^|]+ \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)
ROWS = {id: (here, why) for id, here, why in ROW.findall(PAGE)}


def test_every_row_has_its_place():
    asked = [line.split("\t")[0] for line in (ROOT / "fixtures" / "features.tsv").read_text("utf-8").splitlines()]
    assert sorted(ROWS) == sorted(asked)


@pytest.mark.parametrize("id", ROWS)
def test_what_a_newcomer_is_sent_to_is_there(id: str):
    code = re.findall(r"`([^`]+)`", "\n".join(ROWS[id]))
    assert code
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


THERE: dict[str, Any] = {
    "monitor": monitor,
    "WebTools": WebTools,
    **dict.fromkeys(["model", "small"], ScriptedModel()),
    **dict.fromkeys(["history", "messages", "tools"], ()),
    **dict.fromkeys(["save", "hint", "veto", "read", "write"], print),
    **dict.fromkeys(["id", "name", "text", "node"], "a"),
    "memory": monitor.tools.FileMemory("memory"),
    "session": InMemorySession(),
    "shorter": UserMessage(()),
    "source": monitor.tools.Reference(kind="output"),
    "store": monitor.tools.InMemoryArtifacts(),
    "workspace": monitor.tools.Workspace(ROOT),
}
"""The names that the lines of code use without saying where they come from."""
OPTIONS = {
    *inspect.signature(monitor.Supervisor.__init__).parameters,
    *(field.name for of in (Preset, ToolTraits) for field in dataclasses.fields(of)),
    "default_tokens",
    "memory",
}


@pytest.mark.parametrize("id", ROWS)
def test_each_line_of_code_runs(id: str):
    for code in re.findall(r"`([^`]+)`", "\n".join(ROWS[id])):
        option = re.match(r"(\w+)=", code)
        if option is not None:
            assert option[1] in OPTIONS, code
        if "monitor." in code and "await" not in code and not code.startswith("session."):
            eval(f"dict({code})" if option is not None else code, dict(THERE))
