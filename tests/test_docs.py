"""README, docs and examples say what is so: their code is run here."""

from __future__ import annotations

import json
import logging
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import monitor
from monitor.cli.app import app
from monitor.context import Window
from monitor.context.compaction.preset import PRESETS
from monitor.context.cut import KeepMessages, KeepNewTurns, KeepShare, KeepTokens
from monitor.settings import POLICIES, detector_types
from scripts.snippets import PAGES, Snippet, snippets
from tests.adapters.google.sdk import sdk_warnings

ROOT = Path(__file__).parent.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
"""The addresses of the project. They stand in this one place, and every link begins with one."""
HERE = f"{URLS['Source']}/"
SNIPPETS = [one for page in PAGES for one in snippets(page)]
RUN_HERE = [one for one in SNIPPETS if not one.needs_key and one.module is None]


@pytest.fixture(autouse=True)
def no_handler_of_dbos_outlives_the_stream_of_its_test() -> Iterator[None]:
    yield
    logging.getLogger("dbos").handlers.clear()


@sdk_warnings
@pytest.mark.parametrize("snippet", RUN_HERE, ids=lambda one: one.name)
def test_the_code_of_a_page_runs(
    snippet: Snippet, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what a page writes is not written here
    exec(compile(snippet.code, str(snippet.page), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


SETTINGS = ROOT / "docs" / "settings.md"
TOML = [(page, text) for page in PAGES for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)]
COMMANDS = [
    line for text in re.findall(r"```sh\n(.*?)```", SETTINGS.read_text(), re.DOTALL) for line in text.splitlines()
]


@pytest.mark.parametrize(("page", "text"), TOML, ids=[f"{page.name}-{number}" for number, (page, _) in enumerate(TOML)])
def test_the_settings_of_a_page_are_settings(page: Path, text: str, tmp_path: Path):
    file = tmp_path / ("pyproject.toml" if "[tool.agent-monitor" in text else "agent-monitor.toml")
    file.write_text(text)
    assert monitor.load_settings(file).settings


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_of_settings_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "agent-monitor.toml").write_text(TOML[0][1])
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {}}]}
    (tmp_path / "runs.jsonl").write_text(json.dumps({"id": "stuck", "messages": [call] * 30}) + "\n")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    done = CliRunner().invoke(app, arguments)
    assert program == "agent-monitor"
    assert done.exit_code in {0, 1}, done.output
    assert "agent-monitor.toml" in done.stdout


def test_the_page_of_settings_names_every_detector_and_policy():
    page = SETTINGS.read_text()
    assert [name for name in (*detector_types(), *POLICIES) if f"`{name}`" not in page] == []


@sdk_warnings
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(example)])  # not the arguments of pytest
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_readme_ends_its_first_program_with_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPETS[0].code, {"__name__": "__main__"})
    assert "-> loop_detected - " in capsys.readouterr().out


def test_the_table_of_reasons_names_only_reasons_and_all_that_can_come_about() -> None:
    table = (ROOT / "docs" / "endings.md").read_text().split("<!-- reasons -->")[1].split("\n\n")[0]
    named = {
        word
        for line in table.splitlines()
        for word in re.findall(r"`([a-z_]+)`", line.split("|")[1] if "|" in line else "")
    }
    library = "".join(path.read_text() for path in (ROOT / "monitor").rglob("*.py") if path.name != "errors.py")
    used = {reason.value for reason in monitor.TerminateReason if f"TerminateReason.{reason.name}" in library}
    assert named == used


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as the site and the forge make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


LINKED = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    """A page links to files outside of `docs` by their address: the site does not have them."""
    for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)", page.read_text(encoding="utf-8")):
        if target.startswith((f"{HERE}blob/main/", f"{HERE}raw/main/")):
            other = ROOT / target.removeprefix(HERE).partition("/main/")[2]
        elif target.startswith(URLS["Documentation"]):
            other = ROOT / "docs" / target.removeprefix(URLS["Documentation"]).replace(".html", ".md")
        elif target.startswith(("http", "mailto:")):
            assert "agent-monitor" not in target or target.startswith(tuple(URLS.values())), target
            continue
        else:
            other = page.parent / target if target else page
            assert page.parent.name != "docs" or not target.startswith(".."), target
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_every_address_of_the_project_is_one_of_pyproject() -> None:
    files = [ROOT / "mkdocs.yml", *(ROOT / ".github").rglob("*.yml"), *(ROOT / "monitor").rglob("*.py")]
    found = [
        url for file in files for url in re.findall(r"https://[\w./-]*agent-monitor[\w./-]*", file.read_text("utf-8"))
    ]
    assert [url for url in found if not url.startswith(tuple(URLS.values()))] == []
    assert all(url.startswith((URLS["Source"], URLS["Documentation"])) for url in URLS.values())


