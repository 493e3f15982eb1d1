"""`agent-monitor run --mcp`: the tools of MCP servers, from the shell."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.options.supervisor_arguments import sandbox_option, servers_of, workspace_tools
from monitor.testing import call
from monitor.tools import ShellTools
from tests.cli.commands.test_run import recorded
from tests.processes import commands_left, no_command_is_left
from tests.tools.remote.test_mcp_server import SERVERS

pytestmark = pytest.mark.feature("GT-03")

PLAIN = shlex.join([sys.executable, "-I", "-S", str(SERVERS / "plain.py")])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["run", *arguments])


# 26 tools are many, and the run says so.
@pytest.mark.filterwarnings("ignore::monitor.tools.ToolWarning")
def test_a_run_calls_the_tools_of_its_servers_and_leaves_no_process():
    script = recorded(
        [call("plain__echo", text="from the first")],
        [call("plain_2__echo", text="from the second")],
        [call("terminate", status="success")],
    )
    shown = invoke("do it", "--model", script, "--mcp", PLAIN, "--mcp", PLAIN)
    assert shown.exit_code == 0, shown.output
    assert "← from the first" in shown.output
    assert "← from the second" in shown.output
    assert no_command_is_left(), commands_left()


def test_a_server_that_cannot_be_used_is_said_in_one_line():
    script = recorded([call("terminate", status="success")])
    shown = invoke("do it", "--model", script, "--mcp", f"{PLAIN} 0 1 '' fail")
    assert shown.exit_code == 2, shown.output
    assert "the MCP server 'plain' cannot be used" in " ".join(shown.output.split())
    assert "this server has no configuration" in " ".join(shown.output.split())


def test_a_websocket_is_refused_before_anything_begins():
    shown = invoke("do it", "--model", recorded([call("x")]), "--mcp", "ws://localhost:1")
    assert shown.exit_code == 2
    assert "no client for WebSockets" in " ".join(shown.output.split())


def test_a_sandbox_is_chosen_for_servers_that_are_commands_and_for_the_shell(tmp_path: Path):
    assert [server.sandbox for server in servers_of(["python3 -m a", "https://x.y/mcp"], None)] == [None, None]
    (_, shell) = workspace_tools(tmp_path, sandbox_option("off"))
    assert isinstance(shell, ShellTools)
    assert shell.sandbox is None
    (_, shell) = workspace_tools(tmp_path, sandbox_option("auto"))
    assert isinstance(shell, ShellTools)
    assert shell.sandbox is not None
    shown = invoke("do it", "--model", recorded([call("x")]), "--sandbox", "on")
    assert shown.exit_code == 2
    assert "--sandbox on: give auto, required or off" in " ".join(shown.output.split())


def test_servers_of_one_name_get_numbers():
    names = [server.name for server in servers_of(["python3 -m a", "python3 -m b", "python3 -m c", "https://x.y/mcp"])]
    assert names == ["python3", "python3_2", "python3_3", "x_y"]
