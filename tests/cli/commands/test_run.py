"""`agent-monitor run`: a whole run from the shell."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import monitor
from monitor.adapters.replay_model import RecordedChunk, write_chunks
from monitor.chunks import Chunk
from monitor.cli.app import app
from monitor.cli.foreground import exit_code
from monitor.context.compaction.templates import CHECKPOINT
from monitor.errors import TerminateReason
from monitor.outcome import Outcome
from monitor.testing import (
    LocalAnthropic,
    LocalGemini,
    LocalOpenAI,
    ReceivedRequest,
    anthropic_steps,
    call,
    openai_steps,
)
from monitor.testing.gemini_steps import call as function_call
from monitor.testing.gemini_steps import error_reply, events_of_message, finish, overflow, usage
from monitor.testing.gemini_steps import text as gemini_text
from tests.adapters.google.sdk import sdk_warnings

pytestmark = sdk_warnings

ROOT = Path(__file__).parents[3]
SAMPLE = Path(str(files("monitor.cli").joinpath("data", "subagent_run.jsonl")))
COMMAND = [sys.executable, "-m", "monitor.cli", "run"]
SAMPLE_OPTIONS = ["--tool", "my_tools:read_file", "--output", "summary:str", "--output", "risk:float"]

TOOLS = '''
import time
from pathlib import Path

from pydantic import BaseModel


class Review(BaseModel):
    summary: str
    risk: float = 0.0


def read_file(path: str) -> str:
    """Read a file."""
    return f"the first line of {path}\\nand another"


def big(path: str) -> str:
    """Read a large file."""
    return f"the first line of {path}\\n" * 2_000


def stuck(path: str) -> str:
    """Never answers."""
    Path("at work").touch()
    time.sleep(600)
    return ""


async def blocks(path: str) -> str:
    """Never answers, and lets nobody else work."""
    Path("at work").touch()
    while True:
        time.sleep(0.05)
'''


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for key in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(key, raising=False)
    sys.modules.pop("my_tools", None)


def invoke(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["run", *arguments], input=stdin)


def replayed(*options: str, task: str = "x", stdin: str | None = None) -> Any:
    return invoke(task, "--model", f"replay:{SAMPLE}", *options, stdin=stdin)


def recorded(*turns: Sequence[Chunk], path: str = "run.jsonl") -> str:
    done = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)
    ends = (monitor.chunks.TurnFinished,)
    chunks = [chunk for turn in turns for chunk in [*turn, *([] if isinstance(turn[-1], ends) else [done])]]
    write_chunks(path, [RecordedChunk(0.0, chunk) for chunk in chunks])
    return f"replay:{path}"


# ------------------------------------------------------------------ what is shown


def test_the_sample_reaches_its_goal_after_one_nudge_and_prints_it():
    shown = replayed(*SAMPLE_OPTIONS)
    assert shown.exit_code == 0, shown.output
    lines = [line.strip() for line in shown.output.splitlines()]
    assert [line for line in lines if line.startswith("turn")] == ["turn 1", "turn 2", "turn 3"]
    assert '→ read_file(path="requirements.txt")' in lines
    assert "← the first line of requirements.txt (and 1 more line)" in lines
    assert (
        len(
            [
                line
                for line in lines
                if line.startswith("! nudge: You stopped, but these outputs are missing: - `summary`")
            ]
        )
        == 1
    )
    assert "✓ output risk = 0.2" in lines
    assert "-- goal reached" in lines
    assert "reason   goal" in lines
    assert any(line.startswith("used     3 turns; 1 tool call; 2,072 tokens") for line in lines)


def test_the_demo_needs_nothing_and_its_options_can_be_changed():
    shown = invoke("--demo")
    assert shown.exit_code == 0, shown.output
    assert "risk 0.2" in shown.output
    stopped = invoke("--demo", "--max-turns", "1", "--last-turn", "off")
    assert (stopped.exit_code, "reason   max_turns" in stopped.output) == (3, True)


def test_the_thinking_is_shown_when_it_is_asked_for():
    assert "The task asks for a summary" not in replayed(*SAMPLE_OPTIONS).output
    assert "┆ The task asks for a summary" in replayed(*SAMPLE_OPTIONS, "--verbose").output


def test_a_long_result_is_one_short_line_and_verbose_shows_all_of_it():
    assert "and another" not in replayed(*SAMPLE_OPTIONS).output
    assert "← the first line of requirements.txt and another" in replayed(*SAMPLE_OPTIONS, "-v").output


def test_into_a_pipe_nothing_is_cut_unless_columns_says_how_wide_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = replayed(*SAMPLE_OPTIONS).output
    assert "…" not in whole
    nudge = next(line for line in whole.splitlines() if "! nudge" in line)
    assert nudge.endswith("with `name` and `value`.")
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(line) <= 80 for line in replayed(*SAMPLE_OPTIONS).output.splitlines())


def test_json_is_one_event_a_line_and_the_last_one_is_the_outcome():
    shown = replayed(*SAMPLE_OPTIONS, "--json")
    events = [monitor.events.event_codec.loads(line) for line in shown.stdout.splitlines()]
    assert isinstance(events[0], monitor.events.RunStarted)
    end = events[-1]
    assert isinstance(end, monitor.events.RunTerminated)
    assert (end.outcome.ok, end.outcome.emitted["risk"], end.outcome.turns) == (True, 0.2, 3)
    assert sum(isinstance(event, monitor.events.Nudged) for event in events) == 1
    assert not any(isinstance(event, monitor.events.ChunkReceived) for event in events)
    assert '"chunk_received"' in replayed(*SAMPLE_OPTIONS, "--json", "--verbose").stdout


def test_a_log_gets_the_same_events_and_is_appended_to(tmp_path: Path):
    for _ in range(2):
        replayed(*SAMPLE_OPTIONS, "--log", "events.jsonl")
    events = [json.loads(line)["type"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert (events.count("run_started"), events.count("run_terminated"), events[-1]) == (2, 2, "run_terminated")


def test_what_a_model_wrote_reaches_the_terminal_as_text():
    model = recorded(
        [monitor.chunks.TextDelta("\x1b[2Jgone \x07"), call("no_such\x1btool", a="\x1b]0;x\x07")],
        [monitor.chunks.TextDelta("done")],
    )
    shown = invoke("\x1b[31mx", "--model", model).output
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\x1b[2Jgone" in shown


def test_a_refused_output_is_shown_with_the_reason():
    shown = replayed("--output", "summary:str", "--output", "risk:int").output
    assert "← Error: `risk` is not accepted: Input should be a valid integer" in shown


def test_money_is_shown_where_prices_are_given():
    assert "USD" not in replayed(*SAMPLE_OPTIONS).output
    # (1,857 x 0.30 + 215 x 2.50) / 1,000,000
    assert "; 0.0011 USD; " in replayed(*SAMPLE_OPTIONS, "--price", "0.30,2.50").output


def test_a_long_task_is_shown_by_its_beginning():
    shown = replayed(task="-", stdin="\n".join(f"line {number}" for number in range(20))).output
    assert "line 7" in shown
    assert "line 8" not in shown
    assert "(and 12 more lines)" in shown


# ------------------------------------------------------------------ the arguments


def test_the_task_comes_from_stdin(tmp_path: Path):
    with LocalGemini([[*events_of_message({"role": "assistant", "text": "It is fine."})]]) as server:
        done = invoke("-", "--model", "google:local", "--base-url", server.base_url, stdin="Is this fine? äöü\n")
    assert done.exit_code == 0, done.output
    assert server.requests[0].body["contents"][0]["parts"][0]["text"] == "Is this fine? äöü\n"


@pytest.mark.parametrize(
    ("model", "server"),
    [
        ("openai:local", LocalOpenAI([[openai_steps.text("It is fine."), openai_steps.finish()]])),
        (
            "anthropic:local",
            LocalAnthropic([[anthropic_steps.start(), *anthropic_steps.say("It is fine."), *anthropic_steps.finish()]]),
        ),
    ],
)
def test_a_compatible_server_may_stand_in_the_place_of_any_service(model: str, server: LocalOpenAI | LocalAnthropic):
    with server:
        done = invoke("Is this fine?", "--model", model, "--base-url", server.base_url)
    assert done.exit_code == 0, done.output
    assert "It is fine." in done.output


def test_instructions_come_from_a_file_with_their_variables_filled_in(tmp_path: Path):
    (tmp_path / "prompt.md").write_text("You review ${what}.")
    with LocalGemini([[*events_of_message({"role": "assistant", "text": "It is fine."})]]) as server:
        arguments = [
            "--instructions",
            "@prompt.md",
            "--var",
            "what=code=1",
            "--temperature",
            "0.5",
            "--setting",
            "top_k=3",
        ]
        done = invoke("x", "--model", "google:local", "--base-url", server.base_url, *arguments)
    assert done.exit_code == 0, done.output
    body = server.requests[0].body
    assert body["systemInstruction"]["parts"][0]["text"].startswith("You review code=1.\n")
    assert (body["generationConfig"]["temperature"], body["generationConfig"]["topK"]) == (0.5, 3)


def test_a_plan_from_a_file_drives_the_run(tmp_path: Path):
    (tmp_path / "plan.md").write_text("# Tidy up\n\n- [ ] find old files\n2. delete them\n")
    turn = [
        call("update_plan", step=1, status="completed"),
        call("update_plan", step=2, status="blocked", note="not mine"),
    ]
    shown = invoke(
        "x",
        "--model",
        recorded(turn, [monitor.chunks.TextDelta("Done.")], [monitor.chunks.TextDelta("In short.")]),
        "--plan",
        "plan.md",
    )
    assert shown.exit_code == 0, shown.output
    assert "· Plan: Tidy up" in shown.output
    assert "· 2. [!] delete them (not mine)" in shown.output
    assert "apart from what was blocked: delete them" in shown.output


def test_steps_may_be_given_one_by_one():
    model = recorded(
        [call("update_plan", step=1, status="completed")],
        [monitor.chunks.TextDelta("Done.")],
        [monitor.chunks.TextDelta("In short.")],
    )
    assert "· 1. [x] look" in invoke("x", "--model", model, "--step", "look").output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "what is the task?"),
        (["x"], "which model? --model google:gemini-2.5-flash"),
        (["x", "--model", "gpt"], "write the provider, a colon, and the model"),
        (
            ["x", "--model", "google:gemini"],
            "needs a key: set GEMINI_API_KEY (without a key: agent-monitor run --demo)",
        ),
        (["x", "--model", "openai:gpt-5"], "needs a key: set OPENAI_API_KEY"),
        (["x", "--model", "anthropic:claude-sonnet-5"], "needs a key: set ANTHROPIC_API_KEY"),
        (["x", "--model", "replay:none.jsonl"], "--model replay:none.jsonl: No such file or directory"),
        (["--demo", "--base-url", "http://127.0.0.1:9"], "--base-url needs a model; name it as well"),
        (
            ["x", "--model", "openai:m", "--base-url", "localhost:8000"],
            "--base-url localhost:8000: write the whole address, e.g. http://",
        ),
        (["--demo", "--tool", "os:sep"], "--tool os:sep: '/' is no tool"),
        (
            ["x", "--model", "replay:{sample}", "--base-url", "http://127.0.0.1:9"],
            "--base-url is for google:, openai:, openai-responses:, anthropic: models, not for replay:",
        ),
        (["--demo", "--output", "risk"], "--output risk: write NAME:TYPE, e.g. --output summary:str"),
        (["--demo", "--output", "risk:number"], "'number' is not a type; types are str, int, float, bool, json"),
        (["--demo", "--output", "a:str", "--output", "a:int"], "a is declared already"),
        (["--demo", "--tool", "my_tool:read_file"], "there is no module 'my_tool', neither here nor installed"),
        (["--demo", "--tool", "my_tools:reed_file"], "my_tools has no 'reed_file'; did you mean 'read_file'?"),
        (["--demo", "--tool", "./my_tools.py:read_file"], "write the module, not its file: my_tools:read_file"),
        (["--demo", "--tool", "read_file"], "write module:name"),
        (["--demo", "--tool", "broken:f"], "importing broken raised ZeroDivisionError"),
        (["--demo", "--tool", "needs:f"], "needs needs a module that is not installed: no_such_thing"),
        (["--demo", "--instructions", "Hi ${who}"], "not given: who. Add them to variables= (the command: --var)"),
        (["--demo", "--instructions", "@none.md"], "--instructions: cannot read none.md: No such file or directory"),
        (["--demo", "--var", "x"], "--var x: write NAME=VALUE"),
        (["--demo", "--plan", "none.md"], "--plan: cannot read none.md"),
        (["--demo", "--plan", "empty.md"], "--plan empty.md: there is no step in it"),
        (["--demo", "--plan", "empty.md", "--step", "x"], "--plan and --step both say the plan"),
        (["--demo", "--max-turns", "0"], "--max-turns 0: give a whole number above 0, or off"),
        (["--demo", "--timeout", "soon"], "--timeout soon: give seconds above 0, or off"),
        (["--demo", "--last-turn", "-1"], "--last-turn -1: give seconds above 0, or off"),
        (["--demo", "--price", "1"], "--price 1: write IN,OUT or IN,OUT,CACHED"),
        (["--demo", "--budget-usd", "1"], "--budget-usd: the price table does not have this model: add --price IN,OUT"),
        (["--demo", "--setting", "top_k"], "--setting top_k: write NAME=VALUE"),
        (
            ["--demo", "--detectors", "NoProgress", "--no-detectors"],
            "--detectors and --no-detectors say different things",
        ),
        (["--demo", "--policy", "shout"], "shout"),
        (["--demo", "--log", "no/such/folder.jsonl"], "cannot write events to no/such/folder.jsonl"),
        (["-", "--model", "replay:{sample}"], "the task is empty (nothing came from stdin)"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(arguments: list[str], complaint: str, tmp_path: Path):
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needs.py").write_text("import no_such_thing")
    (tmp_path / "empty.md").write_text("# A title\n")
    done = invoke(*(argument.replace("{sample}", str(SAMPLE)) for argument in arguments), stdin="")
    assert done.exit_code == 2, done.output
    assert complaint in done.stderr
    assert done.stderr.startswith("agent-monitor: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


# ------------------------------------------------------------------ exit codes


def ended(reason: TerminateReason, *, ok: bool = False, source: str = "x") -> Outcome:
    return Outcome(ok=ok, reason=reason, detail="", source=source)


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        (1, "terminated"),
        (
            3,
            (
                "max_turns model_call_limit tool_call_limit token_limit cost_limit timeout idle_timeout condition_met"
                " consecutive_errors window_too_small"
            ),
        ),
        (4, "loop_detected"),
        (5, "missing_outputs"),
        (6, "rate_limited prompt_too_long compaction_ineffective blocked invalid_stream truncated"),
        (7, "error"),
        (130, "aborted cancelled closed_by_caller"),
    ],
)
def test_each_family_of_reasons_has_an_exit_code_of_its_own(code: int, reasons: str):
    assert {exit_code(ended(TerminateReason(reason))) for reason in reasons.split()} == {code}


def test_an_error_of_the_provider_is_told_from_a_crash_of_something_else():
    assert exit_code(ended(TerminateReason.ERROR, source="provider")) == 6
    assert exit_code(ended(TerminateReason.ERROR, source="content_repetition")) == 7


@pytest.mark.parametrize("reason", list(TerminateReason))
def test_an_end_that_is_no_success_is_never_exit_code_0(reason: TerminateReason):
    assert exit_code(ended(reason)) != 0
    assert exit_code(ended(reason, ok=True)) == 0


def test_the_exit_codes_of_runs():
    gives_up = recorded([call("terminate", status="failure", reason="no access")], path="gives_up.jsonl")
    loops = recorded([monitor.chunks.TextDelta("Let me check the file again. " * 200)], path="loops.jsonl")
    cut_off = recorded(
        [monitor.chunks.TextDelta("half"), monitor.chunks.TurnFinished(monitor.FinishReason.BLOCKED)],
        path="blocked.jsonl",
    )
    sample = f"replay:{SAMPLE}"
    outputs = SAMPLE_OPTIONS
    cases: Mapping[str, tuple[int, list[str]]] = {
        "given up": (1, ["--model", gives_up]),
        "limit": (3, ["--model", sample, *outputs, "--budget-tokens", "600"]),
        "calls": (3, ["--model", sample, *outputs, "--max-tool-calls", "1", "--last-turn", "off"]),
        "loop": (4, ["--model", loops, "--policy", "stop"]),
        "missing": (5, ["--model", sample, *outputs, "--max-nudges", "0", "--last-turn", "off"]),
        "provider": (6, ["--model", cut_off]),
    }
    assert {name: invoke("x", *options).exit_code for name, (_, options) in cases.items()} == {
        name: code for name, (code, _) in cases.items()
    }


def test_no_detectors_looks_for_no_loops():
    loops = recorded([monitor.chunks.TextDelta("Let me check the file again. " * 200)])
    assert invoke("x", "--model", loops, "--no-detectors").exit_code == 0


def test_the_settings_of_scan_hold_for_run(tmp_path: Path):
    (tmp_path / "agent-monitor.toml").write_text('policy = "stop"\ndetectors = ["ContentRepetition"]\n')
    shown = invoke("x", "--model", recorded([monitor.chunks.TextDelta("Let me check the file again. " * 200)]), "-v")
    assert shown.exit_code == 4
    assert "watched by content_repetition\n" in shown.output


def test_the_help_shows_its_brackets():
    said = invoke("--help").output
    assert "'issues:list[str]'" in said
    assert "json, list[str], module:Model" in " ".join(said.replace("│", "").split())


def test_the_help_names_every_exit_code_and_so_does_the_page():
    said = invoke("--help").output
    page = (ROOT / "docs" / "cli.md").read_text().split("## run")[1].split("\n## ")[0]
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 130):
        assert re.search(rf"^\W*{code}\s{{2,}}\w", said, re.MULTILINE), code
        assert re.search(rf"^\| {code} \|", page, re.MULTILINE), code


# ------------------------------------------------------------------ the real SDK


def played(*messages: Mapping[str, Any]) -> LocalGemini:
    return LocalGemini([list(events_of_message(message)) for message in messages])


SUBAGENT = (
    {"role": "assistant", "text": "Reading.", "tool_calls": [{"name": "read_file", "args": {"path": "setup.py"}}]},
    {"role": "assistant", "text": "The change is small and safe."},
    {
        "role": "assistant",
        "text": "",
        "tool_calls": [
            {"name": "emit_value", "args": {"name": "summary", "value": "Small and safe."}},
            {"name": "emit_value", "args": {"name": "risk", "value": 0.1}},
        ],
    },
)


def test_against_a_server_it_reaches_its_outputs_after_one_nudge_and_prints_them():
    with played(*SUBAGENT) as server:
        done = subprocess.run(
            [*COMMAND, "Review setup.py", "--model", "google:local", "--base-url", server.base_url, *SAMPLE_OPTIONS],
            env={"PATH": "", "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        requests: list[ReceivedRequest] = list(server.requests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("! nudge: You stopped, but these outputs are missing") == 1
    assert "summary Small and safe." in done.stdout
    assert "risk 0.1" in done.stdout
    assert "reason   goal" in done.stdout
    assert len(requests) == 3
    assert {tool["name"] for tool in requests[0].body["tools"][0]["functionDeclarations"]} == {
        "emit_value",
        "terminate",
        "read_file",
    }
    last = requests[2].body["contents"][-1]
    assert last["role"] == "user"
    assert "these outputs are missing" in last["parts"][0]["text"]


def test_a_refused_call_is_the_providers_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with LocalGemini([[error_reply(400, "no such model")]]) as server:
        done = invoke("x", "--model", "google:local", "--base-url", server.base_url)
    assert done.exit_code == 6, done.output
    assert "no such model" in done.stdout
    assert "-- failed: provider" in done.stdout


def test_a_loop_is_announced_after_the_words_in_which_it_was_seen():
    pieces = [monitor.chunks.TextDelta("Let me check the file again. ")] * 50
    shown = invoke("x", "--model", recorded(pieces), "--policy", "stop").output
    before, _, after = shown.partition("! loop, content_repetition")
    assert before.count("│") >= 1
    assert "│" not in after


def test_a_retry_is_told_before_its_wait_and_why_only_once():
    answer = [*events_of_message({"role": "assistant", "text": "It is fine."})]
    with LocalGemini([[error_reply(429, "slow down")], answer]) as server:
        process = started("x", "--model", "google:local", "--base-url", server.base_url, until="↻ attempt 2 in 1 s")
        requests_before = len(server.requests)
        rest, _ = process.communicate(timeout=250)
    assert requests_before == 1
    assert process.returncode == 0, rest
    assert "turn 1 (model call 2)" in rest
    assert "slow down" not in rest


def test_a_setting_that_the_sdk_does_not_have_is_wrong_usage():
    done = invoke("x", "--model", "google:local", "--base-url", "http://127.0.0.1:9", "--setting", "temprature=1")
    assert done.exit_code == 2
    assert "did you mean 'temperature'?" in done.stderr


# ------------------------------------------------------------------ Ctrl-C


def started(*arguments: str, until: str) -> subprocess.Popen[str]:
    """The command in a process of its own, as soon as it has printed `until`."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if until in line:
            return process
    raise AssertionError(f"it ended without {until!r}")


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code", "why"),
    [(signal.SIGINT, 130, "interrupted by Ctrl-C"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_a_signal_ends_the_run_in_order_and_the_card_says_so(number: signal.Signals, code: int, why: str):
    process = started("--demo", until="turn 1")
    process.send_signal(number)
    rest, _ = process.communicate(timeout=250)
    assert process.returncode == code
    assert f"because  {why}" in rest
    assert "missing  summary, risk" in rest


def test_ctrl_c_with_json_still_ends_with_the_outcome():
    process = started("--demo", "--json", until="turn_started")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=250)
    assert process.returncode == 130
    end = monitor.events.event_codec.loads(rest.splitlines()[-1])
    assert isinstance(end, monitor.events.RunTerminated)
    assert end.outcome.reason is TerminateReason.ABORTED


def test_a_tool_that_is_stuck_in_its_thread_does_not_keep_the_command():
    model = recorded([call("stuck", path="x")], [monitor.chunks.TextDelta("done")])
    process = started("x", "--model", model, "--tool", "my_tools:stuck", until="→ stuck")
    wait_for(Path("at work"))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=250)
    assert process.returncode == 130
    assert "reason   aborted" in rest
    assert "a tool is still at work; leaving it" in rest


