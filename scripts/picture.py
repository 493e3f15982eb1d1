"""Draws `agent-monitor demo` as it looks in a terminal, as `docs/demo.svg`.

    python scripts/picture.py

The picture is the same on every machine: measured times become a fixed one, and it names no host.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS, LINES = 100, 60
SHOWN_LINES = 32
"""The first run of the demo, in which a text loops, and its end."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhln]")
_TIME = re.compile(r"\d+\.\d+( | )ms")
_FONT = re.compile(r"@font-face\s*\{[^}]*\}")


def output_of(command: list[str]) -> str:
    """What `command` prints on a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES), COLORTERM="truecolor")
        os.execvp(command[0], command)  # noqa: S606 - the command is this file's own
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux ends a pseudo terminal with an error
            break
        if not piece:
            break
        printed += piece
    os.waitpid(child, 0)
    return printed.decode("utf-8", "replace").replace("\r\n", "\n")


def picture(printed: str) -> str:
    """The first lines of `printed` as SVG, without foreign fonts."""
    lines = _TIME.sub("0.9 ms", _CONTROL.sub("", printed)).splitlines()[:SHOWN_LINES]
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi("\n".join(lines)))
        return _FONT.sub("", console.export_svg(title="agent-monitor demo", unique_id="demo"))


if __name__ == "__main__":
    drawn = picture(output_of([str(Path(sys.executable).with_name("agent-monitor")), "demo"]))
    PICTURE.write_text(re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")
