"""A bare install is whole: without any extra, the package can be looked through and says what to
install.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import monitor

FRONT: ModuleType = monitor
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

EXTRAS = [
    *("agent_framework", "agents", "anthropic", "autogen_agentchat", "autogen_core", "crewai"),
    *("dbos", "google", "httpx2", "langchain"),
    *("langchain_core", "mcp", "openai", "opentelemetry", "psycopg", "pydantic_ai", "redis"),
    *("rich", "strands", "temporalio", "tree_sitter", "tree_sitter_bash", "typer", "uvicorn", "zstandard"),
]
"""The modules that extras bring."""

BLOCKED = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\nimport inspect, io, contextlib, monitor\n"


def bare(program: str) -> str:
    """What `program` prints where no extra is installed."""
    done = subprocess.run([sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_public_module_can_be_looked_through():
    out = bare(
        "for room in [monitor, *(getattr(monitor, name) for name in monitor._ROOMS.split())]:\n"
        "    assert all(hasattr(room, name) for name in dir(room)), room\n"
        "    assert inspect.getmembers(room), room\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as text: help(room)\n"
        "    assert len(text.getvalue()) > 200, room\n"
        "    print(room.__name__)\n"
    )
    assert out.split() == ["monitor", *(f"monitor.{name}" for name in monitor._ROOMS.split())]


def test_names_complete_as_a_person_types_them():
    out = bare(
        "import rlcompleter\n"
        "completer = rlcompleter.Completer({'monitor': monitor})\n"
        "for text in ('monitor.Sup', 'monitor.proxy.Key', 'monitor.sinks.Otel'):\n"
        "    print(completer.complete(text, 0))\n"
    )
    assert [line.rstrip("(") for line in out.split()] == [
        "monitor.Supervisor",
        "monitor.proxy.KeyNames",
        "monitor.sinks.OtelSink",
    ]


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("monitor.sinks", "OtelSink", "otel"),
        ("monitor.proxy", "Proxy", "proxy"),
        ("monitor.view", "LiveView", "cli"),
    ],
)
def test_a_name_without_its_extra_is_imported_and_says_what_to_install_when_it_is_used(
    module: str, name: str, extra: str
):
    out = bare(
        f"from {module} import {name}\n"
        "for use in (lambda: NAME(), lambda: type('Own', (NAME,), {}), lambda: NAME.something):\n"
        "    try: use()\n"
        "    except monitor.errors.MissingExtra as error: print(error)\n".replace("NAME", name)
    )
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(f"pip install 'agent-monitor[{extra}]'" in line for line in lines)


def test_every_extra_is_blocked_here():
    """An extra that is added to the package must be added to `EXTRAS`."""
    optional = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    own = {
        "agent-framework-core": "agent_framework",
        "agent-framework-openai": "agent_framework",
        "autogen-agentchat": "autogen_agentchat",
        "google-adk": "google",
        "google-genai": "google",
        "langchain-core": "langchain_core",
        "openai-agents": "agents",
        "opentelemetry-api": "opentelemetry",
        "opentelemetry-sdk": "opentelemetry",
        "pydantic-ai-slim": "pydantic_ai",
        "strands-agents": "strands",
        "tree-sitter": "tree_sitter",
        "tree-sitter-bash": "tree_sitter_bash",
    }
    of_users = [lines for extra, lines in optional.items() if extra not in {"test", "frameworks", "docs"}]
    wanted = {name_of(line) for lines in of_users for line in lines} - {"agent-monitor"}
    assert {own.get(name, name.replace("-", "_")) for name in wanted} <= set(EXTRAS)


def name_of(requirement: str) -> str:
    for end in "[<>=!~; ":
        requirement = requirement.partition(end)[0]
    return requirement


@pytest.mark.parametrize("room", ["", *monitor._ROOMS.split()])
def test_dir_shows_the_public_names_only(room: str):
    module = getattr(monitor, room) if room else monitor
    assert set(dir(module)) == {*module.__all__, *(() if room else monitor._ROOMS.split())}
