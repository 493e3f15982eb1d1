"""The file of `--card`: the result of a scan as a picture, SVG or PNG."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from monitor.cli.render.out_file import check_out, write_out
from monitor.errors import ConfigError
from monitor.transcripts.analysis.card import Card

BROWSERS: Final = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "chrome", "msedge"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
"""The browsers that can draw a picture without a window."""
PATIENCE_S: Final = 60


def check_card(out: Path | None) -> None:
    """Raises `ConfigError` if `out` cannot be written, before anything is read."""
    if out is None:
        return
    kind, svg = out.suffix.lower(), out.with_suffix(".svg").name
    if kind not in {".svg", ".png"}:
        raise ConfigError(f"--card {out}: the picture is SVG or PNG; name it {svg}")
    if kind == ".png" and _browser() is None:
        raise ConfigError(f"--card {out}: a PNG needs Chromium, Chrome or Edge, and none was found; name it {svg}")
    check_out(out, "--card")


def write_card(out: Path | None, card: Card, *, task: bool) -> None:
    """Write the picture of `card`, if there is a file for it and a run in it."""
    if out is None or not card.runs:
        return
    from monitor.report.card_picture import card_svg  # noqa: PLC0415 - few scans make a picture

    svg = card_svg(card, task=task).encode("utf-8", "replace")
    write_out(out, [svg if out.suffix.lower() == ".svg" else _png(svg, out)], "--card")


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _png(svg: bytes, out: Path) -> bytes:
    """The picture `svg` as PNG, drawn by a browser with a profile of its own. `out`: beside it the
    browser works, since some may read and write in the user's folders only.
    """
    from monitor.report.card_picture import HEIGHT, WIDTH  # noqa: PLC0415 - few scans make a picture

    beside = out.absolute().parent
    with tempfile.TemporaryDirectory(prefix="agent-monitor-", dir=beside, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        drawn, taken = folder / "card.svg", folder / "card.png"
        drawn.write_bytes(svg)
        command = [
            *(_browser() or "", "--headless", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={taken}"),
            *(["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []),  # which a browser asks of root
            drawn.as_uri(),
        ]
        try:
            quiet = subprocess.DEVNULL
            subprocess.run(  # noqa: S603 - it has just been found
                command, check=True, timeout=PATIENCE_S, stdin=quiet, stdout=quiet, stderr=quiet
            )
            return taken.read_bytes()
        except (OSError, subprocess.SubprocessError):
            raise ConfigError(
                f"--card {out}: {command[0]} drew no picture; name it {out.with_suffix('.svg').name}"
            ) from None