def test_a_link_of_the_readme_leads_somewhere_from_a_package_page_too() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_page_of_the_whole_run_names_every_condition() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", (ROOT / "docs" / "supervisor.md").read_text()))
    things = {name: getattr(monitor, name) for name in dir(monitor)}
    conditions = {
        name for name, thing in things.items() if isinstance(thing, type) and issubclass(thing, monitor.Condition)
    }
    assert conditions - named == {"Condition"}


COMPACTION = ROOT / "docs" / "compaction.md"


def presets_as_a_table() -> list[str]:
    """The rows of the page, of the presets as they are."""
    presets: list[monitor.Compaction] = [getattr(monitor.Compaction, name)() for name in PRESETS]
    window = Window(200_000, max_output_tokens=32_000)

    def kept(keep: object) -> str:
        match keep:
            case KeepTokens(tokens, share, False):
                return f"newest {tokens:,} tokens, {share:.0%} of the mark at most"
            case KeepNewTurns(turns, share, least, most):
                return f"newest {turns} user turns in {share:.0%} of the mark, {least:,} to {most:,} tokens"
            case KeepShare(share):
                return f"newest {share:.0%}, whole user turns"
            case KeepMessages(messages):
                return f"newest {messages} messages"
        raise AssertionError(keep)

    yes = {True: "yes", False: "no"}
    cells: dict[str, list[str]] = {
        "": [f"`{preset.name}`" for preset in presets],
        "mark": [f"{preset.headroom.usable(window):,}" for preset in presets],
        "`low_water`": [f"{preset.low_water:g}" for preset in presets],
        "`steps`": [", ".join(f"`{type(step).__name__}`" for step in preset.steps) or "none" for preset in presets],
        "`keep`": [kept(preset.keep) for preset in presets],
        "`template`": [preset.template.name for preset in presets],
        "`summary_tokens`": [f"{preset.summary_tokens:,}" for preset in presets],
        "`timeout_s`": [f"{preset.timeout_s:g}" for preset in presets],
        "`background`": [yes[preset.background] for preset in presets],
        "`on_live_prefix`": [yes[preset.on_live_prefix] for preset in presets],
        "`attempts`": [f"{preset.attempts}" for preset in presets],
        "`continues`": [preset.continues for preset in presets],
    }
    rows = [f"| {name} | {' | '.join(values)} |" for name, values in cells.items()]
    return [rows[0], "| --- " * (len(presets) + 1) + "|", *rows[1:]]


def test_the_page_of_compaction_has_the_numbers_of_every_preset() -> None:
    page = COMPACTION.read_text()
    assert "\n".join(presets_as_a_table()) in page, "\n".join(presets_as_a_table())


def test_the_page_of_compaction_names_every_reason_and_failure() -> None:
    named = set(re.findall(r"`(\w+)`", COMPACTION.read_text()))
    wanted = {one.value for kind in (monitor.errors.CompactionReason, monitor.errors.CompactionFailure) for one in kind}
    assert wanted - named == set()


def test_the_recording_of_the_page_of_the_command_plays(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    lines = re.findall(r'^    (\{"(?:type|at)".*)$', page, re.MULTILINE)
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    played = CliRunner().invoke(
        app, ["run", "x", "--model", f"replay:{tmp_path / 'run.jsonl'}", "--max-turns", "1", "--last-turn", "off"]
    )
    assert lines
    assert 'read_file(path="setup.py")' in played.output, played.output


def test_the_page_of_the_command_has_every_command_and_its_exit_codes() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    program: Any = get_command(app)
    assert sections.keys() == set(program.list_commands(None))
    assert [name for name, section in sections.items() if "xit code" not in section] == []


def test_the_help_of_a_command_says_what_each_option_means() -> None:
    def silent(command: Any, path: str) -> list[str]:
        missing = [f"{path} {given.name}" for given in command.params if not getattr(given, "help", None)]
        names = command.list_commands(None) if hasattr(command, "list_commands") else []
        return missing + [line for name in names for line in silent(command.get_command(None, name), f"{path} {name}")]

    assert silent(get_command(app), "agent-monitor") == []
