"""What the pages show as printed is what is printed; only times differ."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "fixtures" / "transcripts" / "dev.jsonl.gz"
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession from ClientSession:DeprecationWarning"
)


def on_screen(text: str) -> str:
    """What is left on a terminal after the cursor has gone up, and lines were cleared."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\n)", text):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part.endswith("A") and part.startswith("\x1b["):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b["):
            lines[row] += part.removeprefix("\r")
    return "\n".join(lines)


def plain(text: str) -> str:
    """As it stands on a screen, without times, and without blanks at the ends of lines."""
    text = on_screen(text)
    text = re.sub(r"\b\d+\.\d (m?s)(?: *)", r"N \1 ", text)
    text = re.sub(r"\b\d+ of 1,456 recorded", "N of 1,456 recorded", text)  # the server may have sent a piece more
    return "\n".join(re.sub(r" *│?$", "", line) for line in text.splitlines())


def blocks(page: str) -> list[str]:
    """The indented parts of a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    return [plain("\n".join(line.removeprefix("    ") for line in block.strip("\n").splitlines())) for block in found]


def block(page: str, begin: str) -> str:
    (found,) = (one for one in blocks(page) if one.lstrip().startswith(begin))
    return found


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command prints, on a terminal of 100 columns or into a pipe."""

    def run(*arguments: str, terminal: bool = False) -> str:
        if terminal:
            monkeypatch.setenv("COLUMNS", "100")
            monkeypatch.setenv("TTY_COMPATIBLE", "1")
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code in {0, 1}, done.output
        return plain(done.stdout)

    return run


def test_a_demo_of_a_run(printed: Callable[..., str]):
    assert block("cli.md", "agent-monitor run --demo: ") == printed("run", "--demo", terminal=True)


def test_the_end_of_a_demo(printed: Callable[..., str]):
    shown = printed("demo", "--fast", terminal=True)
    assert block("cli.md", "╭─ stopped: content_repetition") in shown


def test_a_file_that_is_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("runs.jsonl").write_bytes(codecs.BOM_UTF16_LE + '{"id": "a", "messages": []}'.encode("utf-16-le"))
    assert CliRunner().invoke(app, ["scan", "runs.jsonl"]).stderr.strip() == block("cli.md", "runs.jsonl: it is")


def test_a_scan(printed: Callable[..., str]):
    head, *rows = block("cli.md", "run  ").splitlines()
    shown = printed("scan", "--limit", "30", str(CORPUS), terminal=True).splitlines()
    at = shown.index(head)
    assert shown[at + 1 : at + 1 + len(rows)] == rows


def test_a_scan_that_is_explained(printed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {"at": "door"}}]}
    result = {"role": "tool", "tool_results": [{"name": "look", "text": "closed"}]}
    monkeypatch.chdir(tmp_path)
    Path("runs.jsonl").write_text(
        json.dumps({"id": "run-7", "messages": [{"role": "user", "text": "go"}, *[call, result] * 12]})
    )
    assert block("cli.md", "== run-7") in printed("scan", "--explain", "--policy", "ladder", "runs.jsonl")


def test_doctor_under_the_ladder(printed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    shown = printed("doctor", "--policy", "ladder").splitlines()
    wanted = block("settings.md", "a loop of this kind").splitlines()
    assert [line for line in shown if line in wanted] == wanted


def test_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("agent-monitor.toml").write_text("[ToolCallRepetition]\nloop = 8\n")
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 2
    assert done.stderr.strip() == block("settings.md", "agent-monitor: agent-monitor.toml")
