"""Runs of the command that are stored in a session, for the tests of `resume` and `replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

import monitor
from monitor.adapters.replay_model import RecordedChunk, write_chunks
from monitor.chunks import Chunk, TextDelta, TurnFinished
from monitor.cli.app import app
from monitor.errors import FinishReason
from monitor.sessions import SQLiteSession
from monitor.testing import ScriptedModel, call

TOOLS = '''
from pathlib import Path


def send(to: str) -> str:
    """Send a letter."""
    with Path("letters.txt").open("a") as file:
        print(to, file=file)
    return f"sent to {to}"


def look(q: str) -> str:
    """Look."""
    return f"found {q}"
'''
SENDS: list[list[Chunk]] = [[TextDelta("I send it. "), call("send", to="Ada")], [TextDelta("All is done.")]]


def recorded(*turns: list[Chunk], name: str = "run.jsonl") -> str:
    """A recording of these turns, as the name of a model."""
    chunks = [one for turn in turns for one in (*turn, TurnFinished(FinishReason.DONE))]
    write_chunks(name, [RecordedChunk(number / 10, chunk) for number, chunk in enumerate(chunks)])
    return f"replay:{name}"


def invoke(*arguments: str, said: str | None = None) -> Result:
    """The command with these arguments."""
    return CliRunner().invoke(app, list(arguments), input=said, env={"COLUMNS": "200"})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with tools, and one for sessions."""
    (tmp_path / "kept_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(tmp_path / "sessions"))
    return tmp_path / "sessions"


def by_program(path: Path, *answers: Any, **options: Any) -> monitor.Outcome:
    """A run of a program with its own tools, stored in a session."""

    async def run() -> monitor.Outcome:
        path.parent.mkdir(exist_ok=True)
        async with SQLiteSession(path, chunks=options.pop("chunks", True)) as session:
            return await monitor.Supervisor(ScriptedModel(*answers), session=session, **options).run("do it")

    return anyio.run(run)
