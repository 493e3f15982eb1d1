"""The file of `--card`: the result of a scan as a picture, SVG or PNG."""

from __future__ import annotations

import csv
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from monitor.cli.render import output
from monitor.cli.render.output import STDIN
from monitor.cli.render.table import RowKind
from monitor.errors import ConfigError
from monitor.transcripts.analysis.survey import Card

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------
# A file that a command writes: all of it or nothing, and never through a link.

PREFIX_CHARS: Final = 50
"""The name of a half-written file has at most this many characters of the name of the file."""


def check_out(out: Path, option: str) -> None:
    """Raises `ConfigError` if the file of `option` cannot be written, before any work is done."""
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{option} {out}: there is no such directory")
    if out.is_symlink():
        raise ConfigError(f"{option} {out}: it is a symbolic link; name the file itself")
    if out.exists() and not out.is_file():
        raise ConfigError(f"{option} {out}: it is {'a directory' if out.is_dir() else 'no regular file'}")


def write_out(out: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write `pieces` through a name that nobody can have taken. A new file is for its owner alone;
    an old one keeps its mode.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{out.name[:PREFIX_CHARS]}.", dir=out.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as half:
                half.writelines(pieces)
                if out.is_file() and not out.is_symlink():
                    Path(name).chmod(stat.S_IMODE(out.stat().st_mode))
            Path(name).replace(out)  # of a link that was put there meanwhile it takes the place, and does not follow it
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{option} {out}: cannot be written: {error.strerror or error}") from None


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


# --------------------------------------------------------------------------------------------------
# The rows of a scan as CSV.

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins with one of these for a formula."""


@contextmanager
def rows_to(file: str | None, kind: RowKind[T]) -> Iterator[Callable[[T], None]]:
    """Writes a row for each thing of a kind. `file`: `-` is stdout, `None` nowhere."""
    if file is None:
        yield lambda _: None
        return
    with ExitStack() as stack:
        out = sys.stdout if file == STDIN else stack.enter_context(_created(Path(file)))
        writer = csv.writer(out)
        writer.writerow(kind.csv_columns)
        yield lambda row: writer.writerow(map(_cell, kind.as_csv(row)))


def _created(path: Path) -> Any:
    try:
        return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _cell(value: object) -> object:
    if isinstance(value, str):
        shown = output.on_one_line(value)
        return f"'{shown}" if shown.startswith(_FORMULA) else shown
    return value
