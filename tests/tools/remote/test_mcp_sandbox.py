"""MCP servers that are commands run in a sandbox, which ends with them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import ToolCall
from monitor.errors import ConfigError, ToolError
from monitor.tools import McpServer, Sandbox, ToolContext
from monitor.tools.processes.process_table import below
from monitor.tools.sandbox import bubblewrap
from tests.processes import BUBBLEWRAP, LANDLOCK, is_running_no_more

pytestmark = pytest.mark.anyio

PLAIN = Path(__file__).parents[1] / "mcp_servers" / "plain.py"
SECRET = "canary-51bd"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.2)
    monkeypatch.setenv("CANARY", SECRET)
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "key").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))


def server(place: Path, *arguments: object, **options: Any) -> McpServer:
    place.mkdir(exist_ok=True)
    words = [sys.executable, "-I", "-S", PLAIN, 0, 1, "", "shell", *arguments]
    return McpServer([str(word) for word in words], name="boxed", directory=str(place), **options)


async def run(opened: McpServer, line: str) -> str:
    (tool,) = (one for one in opened.tools() if one.original == "run")
    return (await tool.call({"text": line}, ToolContext(ToolCall("1", "run", {})))).text


@BUBBLEWRAP
async def test_a_server_sees_its_directory_and_neither_home_nor_environment(tmp_path: Path):
    place, named = tmp_path / "work", tmp_path / "named"
    (place / ".git").mkdir(parents=True)
    named.mkdir()
    async with server(place, named, sandbox="required", environment={"OWN": "1"}) as opened:
        assert await run(opened, f"echo a > f; echo b > {named}/f; echo $OWN") == "1\n"
        for line in ("cat ~/.ssh/key", "cat /proc/*/environ", "touch .git/x && echo " + SECRET):
            assert SECRET not in await run(opened, line)
    assert (place / "f").read_text() == "a\n"
    assert (named / "f").read_text() == "b\n"


@BUBBLEWRAP
async def test_a_server_has_the_network_unless_it_is_taken_away(tmp_path: Path):
    line, own = "readlink /proc/self/ns/net", os.readlink("/proc/self/ns/net")  # noqa: PTH115 - it is no path
    async with server(tmp_path / "work") as opened, server(tmp_path / "work", sandbox=Sandbox()) as offline:
        assert (await run(opened, line)).strip() == own
        assert (await run(offline, line)).strip() != own


@BUBBLEWRAP
@pytest.mark.parametrize("how", ["close", "kill"])
async def test_no_process_of_a_server_is_left(tmp_path: Path, how: str):
    async with server(tmp_path / "work") as opened:
        await run(opened, "env -i setsid sleep 71.41 > /dev/null 2>&1 &")
        if how == "kill":
            os.kill(box_of(tmp_path / "work"), signal.SIGKILL)
            with suppress(ToolError):  # it may be noticed before the call, and started again
                await run(opened, "true")
            assert is_running_no_more("71.41")
    assert is_running_no_more("71.41")


def box_of(place: Path) -> int:
    """The process of bubblewrap around the server that runs in `place`."""
    for entry in below(os.getpid()):
        words = Path(f"/proc/{entry.pid}/cmdline").read_bytes().split(b"\0")
        if b"--die-with-parent" in words and str(place).encode() in words and entry.parent == os.getpid():
            return entry.pid
    raise AssertionError("no sandbox runs")


@LANDLOCK
async def test_without_bubblewrap_a_server_is_confined_by_landlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bubblewrap, "program", lambda workspace=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # it does not hold root, and is not chosen for it
    place = tmp_path / "work"
    place.mkdir()
    async with server(place, sandbox=Sandbox(network=True)) as opened:
        assert opened.sandbox is not None
        assert opened.sandbox.kind == "landlock"
        assert await run(opened, "echo a > f; cat f") == "a\n"
        assert SECRET not in await run(opened, f"cat {tmp_path}/home/.ssh/key")
        assert "denied" in await run(opened, f"touch {tmp_path}/outside")


@BUBBLEWRAP
async def test_a_server_whose_modules_are_hidden_says_what_to_type(tmp_path: Path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    package = tmp_path / "home" / "package"
    (package / "dist").mkdir(parents=True)
    (package / "node_modules" / "needed").mkdir(parents=True)
    (package / "node_modules" / "needed" / "index.js").write_text("")
    (package / "dist" / "server.js").write_text("require('needed')")
    (tmp_path / "work").mkdir()
    made = McpServer([node, str(package / "dist" / "server.js")], name="npm", directory=str(tmp_path / "work"))
    with pytest.raises(ConfigError, match="MODULE_NOT_FOUND") as caught:
        await made.__aenter__()
    assert f"write sandbox=Sandbox(network=True, read=['{package}'])" in str(caught.value)


def test_a_link_of_the_directory_opens_nothing_elsewhere(tmp_path: Path):
    place = tmp_path / "work"
    place.mkdir()
    (place / "data").symlink_to(tmp_path / "home")
    with pytest.raises(ConfigError, match=f"if you mean it, write {tmp_path}/home"):
        McpServer(["server", "data"], directory=str(place))


async def test_an_address_has_no_sandbox():
    assert McpServer("https://example.org/mcp").sandbox is None
    with pytest.raises(ConfigError, match="leave sandbox= out"):
        McpServer("https://example.org/mcp", sandbox="required")
