"""`--help` on a terminal of 80 columns, in a pipe without colours, and what Tab offers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import cleandoc
from itertools import pairwise
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from monitor.cli.app import COMMANDS, MOVED, app
from monitor.sessions import ENDING

COLUMNS = 80
TEN = ["demo", "run", "scan", "report", "watch", "hook", "calibrate", "doctor", "proxy", "sessions"]


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from paths(command.get_command(None, name), (*path, name))


def command_at(path: tuple[str, ...]) -> Any:
    found: Any = typer.main.get_group(app)
    for name in path:
        found = found.get_command(None, name)
    return found


PATHS = list(paths(typer.main.get_group(app)))


def help_of(path: tuple[str, ...], **more: str) -> str:
    told = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(COLUMNS), **more}, prog_name="agent-monitor")
    assert told.exit_code == 0, told.output
    return told.output


def test_there_are_ten_commands():
    assert [*COMMANDS] == TEN


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_breaks_no_line_before_it_is_full(path: tuple[str, ...]):
    """A sentence is broken where the terminal ends, and an example stands on its own line."""
    lines = help_of(path).splitlines()
    shown = [line.strip() for line in lines]
    for written in cleandoc(command_at(path).help or "").replace("\\[", "[").split("\n"):
        if written.startswith(" "):
            assert written.strip() in shown, f"too long for {COLUMNS} columns: {written.strip()}"
    boxes = next(at for at, line in enumerate(lines) if line.startswith("╭"))
    prose = [line for line in lines[3:boxes] if line.strip()]
    for line, after in pairwise(prose):
        words = after.split()
        ended = line.rstrip().endswith((".", ":", "?", "]", "...")) or line.startswith("  ") or after.startswith("  ")
        assert ended or len(line.rstrip()) + 1 + len(words[0]) > COLUMNS - 2, line


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_flags_and_arguments_have_no_type_of_the_parser(path: tuple[str, ...]):
    assert not re.search(r"<(bool|str|list|int|float)", help_of(path))


@pytest.mark.parametrize("path", [(), ("sessions",), ("proxy",), ("calibrate",)], ids=" ".join)
def test_a_group_names_its_commands_below_titles(path: tuple[str, ...]):
    told = help_of(path)
    titles = re.findall(r"^╭─ (.+?) ─", told, re.MULTILINE)
    assert len(titles) >= 2
    for name in command_at(path).list_commands(None):
        assert re.search(rf"^│ {re.escape(name)} ", told, re.MULTILINE), name


@pytest.mark.parametrize("name", MOVED)
def test_an_old_name_works_and_says_the_new_one(name: str):
    told = CliRunner().invoke(app, [name, "--help"], prog_name="agent-monitor")
    assert told.exit_code == 0
    assert told.stdout == CliRunner().invoke(app, [MOVED[name], name, "--help"], prog_name="agent-monitor").stdout
    assert told.stderr == (
        f"agent-monitor {name} is agent-monitor {MOVED[name]} {name} now; the old name goes with 0.4\n"
    )


def test_no_color_leaves_colours_out():
    bare = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    coloured = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;5;\d+)m")
    program = "from monitor.cli import main; import sys; sys.argv = ['agent-monitor', *sys.argv[1:]]; main()"

    def told(*arguments: str, **environment: str) -> str:
        run = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(
            run, capture_output=True, text=True, env={**environment, **bare}, timeout=250, check=False
        )
        return done.stdout + done.stderr

    for arguments in (["--help"], ["doctor"], ["scan", "/nowhere"]):
        assert coloured.search(told(*arguments))
        assert not coloured.search(told(*arguments, NO_COLOR="1"))


def completed(line: str, **more: str) -> list[str]:
    words = line.split(" ")
    asked = {"_AGENT_MONITOR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], env={**asked, **more}, prog_name="agent-monitor").output.split()


def test_tab_offers_the_ten_commands_and_what_is_below_them(tmp_path: Any):
    assert sorted(completed("agent-monitor ")) == sorted(TEN)
    assert completed("agent-monitor s") == ["scan", "sessions"]
    assert {"resume", "tell", "inbox", "deliver", "replay", "context", "compact", "list"} <= set(
        completed("agent-monitor sessions ")
    )
    assert sorted(completed("agent-monitor proxy ")) == ["budget", "keys"]
    assert sorted(completed("agent-monitor proxy keys ")) == ["list", "make", "revoke"]
    assert completed("agent-monitor scan --expl") == ["--explain"]
    (tmp_path / f"tidy{ENDING}").touch()
    assert completed("agent-monitor sessions resume t", AGENT_MONITOR_SESSIONS=str(tmp_path)) == ["tidy"]
