"""The lines that the rules are tried with, run for real in a sandbox where nobody is asked."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from monitor.tools.sandbox import bubblewrap
from monitor.tools.shell.shell_tools import ShellTools
from monitor.tools.workspace import Workspace
from tests.processes import BUBBLEWRAP, ask, nothing_left  # noqa: F401 - a fixture
from tests.tools.approvals.test_known_commands import MORE
from tests.tools.approvals.test_started_commands import AROUND

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def anyio_backend() -> str:
    """Once is enough: the event loop has no part in it."""
    return "asyncio"


SECRET = "canary-51c9"
RUNS = """while IFS= read -r -d '' line; do timeout {most_s} bash -c "$line" < /dev/null; done < lines; true"""
EVIL = """#!/bin/bash
echo the program ran; echo the program ran >> log
for file in {home}/.ssh/key {outside}/secret ~/.ssh/key /proc/{pid}/environ /proc/$PPID/environ /proc/1/environ; do
    mapfile -d '' held < $file && echo "${{held[@]}}"
done
echo taken > {outside}/written; echo taken > {home}/.bashrc; echo taken > ~/.bashrc
echo taken > .git/hooks/pre-commit; mv .git g; echo taken > agent-monitor.toml
kill -9 {victim}
: > /dev/tcp/127.0.0.1/{port}
"""


@dataclass
class World:
    """What a command must not reach: a home, another folder, a server, and other processes."""

    place: Path
    home: Path
    outside: Path
    server: socket.socket
    victim: subprocess.Popen[bytes]

    def harm(self, output: str) -> set[str]:
        """What has been reached."""
        git = self.place / ".git" / "hooks" / "pre-commit"
        checks = {
            "a secret": SECRET in output,
            "a file elsewhere": (self.outside / "written").exists(),
            "the home": (self.home / ".bashrc").exists(),
            "a hook": git.exists() or not git.parent.exists(),
            "the settings": (self.place / "agent-monitor.toml").read_text() != "",
            "a process": self.victim.poll() is not None,
            "the network": _was_reached(self.server),
        }
        return {name for name, reached in checks.items() if reached}

    async def run(self, lines: list[str], *, sandbox: str | None, most_s: float = 0.3) -> tuple[str, int]:
        """The output of lines, of `most_s` seconds each, and how often the program that does
        harm has run.
        """
        (self.place / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines if "\0" not in line))
        path = f"{self.place}:/usr/bin:/bin"
        shell = ShellTools(Workspace(self.place), sandbox=sandbox, grace_s=0.1, env={"PATH": path})  # type: ignore[arg-type]
        answer = await ask(shell.tools(), "shell", command=RUNS.format(most_s=most_s), timeout_s=300)
        log = self.place / "log"  # some lines show nothing, and others remove it
        texts = (answer.text, log.read_text() if log.exists() else "")
        return answer.text, max(text.count("the program ran") for text in texts)


def _was_reached(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    place, home, outside = tmp_path / "work", tmp_path / "home", tmp_path / "outside"
    for folder in (place / ".git" / "hooks", home / ".ssh", outside):
        folder.mkdir(parents=True)
    (home / ".ssh" / "key").write_text(SECRET)
    (outside / "secret").write_text(SECRET)
    (place / ".git" / "config").write_text("[core]\n")
    (place / "agent-monitor.toml").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CANARY", SECRET)
    monkeypatch.setattr(bubblewrap, "KEYS", ("/etc/shadow", str(outside / "secret")))
    victim = subprocess.Popen(["/bin/sleep", "600"], env={"CANARY": SECRET})
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        evil = place / "evil"
        port = server.getsockname()[1]
        evil.write_text(EVIL.format(home=home, outside=outside, pid=victim.pid, victim=victim.pid, port=port))
        evil.chmod(0o755)
        for name in ("a", "x"):
            (place / name).write_text("a\n")
        try:
            yield World(place, home, outside, server, victim)
        finally:
            victim.kill()
            victim.wait()


@BUBBLEWRAP
async def test_no_line_around_a_program_reaches_anything_outside_of_the_sandbox(world: World):
    lines = [around.replace("@@", "./evil") for around in AROUND]
    output, ran = await world.run(lines, sandbox="required")
    assert ran >= 60
    assert world.harm(output) == set()


@BUBBLEWRAP
async def test_no_line_that_the_rules_ask_about_reaches_anything_outside_of_the_sandbox(world: World):
    for name in ("ls", "cat", "touch", "git", "make"):
        (world.place / name).symlink_to("evil")  # found first, so each line does what it can
    lines = sorted(MORE[::3], key=lambda line: "-delete" in line)  # these remove the program as well
    output, ran = await world.run(lines, sandbox="required")
    assert ran >= 40
    assert world.harm(output) == set()


async def test_the_program_does_all_of_that_where_there_is_no_sandbox(world: World):
    """Else the tests above would hold whatever the sandbox did."""
    output, ran = await world.run(["./evil"], sandbox=None, most_s=60)
    assert ran == 1
    world.victim.wait(60)  # a killed process takes a moment to end
    assert world.harm(output) == {
        "a secret",
        "a file elsewhere",
        "the home",
        "a hook",
        "the settings",
        "a process",
        "the network",
    }
    assert os.environ["CANARY"] == SECRET