def test_a_run_whose_output_nobody_reads_is_ended():
    process = started("--demo", "--log", "events.jsonl", until="turn 1")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=250) == 141
    end = monitor.events.event_codec.loads(Path("events.jsonl").read_text().splitlines()[-1])
    assert isinstance(end, monitor.events.RunTerminated)
    assert end.outcome.detail == "nobody reads what is printed"


def test_a_second_signal_leaves_at_once_also_while_a_tool_blocks_the_event_loop():
    process = started(
        "x", "--model", recorded([call("blocks", path="x")]), "--tool", "my_tools:blocks", until="→ blocks"
    )
    wait_for(Path("at work"))
    for number in (signal.SIGINT, signal.SIGTERM):  # two of one kind at once are one to the operating system
        process.send_signal(number)
    rest, _ = process.communicate(timeout=250)
    assert process.returncode == 143
    assert "interrupted twice, leaving at once" in rest


# ------------------------------------------------------------------ compaction


def small(request: ReceivedRequest) -> Sequence[Any]:
    """A model that reads six files, refuses what is longer than its window, and can summarise."""
    size = len(json.dumps(request.body)) // 4
    if not request.body.get("tools"):
        text = CHECKPOINT.skeleton(dict.fromkeys(CHECKPOINT.sections, "- six files"))
        return [gemini_text(text), finish(usage=usage(size, output=200))]
    if size > 30_000:
        return [overflow(size, 30_000)]
    if request.number > 5:
        return [gemini_text("All is read."), finish(usage=usage(size, output=4))]
    return [function_call("big", {"path": f"f{request.number}.py"}), finish(usage=usage(size, output=9))]


