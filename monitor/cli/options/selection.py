"""The options with which a command chooses recorded runs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

SinceOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only runs of the last 7d (24h, 2w), or since 2026-01-31.")
]
FormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Only transcripts of this format: claude-code, codex."),
]
ProjectOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only runs whose folder has this in its path.")
]
LimitOption: TypeAlias = Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N runs.")]
