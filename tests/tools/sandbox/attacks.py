"""Attacks on a sandbox, and the table of what they found, which stands in docs/sandbox.md.

`python -m tests.tools.sandbox.attacks` runs them all and writes the table into the page. An attack
is a line that says `REACHED` if it has succeeded. Where it fails without any sandbox too, it shows
nothing on this machine, and its cell is empty.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import anyio

from monitor.tools import Sandbox, ShellTools, Workspace
from monitor.tools.sandbox import bubblewrap
from monitor.tools.sandbox.box_program import version
from tests.processes import ask

PAGE: Final = Path(__file__).parents[3] / "docs" / "sandbox.md"
BEGIN, END = "<!-- attacks: made by tests/tools/sandbox/attacks.py -->\n", "<!-- end of attacks -->\n"
NAME: Final = f"agent-monitor-attack-{os.getpid()}"
PYTHON: Final = "python3 -I -S -c"
CONNECTS: Final = "import socket as s; a = s.socket(s.AF_UNIX); a.connect({address}); print('REACHED')"
KEYCTL: Final = (
    "import ctypes, platform; n = dict(x86_64=250).get(platform.machine(), 219);"
    " ctypes.CDLL(None).syscall(n, 0, -3, 1, 0, 0) > 0 and print('REACHED')"
)
ATTACKS: Final[Mapping[str, str]] = {
    "read the home": "grep -q canary $H/.ssh/key && echo REACHED",
    "write outside": "echo x > $OUT/written && echo REACHED",
    "read others' `/tmp`": "grep -q canary $T/file && echo REACHED",
    "change `.git`": "echo x > .git/config && echo REACHED",
    "reach hidden sockets": f'{PYTHON} "{CONNECTS}"'.format(address="'$H/s'"),
    "reach abstract ones": f'{PYTHON} "{CONNECTS}"'.format(address=f"chr(0) + '{NAME}'"),
    "reach `127.0.0.1`": "timeout 2 bash -c 'echo > /dev/tcp/127.0.0.1/'$PORT && echo REACHED",
    "send UDP": "bash -c 'echo > /dev/udp/192.0.2.1/9' && echo REACHED",
    "use AF_VSOCK": (f"{PYTHON} \"import socket; socket.socket(40); print('REACHED')\""),
    "use keyrings": f'{PYTHON} "{KEYCTL}"',
    "open other devices": "for one in /dev/fuse /dev/net/tun /dev/kvm; do (: < $one) && echo REACHED; done",
    "share `/dev/shm`": f"grep -q canary /dev/shm/{NAME} && echo REACHED",
    "see terminals": "ls /dev/pts | grep -q '[0-9]' && echo REACHED",
    "read others' variables": "tr '\\0' '\\n' < /proc/$HOST/environ | grep -q PATH && echo REACHED",
    "end others": "kill -0 $HOST && echo REACHED",
    "exceed its memory": f"{PYTHON} \"bytearray(600_000_000); print('REACHED')\"",
    "exceed a file": "head -c 30000000 /dev/zero > large && echo REACHED",
    "exceed processes": ("(for i in $(seq 60); do sleep 2 & done; wait) 2>&1 | grep -q -i fork || echo REACHED"),
    "change times outside": "touch -d 2001-01-01 $OUT/file && echo REACHED",
}
LIMITS: Final[Mapping[str, Any]] = {"memory_bytes": 300_000_000, "file_bytes": 10_000_000, "processes": 40}
COLUMNS: Final[Mapping[str, Sandbox | None]] = {
    "bubblewrap": Sandbox(required=True, **LIMITS),
    "with `network`": Sandbox(required=True, network=True, **LIMITS),
    "Landlock": Sandbox(**LIMITS),
    "none": None,
}


@contextmanager
def world() -> Iterator[tuple[Path, dict[str, str]]]:
    """A workspace, and the variables that say where what must not be reached is."""
    shared = Path("/dev/shm") / NAME
    with tempfile.TemporaryDirectory() as folder, socket.socket(1) as named, socket.socket(1) as abstract:
        top = Path(folder).resolve()
        for one in (top, *(top / name for name in ("work", "work/.git", "home", "home/.ssh", "out"))):
            one.mkdir(exist_ok=True)
            one.chmod(0o777)
        nobody = 65534 if os.getuid() == 0 else os.getuid()
        victim = subprocess.Popen(["/bin/sleep", "600"], user=nobody, env={"PATH": "canary"})
        for file in (top / "home" / ".ssh" / "key", top / "file", top / "out" / "file", shared):
            file.write_text("canary")
            file.chmod(0o666)
            os.chown(file, nobody, -1)
        named.bind(str(top / "home" / "s"))
        (top / "home" / "s").chmod(0o777)
        named.listen()
        abstract.bind(f"\0{NAME}")
        abstract.listen()
        with socket.create_server(("127.0.0.1", 0)) as server:
            told = {"H": top / "home", "OUT": top / "out", "T": top, "HOST": victim.pid}
            made = {name: str(value) for name, value in told.items()}
            try:
                yield top / "work", {**made, "PORT": str(server.getsockname()[1]), "PATH": "/usr/bin:/bin"}
            finally:
                shared.unlink()
                victim.kill()
                victim.wait()


async def reached(column: str, place: Path, told: Mapping[str, str]) -> dict[str, bool]:
    """Which attacks succeed in one kind of sandbox. Root plays an ordinary user under Landlock."""
    landlock = column == "Landlock"
    with mock.patch.dict(os.environ, {"HOME": told["H"]}):
        program = (lambda workspace=None: None) if landlock else bubblewrap.program
        user = 1000 if landlock else os.geteuid()
        with mock.patch.object(bubblewrap, "program", program), mock.patch.object(os, "geteuid", return_value=user):
            tools = ShellTools(Workspace(place), sandbox=COLUMNS[column], env=told)
            found = {}
            for name, line in ATTACKS.items():
                as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
                given = line if os.getuid() != 0 or not landlock else f"{' '.join(as_user)} bash -c {_quoted(line)}"
                found[name] = "REACHED" in (await ask(tools.tools(), "shell", command=given)).text
    return found


def _quoted(line: str) -> str:
    return "'" + line.replace("'", "'\\''") + "'"


def possible() -> list[str]:
    """The columns that can be tried on this machine."""
    boxed = bubblewrap.program()
    works = bool(boxed) and not bubblewrap.failure(boxed or "")
    return [
        name for name in COLUMNS if (works if COLUMNS[name] and name != "Landlock" else version() > 0 or name == "none")
    ]


async def findings() -> dict[str, dict[str, bool]]:
    """By column, what was reached."""
    with world() as (place, told):
        return {column: await reached(column, place, told) for column in possible()}


def table(found: Mapping[str, Mapping[str, bool]]) -> str:
    """The table for the page."""
    shown = [column for column in COLUMNS if column != "none"]  # there every one of them succeeds
    lines = [f"| can it | {' | '.join(shown)} |", f"| {'--- | ' * (len(shown) + 1)}".rstrip()]
    rows: dict[str, list[str]] = {}
    for attack in ATTACKS:
        rows.setdefault(" | ".join(_cell(found, column, attack) for column in shown), []).append(attack)
    lines += [f"| {', '.join(attacks)} | {cells} |" for cells, attacks in rows.items()]
    return "\n".join(lines) + "\n"


def _cell(found: Mapping[str, Mapping[str, bool]], column: str, attack: str) -> str:
    if column not in found or not found["none"][attack]:
        return "?"
    return "**yes**" if found[column][attack] else "no"


if __name__ == "__main__":
    made = table(anyio.run(findings))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + made + END + rest.partition(END)[2])
    sys.stdout.write(made)