def asked(*options: str) -> Any:
    with LocalGemini(small) as server:
        return invoke(
            "Read all.", "--model", "google:local", "--base-url", server.base_url, "--tool", "my_tools:big", *options
        )


def test_each_compaction_of_a_run_is_one_line():
    shown = asked("--compaction", "pi")
    assert shown.exit_code == 0, shown.output
    lines = [line.strip() for line in shown.output.splitlines() if "compacted by" in line]
    assert lines
    assert all(
        re.match(r"✓ compacted by google:local: [\d,]+ -> [\d,]+ tokens, \d+ messages? kept", line) for line in lines
    )
    assert "reason   goal" in shown.output
    assert re.search(r"used .* for summaries", shown.output)


def test_compaction_can_be_switched_off_and_set_in_the_file():
    shown = asked("--compaction", "off")
    assert shown.exit_code == 6
    assert "reason   prompt_too_long" in shown.output
    Path("agent-monitor.toml").write_text('compaction = "off"\n')
    assert asked().exit_code == 6
    assert asked("--compaction", "default").exit_code == 0
    assert "there is no preset 'emacs'" in invoke("x", "--demo", "--compaction", "emacs").stderr


def test_a_window_that_no_table_knows_can_be_given():
    def reasons(*options: str) -> list[str]:
        events = map(json.loads, asked("--compaction", "pi", "--json", *options).stdout.splitlines())
        return [event["reason"] for event in events if event["type"] == "compaction_started"]

    assert reasons()[0] == "overflow"  # nobody knows it before the service says so
    assert {*reasons("--window", "30000")} <= {"high_water", "ceiling"}
    assert reasons("--window", "30000")
