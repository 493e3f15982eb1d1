"""The command as a whole: help, version, missing packages, Ctrl-C, and the page that describes
it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import monitor
from monitor import cli
from monitor.cli.app import app
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import Stall, text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
COMMAND = [sys.executable, "-m", "monitor"]


def options(command: str) -> set[str]:
    group: Any = typer.main.get_group(app)
    given = group
    for name in command.split():
        given = given.get_command(None, name)
    below = (given.get_command(None, name) for name in getattr(given, "commands", {}))
    all_of_it = [one for part in (given, *below) for one in (part, *getattr(part, "commands", {}).values())]
    parameters = [parameter for one in all_of_it for parameter in one.params]
    names = {name for one in parameters for name in (*one.opts, *one.secondary_opts)}
    return {name for name in names if name.startswith("--")} - {"--help"}


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.split() == ["agent-monitor", monitor.__version__]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--help"],
        ["run", "--help"],
        ["scan", "-h"],
        ["doctor", "--help"],
        ["calibrate", "judge-eval", "--help"],
        ["sessions", "context", "-h"],
        ["sessions", "compact", "-h"],
        ["sessions", "-h"],
        ["report", "-h"],
        ["watch", "-h"],
        ["hook", "-h"],
        ["calibrate", "-h"],
        ["proxy", "-h"],
    ],
)
def test_help_teaches_with_examples(arguments: list[str]):
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0
    assert re.search(
        r"^[ │]*(\S+=\S+ )?agent-monitor "
        r"(demo|run|scan|doctor|judge-eval|context|compact|sessions|report|watch|hook|calibrate|proxy)",
        told.output,
        re.MULTILINE,
    )


def test_without_a_command_it_says_what_there_is():
    assert {"demo", "doctor", "proxy", "run", "scan", "sessions"} <= set(CliRunner().invoke(app, []).output.split())


def test_the_page_names_no_option_that_is_not_there():
    parts = dict(re.findall(r"^## ([a-z -]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    known = {command: options(command) for command in parts}
    every = set().union(*known.values())  # a section may name an option of another command: `run --json`
    wrong = {
        command: unknown
        for command, part in parts.items()
        if (unknown := set(re.findall(r"--[a-z]+(?:-[a-z]+)*", part)) - every - {"--help"})
    }
    assert wrong == {}


def test_the_script_is_declared():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts == {"agent-monitor": "monitor.cli:main"}


@pytest.mark.parametrize("package", ["rich", "typer"])
def test_without_its_extra_it_names_it(package: str):
    program = f"import sys; sys.modules[{package!r}] = None; from monitor.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"agent-monitor: {package!r} is not installed; run: pip install 'agent-monitor[cli]'\n"


def test_a_broken_package_is_not_called_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "monitor.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main()


def test_a_command_loads_no_other_one():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from monitor.cli import app as commands\n"
        "CliRunner().invoke(commands.app, ['--version'])\n"
        "CliRunner().invoke(commands.app, ['doctor', '--help'])\n"
        "files = (f'monitor.cli.commands.{one.module}' for one in commands.COMMANDS.values())\n"
        "print(*(file for file in files if file in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert (done.stdout, done.stderr) == ("monitor.cli.commands.doctor\n", "")


def test_the_help_needs_no_sdk():
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('google.genai', 'openai', 'anthropic')));"
        " sys.argv = ['agent-monitor', '--help']; from monitor.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["proxy keys", "scan", "sessions context", "sessions list"])
def test_a_command_that_drives_no_run_does_not_wait_for_the_supervisor(name: str):
    program = (
        "import sys; from typer.testing import CliRunner; from monitor.cli.app import app;"
        f" CliRunner().invoke(app, [*{name!r}.split(), '--help']);"
        " late = ('monitor.runs.supervisor', 'monitor.cli.options.run_arguments');"
        " print(*(one for one in late if one in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_ctrl_c_ends_it_quietly(monkeypatch: pytest.MonkeyPatch):
    """A real process, in the middle of a stream that never ends, and the server sees it leave."""
    with LocalGemini([[text("and so on, "), Stall()]]) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        monkeypatch.setenv("GEMINI_API_KEY", "x")
        process = subprocess.Popen(
            [*COMMAND, "demo", "--model", "local"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        server.wait_request(timeout_s=250)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=250)
        server.wait_closed()
    assert process.returncode == 130
    assert not complaints
