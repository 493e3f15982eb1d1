"""Options of a command as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import typer
from typer.testing import CliRunner

from monitor.cli.app import flattened


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group with an option that must be given, and one that may."""

    first: Annotated[str, typer.Option("--first", help="It must be given.")]
    second: Annotated[int, typer.Option(min=1)] = 2


def test_the_fields_of_a_group_stand_in_its_place_and_reach_the_command_as_one_object():
    seen: list[object] = []

    def command(before: str = "a", *, group: Group, after: bool = False) -> None:
        seen.extend([before, group, after])

    flat = flattened(command)
    assert list(signature(flat).parameters) == ["before", "first", "second", "after"]
    flat(before="b", first="x", second=3, after=True)
    assert seen == ["b", Group(first="x", second=3), True]


def test_a_command_line_is_checked_as_the_fields_say():
    app, seen = typer.Typer(), list[Group]()

    def command(group: Group) -> None:
        seen.append(group)

    app.command()(flattened(command))
    assert CliRunner().invoke(app, ["--first", "x"]).exit_code == 0
    assert seen == [Group(first="x")]
    assert CliRunner().invoke(app, []).exit_code == 2
    assert CliRunner().invoke(app, ["--first", "x", "--second", "0"]).exit_code == 2
    assert len(seen) == 1
