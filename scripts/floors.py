"""Installs the lower bound of each extra and runs its tests: a floor that nobody has tried is a
guess. Each extra has an environment of its own in .venvs/floors, so it takes minutes.

python scripts/floors.py                 try every extra
python scripts/floors.py langchain mcp   try these
python scripts/floors.py --newest mcp    try the newest versions in the place of the lowest
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs" / "floors"
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "rich", "trio", "typer")
"""What the tests themselves need."""
SDKS = ("anthropic", "google-genai", "mcp", "openai")
"""Frameworks disagree about the versions of these, so each extra has an environment of its own."""
_REQUIREMENT = re.compile(r"([\w.-]+)(\[[\w,-]+\])?>=([\w.]+)")

TESTS: dict[str, tuple[str, ...]] = {
    "adk": ("tests/integrations/test_adk.py", "tests/integrations/test_contract.py"),
    "agent-framework": ("tests/integrations/test_contract.py", "tests/integrations/test_teams.py"),
    "anthropic": ("tests/adapters/anthropic",),
    "autogen": ("tests/integrations/test_autogen.py", "tests/integrations/test_contract.py"),
    "cli": ("tests/cli/commands/test_scan.py",),
    "crewai": ("tests/integrations/test_crewai.py",),
    "google": ("tests/adapters/google",),
    "langchain": ("tests/integrations/test_langchain.py", "tests/integrations/test_contract.py"),
    "mcp": ("tests/tools/remote",),
    "openai": ("tests/adapters/openai", "-k", "not openai-phase"),  # 3.0 itself cannot add these events up
    "openai-agents": ("tests/integrations/test_openai_agents.py", "tests/integrations/test_contract.py"),
    "otel": (  # the names are compared with the conventions of today
        *("tests/sinks/otel/test_sink.py", "tests/sinks/otel/test_logs.py"),
        *("-k", "not of_the_conventions"),
    ),
    "proxy": ("tests/proxy/formats",),
    "pydantic-ai": ("tests/integrations/test_pydantic_ai.py", "tests/integrations/test_contract.py"),
    "strands": ("tests/integrations/test_strands.py", "tests/integrations/test_contract.py"),
    "tools": ("tests/tools/approvals",),
    "web": ("tests/tools/remote/test_web.py",),
    "zstd": ("tests/transcripts/test_packed.py",),
}
"""The tests of an extra. Extras with a server of their own (dbos, postgres, redis, temporal)
are tried by `make test`.
"""
BESIDE: dict[str, tuple[str, ...]] = {
    "anthropic": ("anthropic[aiohttp]>=2.0",),
    "autogen": ("autogen-ext[openai]>=0.7",),
    "langchain": ("langchain-openai>=1.0",),
    "mcp": ("httpx2>=2.16", "tree-sitter>=0.25", "tree-sitter-bash>=0.25"),
    "openai": ("openai[aiohttp]>=3.0",),
    "otel": ("opentelemetry-sdk>=1.40",),
    "proxy": ("anthropic>=2.0", "google-genai>=3.0", "openai>=3.0"),
    "pydantic-ai": ("pydantic-ai-slim[anthropic,google,openai]>=2.60",),
    "strands": ("strands-agents[anthropic,openai]>=1.62",),
}
"""What the tests of an extra need besides, at its lower bound as well."""


def floor(requirement: str) -> str:
    """A requirement at its lower bound: `openai>=3.0` is `openai==3.0`. Raises `ValueError` for one
    without a bound.
    """
    found = _REQUIREMENT.fullmatch(requirement.strip())
    if found is None:
        raise ValueError(f"{requirement!r} has no lower bound")
    name, extras, version = found.groups()
    return f"{name}{extras or ''}=={version}"


def wanted(extra: str, *, newest: bool = False) -> list[str]:
    """The requirements of an extra, at their lower bounds or as they are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = [*project["optional-dependencies"][extra], *BESIDE.get(extra, ())]
    return [*(given if newest else map(floor, given)), *project["dependencies"], *TOOLS]


def versions(extra: str, listed: str) -> str:
    """The versions of an extra and of the SDKs beside it: `crewai 1.15.3, openai 2.24.0`. A newest
    one may be older than it could be, for all of its requirements must be there. `listed`: what
    `pip list --format=json` prints.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [re.split(r"[\[<>=]", one)[0] for one in project["optional-dependencies"][extra]]
    found = {one["name"]: one["version"] for one in json.loads(listed)}
    return ", ".join(f"{name} {found[name]}" for name in dict.fromkeys((*named, *SDKS)) if name in found)


def tried(extra: str, *, newest: bool) -> tuple[bool, str]:
    """Install the extra and run its tests. Returns whether all is well, and what to say."""
    place = PLACE / f"{extra}{'-newest' if newest else ''}"
    python = str(place / "bin" / "python")
    if not Path(python).exists():
        venv.create(place, with_pip=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", *wanted(extra, newest=newest)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        return False, f"it cannot be installed: {_last(done.stderr)}"
    listing = [python, "-m", "pip", "--disable-pip-version-check", "list", "--format=json"]
    used = versions(extra, subprocess.run(listing, capture_output=True, text=True, check=True).stdout)
    # Old versions warn beside new ones of what they need themselves. A warning is no wrong floor.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, *TESTS[extra]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (
        done.returncode == 0,
        f"its tests fail: {_last(done.stdout)} ({used})" if done.returncode else f"good ({used})",
    )


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("FAILED", "ERROR"))][:3] + lines[-1:]
    return "; ".join(told)[:600]


def main(arguments: Sequence[str]) -> int:
    """Try the extras one after the other. 1: one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", choices=[*TESTS, []], metavar="EXTRA")
    parser.add_argument("--newest", action="store_true")
    chosen = parser.parse_args(arguments)
    wrong = 0
    for extra in chosen.extras or TESTS:
        good, what = tried(extra, newest=chosen.newest)
        wrong += not good
        print(f"{extra}: {what}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
