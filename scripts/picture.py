"""Draws two commands as they look in a terminal: `docs/demo.svg` is `agent-monitor demo`, and
`docs/live.svg` a recorded answer of a real small model, stopped while it loops.

    python scripts/picture.py

The pictures are the same on every machine: measured times become a fixed one, and no
host is named.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
AGENT_MONITOR = str(Path(sys.executable).with_name("agent-monitor"))
COLUMNS, LINES = 100, 60
DEMO_LINES = 32
"""The first run of the demo, in which a text loops, and its end."""
LIVE_ANSWER = "letter-t0.1-s1"
"""An answer of `fixtures/live/answers.jsonl.gz`, which `make live LIVE=--record` has recorded."""
_CONTROL = re.compile(r"\x1b\[(?:\?[0-9;]*[hl]|[0-9;]*[B-HJSTfn])")
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


def screen(printed: str) -> list[str]:
    """The lines that are left on a terminal, where the cursor goes up and lines are cleared."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;]*[AK]|\n)", printed):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part.endswith("A") and part.startswith("\x1b["):
            row -= int(part[2:-1] or 1)
        elif part.endswith("K") and part.startswith("\x1b["):
            lines[row] = ""
        else:
            lines[row] += part.removeprefix("\r")
    return lines


def picture(printed: str, title: str, most: int) -> str:
    """The first `most` lines of `printed` as SVG, without foreign fonts."""
    lines = screen(_TIME.sub("0.9 ms", _CONTROL.sub("", printed)))
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi("\n".join(lines[:most])))
        drawn = console.export_svg(title=title, unique_id=title.rsplit(maxsplit=1)[-1])
        return re.sub(r"<!--.*?-->", "", _FONT.sub("", drawn), flags=re.DOTALL)


def live() -> str:
    """What `agent-monitor run` prints of the recorded answer."""
    with gzip.open(ROOT / "fixtures" / "live" / "answers.jsonl.gz", "rt", encoding="utf-8") as lines:
        (text,) = (answer["text"] for answer in map(json.loads, lines) if answer["id"] == LIVE_ANSWER)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "smollm2-135m.jsonl"
        chunks = [{"type": "text_delta", "text": word} for word in re.findall(r"\s*\S+", text)]
        recording.write_text("".join(json.dumps(chunk) + "\n" for chunk in chunks))
        command = [AGENT_MONITOR, "run", "Write a long letter.", "--model", f"replay:{recording}", "--policy", "stop"]
        return output_of(command).replace(f"replay:{recording}", "SmolLM2 135M, recorded")


if __name__ == "__main__":
    for name, printed, most in (("demo", output_of([AGENT_MONITOR, "demo"]), DEMO_LINES), ("live", live(), LINES)):
        drawn = ROOT / "docs" / f"{name}.svg"
        drawn.write_text(picture(printed, f"agent-monitor {name}", most), encoding="utf-8")
        print(f"{drawn.name}: {drawn.stat().st_size:,} bytes")
