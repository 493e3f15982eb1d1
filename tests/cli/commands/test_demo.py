"""The demo: the real google-genai SDK against the server on this machine."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.inputs.demo_model import demo_runs
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import Repeat, Script, error_reply, events_of, text

ROOT = Path(__file__).parents[3]
REGENERATE = ROOT / "fixtures" / "regenerate.py"

# The SDK subclasses aiohttp's session; aiohttp discourages that, and nobody here can change it.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession from ClientSession:DeprecationWarning"
)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["demo", *arguments])


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`demo --model` with a server on this machine in the place of the service."""

    def ask(script: Script, *arguments: str) -> Any:
        with LocalGemini([script]) as server:
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
            monkeypatch.setenv("GEMINI_API_KEY", "x")
            return invoke("--model", "local", *arguments)

    return ask


# ------------------------------------------------------------------ recorded runs


def test_two_loops_are_stopped_and_the_third_run_is_left_alone():
    shown = invoke("--fast")
    assert shown.exit_code == 0, shown.output
    assert re.findall(r"^reason +(\w+)", shown.output, re.MULTILINE) == [
        "loop_detected",
        "loop_detected",
        "stream_ended",
    ]
    assert (
        len(
            re.findall(
                r"^closed +the server saw the connection close \d+\.\d ms after the decision",
                shown.output,
                re.MULTILINE,
            )
        )
        == 2
    )
    assert len(re.findall(r"put into Gemini's wire form \(.+, (MIT|Apache-2\.0)\)", shown.output)) == 3


def test_it_says_what_a_stop_saves():
    shown = invoke("--fast").output
    characters = re.search(r"saved +([\d,]+) of ([\d,]+) recorded characters were never sent", shown)
    assert characters is not None
    saved, recorded = (int(number.replace(",", "")) for number in characters.groups())
    assert 0 < saved < recorded == 1456
    assert "saved     5 of 10 recorded tool calls and 5 of 10 model calls were never made" in shown
    assert "where     began at tool call 1, seen at tool call 5" in shown


def test_it_works_behind_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert invoke("--fast").exit_code == 0


def test_it_says_so_when_no_closing_was_seen(monkeypatch: pytest.MonkeyPatch):
    async def unseen(self: LocalGemini, number: int = -1, *, timeout_s: float = 5.0) -> None:
        raise TimeoutError

    monkeypatch.setattr(LocalGemini, "wait_closed_async", unseen)
    shown = invoke("--fast").output
    assert shown.count("the server did not see the connection close") == 2
    assert shown.count("not seen") == 2


def test_without_the_sdk_it_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "monitor.cli.inputs.demo_model")
    monkeypatch.setitem(sys.modules, "google.genai", None)
    monkeypatch.setattr("google.genai", None)
    asked = invoke()
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert asked.stderr == "agent-monitor: 'google-genai' is not installed; run: pip install 'agent-monitor[google]'\n"


def test_in_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "demo", "--fast"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("loop_detected") == 4  # two panels, two rows of the table
    assert "\x1b" not in done.stdout


def test_the_runs_that_ship_are_those_of_the_corpus():
    spec = importlib.util.spec_from_file_location("regenerate", REGENERATE)
    assert spec is not None
    assert spec.loader is not None
    regenerate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(regenerate)
    assert regenerate.DEMO_RUNS.read_text("utf-8") == regenerate.demo_runs()
    with gzip.open(regenerate.CORPUS, "rt", encoding="utf-8") as lines:
        corpus = {run["id"]: run for run in map(json.loads, lines)}
    for line in regenerate.DEMO_RUNS.read_text("utf-8").splitlines():
        run = json.loads(line)
        assert run.pop("title")
        assert run == corpus[run["id"]]


def test_each_run_names_its_source_and_a_permissive_licence():
    runs = demo_runs()
    assert len(runs) == 3
    assert all(run.source and run.model and run.license in {"MIT", "Apache-2.0", "CC0-1.0"} for run in runs)


# ------------------------------------------------------------------ a real model, played by the
# server


def test_a_model_that_answers_well(answering: Any):
    shown = answering(events_of("Because it forgets what it has done."))
    assert shown.exit_code == 0, shown.output
    assert "Because it forgets what it has done." in shown.output
    assert re.search(r"^reason +stream_ended", shown.output, re.MULTILINE)


def test_a_model_that_loops_is_stopped(answering: Any):
    shown = answering([Repeat(text("I will say it again. "), delay_s=0.001)], "--prompt", "Say it.")
    assert shown.exit_code == 0, shown.output
    assert "user Say it." in shown.output
    assert re.search(r"^reason +loop_detected", shown.output, re.MULTILINE)
    assert re.search(r"^closed +yes, \d+\.\d ms after the decision", shown.output, re.MULTILINE)


def test_a_service_that_refuses_is_an_exit_code_of_1(answering: Any):
    shown = answering([error_reply(400, "API key not valid.")])
    assert shown.exit_code == 1
    assert "API key not valid." in shown.output
    assert "Traceback" not in shown.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--model", "gemini-x"], "set GEMINI_API_KEY"), (["--prompt", "hello"], "add --model NAME")],
)
def test_what_is_missing_is_said(arguments: Sequence[str], complaint: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    asked = invoke(*arguments)
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert complaint in asked.stderr


def test_what_a_model_writes_cannot_steer_the_terminal(answering: Any):
    shown = answering([text("\x1b[2J\x9b31mred\u202e\x07"), *events_of("ok")])
    assert not set("\x1b\x9b\u202e\x07") & set(shown.output)
    assert r"\x1b[2J\x9b31mred\u202e\x07" in shown.output
