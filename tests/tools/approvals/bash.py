"""Real bash, in an empty folder, with programs that write down that they ran."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

BASH = shutil.which("bash") or ""
NEEDS_BASH = pytest.mark.skipif(not BASH or os.name != "posix", reason="there is no bash")


@dataclass(frozen=True)
class Ran:
    """What a line did."""

    commands: list[list[str]]
    """The words of the programs that ran, in their order."""
    made: list[str]
    """The files that are in the folder now, and were not before."""


class Place:
    """A folder for a line, and programs that only say how they were called. `links`: programs of
    the system that are found there as well.
    """

    def __init__(self, path: Path, programs: Iterable[str], links: Iterable[str] = ()) -> None:
        self.path = path
        self.bin = path / "bin"
        self.bin.mkdir()
        for name in programs:
            program = self.bin / name
            # With -p it does not read BASH_ENV, whose file may run this program without end.
            program.write_text(f'#!{BASH} -p\n{{ printf "%s\\0" {name} "$@"; printf "\\036\\0"; }} >> "$RAN"\n')
            program.chmod(0o755)
        for name in links:
            found = shutil.which(name)
            if found is not None:
                (self.bin / name).symlink_to(os.path.realpath(found))

    def run(self, lines: Sequence[str], files: Iterable[str] = ()) -> list[Ran]:
        """What bash makes of each line. Several run side by side, each in a folder of its own."""
        done: list[Ran] = []
        for at in range(0, len(lines), 24):
            started = [self._start(number, line, files) for number, line in enumerate(lines[at : at + 24])]
            done += [self._ended(process, number, files) for number, process in enumerate(started)]
        return done

    def folder(self, number: int) -> Path:
        return self.path / f"place{number}"

    def _start(self, number: int, line: str, files: Iterable[str]) -> subprocess.Popen[bytes] | None:
        folder = self.folder(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in files:
            (folder / name).write_text("a\n")
        log = self.path / f"ran{number}"
        log.write_bytes(b"")
        environment = {"PATH": str(self.bin), "RAN": str(log), "HOME": "/h", "LC_ALL": "C.UTF-8"}
        try:
            return subprocess.Popen(
                [BASH, "-c", line.encode()], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except ValueError:  # a NUL
            return None

    def _ended(self, process: subprocess.Popen[bytes] | None, number: int, files: Iterable[str]) -> Ran:
        if process is not None:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        text = (self.path / f"ran{number}").read_bytes().decode("utf-8", "surrogateescape")
        commands = [one.split("\0")[:-1] for one in text.split("\x1e\0") if one]
        return Ran(commands, sorted({path.name for path in self.folder(number).glob("*")} - set(files)))
