"""The file of `--card`: the result of a scan as a picture."""

from __future__ import annotations

from pathlib import Path

from monitor.cli.render.out_file import check_out, write_out
from monitor.errors import ConfigError
from monitor.transcripts.analysis.card import Card


def check_card(out: Path | None) -> None:
    """Raises `ConfigError` if `out` cannot be written, before anything is read."""
    if out is None:
        return
    if out.suffix.lower() != ".svg":
        raise ConfigError(f"--card {out}: the picture is SVG; name it {out.with_suffix('.svg').name}")
    check_out(out, "--card")


def write_card(out: Path | None, card: Card, *, task: bool) -> None:
    """Write the picture of `card`, if there is a file for it and a run in it."""
    if out is None or not card.runs:
        return
    from monitor.report.card_picture import card_svg  # noqa: PLC0415 - few scans make a picture

    write_out(out, [card_svg(card, task=task).encode("utf-8", "replace")], "--card")
