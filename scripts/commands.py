"""Writes docs/made/commands.md, a page of the site: `--help` of every command. `make docs` runs it.

The page is no part of the repository: the command itself is the source of its options.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from monitor.cli.app import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "made" / "commands.md"
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1"}


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each command below `command`, as the words to type behind `agent-monitor`."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield (*path, name)
            yield from paths(command.get_command(None, name), (*path, name))


def page() -> str:
    """The whole page."""
    parts = ["# Every option\n\n`--help` of each command. What the commands are for: [the command](../cli.md).\n"]
    for path in paths(get_command(app)):
        shown = CliRunner().invoke(app, [*path, "--help"], env=PLAIN, prog_name="agent-monitor").stdout
        text = "\n".join(line.rstrip() for line in shown.strip("\n").splitlines())
        parts.append(f"## {' '.join(path)}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
