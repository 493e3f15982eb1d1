"""The options with which a command chooses recorded runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

TranscriptsArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...]",
        help="Transcripts: files, folders, patterns, archives; - is stdin. Without any, the known places are read.",
    ),
]
LimitOption: TypeAlias = Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N runs.")]
CardOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--card", metavar="FILE", help="Write the result as a picture: card.svg or card.png."),
]
CardTaskOption: TypeAlias = Annotated[
    bool, typer.Option("--card-task", help="With what was asked for in the costliest run. Else the card has no text.")
]
OneJsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(slots=True, frozen=True, kw_only=True)
class SelectionOptions:
    """The choice of runs."""

    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs of the last 7d (24h, 2w), or since 2026-01-31.")
    ] = None
    only: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Only transcripts of this format: claude-code, codex."),
    ] = None
    project: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only runs whose folder has this in its path.")
    ] = None
