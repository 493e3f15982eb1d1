"""`agent-monitor hook`: what coding agents ask, and get as an answer."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.hooks.agents import ANSWERS, HOOKS
from monitor.cli.hooks.first_look import MOST_ASKED
from monitor.cli.hooks.session_lines import SessionLines, has_settings
from monitor.policy import ObserveOnly
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.source import Source

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"
STUCK = SAMPLES / "claude-code" / "554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def ask(agent: str, event: object, *options: str) -> Any:
    text = event if isinstance(event, str) else json.dumps(event)
    return CliRunner().invoke(app, ["hook", agent, *options], input=text)


def session(folder: Path, calls: int, others: int = 0) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tidy up."}]
    for at in range(calls + others):
        name = "ls" if at < calls else f"tool{at}"
        call = {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"denied {name}"})
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    return str(path)


def event(agent: str, path: str, tool: str = "ls", arguments: object = None) -> dict[str, object]:
    asked: dict[str, object] = {"hook_event_name": HOOKS[agent].before, "transcript_path": path, "tool_name": tool}
    return asked if arguments is None else {**asked, "tool_input": arguments}


@pytest.mark.parametrize("agent", HOOKS)
@pytest.mark.parametrize("deed", ANSWERS)
def test_an_agent_without_a_loop_goes_on(agent: str, deed: str, tmp_path: Path):
    done = ask(agent, event(agent, session(tmp_path, 3)), "--on-loop", deed)
    assert (done.exit_code, json.loads(done.stdout), done.stderr) == (0, {}, "")


def test_claude_code_asks_a_person_with_our_reason(tmp_path: Path):
    done = ask("claude-code", event("claude-code", session(tmp_path, 5)))
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert (said["hookEventName"], said["permissionDecision"]) == ("PreToolUse", "ask")
    assert "ls was called 5 times in a row" in said["permissionDecisionReason"]
    assert "The result: denied ls" in said["permissionDecisionReason"]


def test_claude_code_refuses(tmp_path: Path):
    about = event("claude-code", session(tmp_path, 5))
    refused = json.loads(ask("claude-code", about, "--on-loop", "deny").stdout)
    assert refused["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "continue" not in refused


def test_claude_code_is_stopped_by_a_refusal_and_after_the_calls_of_the_response(tmp_path: Path):
    """`continue: false` alone lets the call be carried out, and is not heard if the call fails."""
    path = session(tmp_path, 5)
    before = json.loads(ask("claude-code", event("claude-code", path), "--on-loop", "stop").stdout)
    assert before["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert before["continue"] is False
    after = {"hook_event_name": "PostToolBatch", "transcript_path": path}
    stopped = json.loads(ask("claude-code", after, "--on-loop", "stop").stdout)
    assert stopped["continue"] is False
    assert stopped["stopReason"].startswith("agent-monitor: ")
    assert json.loads(ask("claude-code", after, "--on-loop", "deny").stdout) == {}
    settings = json.loads(ask("claude-code", "", "--on-loop", "stop", "--print-settings").stdout)
    assert list(settings["hooks"]) == ["PreToolUse", "PostToolBatch"]


HOOKED = {
    "claude-code": "30e798a3-4b3a-4f9d-8516-c258ef42b336.jsonl",
    "codex": "rollout-hooked-0.169.jsonl",
    "gemini-cli": "session-hooked-0.61.jsonl",
}
"""Sessions of real agents, in which a model of a local server called the same again and again, and
the hook refused it.
"""
ASKED = {
    "claude-code": ("Bash", {"command": "ls /nope", "description": "List"}),
    "codex": ("Bash", {"command": "ls /nope"}),
    "gemini-cli": ("run_shell_command", {"command": "ls /nope"}),
}
"""What each of them asks before the call."""
OTHERS = {
    "claude-code": ("Write", {"file_path": "/tmp/new.py", "content": "print(1)"}),
    "codex": ("apply_patch", {"command": "*** Begin Patch"}),
    "gemini-cli": ("write_file", {"file_path": "/tmp/new.py", "content": "print(1)"}),
}
"""What it could do in place of that."""


@pytest.mark.parametrize("agent", HOOKED)
def test_a_refusal_is_no_answer_of_the_tool_so_a_loop_that_goes_on_is_refused_each_time(agent: str):
    (run,) = survey(Source.of_path(SAMPLES / agent / HOOKED[agent]), policy=ObserveOnly)
    loops = [one.detection for one in run.findings if one.detection.level == "loop"]
    counts = [one.count for one in loops if one.detector == "tool_call_repetition"]
    assert counts == [*range(5, run.total.tool_calls + 1)]


def refusals(agent: str, folder: Path, asked: tuple[str, object]) -> list[bool]:
    """Whether the call is refused, after each line of the recorded session."""
    lines = (SAMPLES / agent / HOOKED[agent]).read_bytes().splitlines(keepends=True)
    answers: list[bool] = []
    file = folder / HOOKED[agent]
    for line in lines:
        with file.open("ab") as out:
            out.write(line)
        done = ask(agent, event(agent, str(file), *asked), "--on-loop", "deny")
        answers.append(json.loads(done.stdout) != {})
    return answers


@pytest.mark.parametrize("agent", HOOKED)
def test_the_next_call_of_a_recorded_loop_is_refused(agent: str, tmp_path: Path):
    answers = refusals(agent, tmp_path, ASKED[agent])
    assert answers[:-1] == sorted(answers[:-1])
    assert any(answers)


@pytest.mark.parametrize("agent", HOOKED)
def test_another_call_is_not_held_up_by_the_loop_before_it(agent: str, tmp_path: Path):
    assert not any(refusals(agent, tmp_path, OTHERS[agent]))


@pytest.mark.parametrize("agent", HOOKED)
def test_the_same_tool_with_another_command_is_not_held_up(agent: str, tmp_path: Path):
    tool, arguments = ASKED[agent]
    assert not any(refusals(agent, tmp_path, (tool, {**arguments, "command": "make test"})))


@pytest.mark.parametrize("deed", ANSWERS)
def test_codex_gets_no_answer_that_it_does_not_take(deed: str, tmp_path: Path):
    """It takes `deny` with a reason, and lets the call go on for any other answer."""
    said = json.loads(ask("codex", event("codex", session(tmp_path, 5)), "--on-loop", deed).stdout)
    assert list(said) == ["hookSpecificOutput"]
    assert set(said["hookSpecificOutput"]) == {"hookEventName", "permissionDecision", "permissionDecisionReason"}
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
    told = {"ask": "Ask the user", "deny": "denied ls", "stop": "call no tool"}
    assert told[deed] in said["hookSpecificOutput"]["permissionDecisionReason"]


def test_gemini_cli_refuses_or_stops(tmp_path: Path):
    about = event("gemini-cli", session(tmp_path, 5))
    assert json.loads(ask("gemini-cli", about).stdout)["decision"] == "deny"
    assert json.loads(ask("gemini-cli", about, "--on-loop", "stop").stdout)["continue"] is False


@pytest.mark.parametrize("agent", HOOKS)
def test_a_loop_that_is_over_holds_up_nobody(agent: str, tmp_path: Path):
    assert json.loads(ask(agent, event(agent, session(tmp_path, 9, others=2))).stdout) == {}


@pytest.mark.parametrize("agent", HOOKS)
def test_an_event_that_is_none_of_ours_goes_on(agent: str, tmp_path: Path):
    about = {"hook_event_name": "SessionStart", "transcript_path": session(tmp_path, 9)}
    assert json.loads(ask(agent, about, "--on-loop", "stop").stdout) == {}


@pytest.mark.parametrize("agent", HOOKS)
@pytest.mark.parametrize(
    "given", ["", "no json", "[]", "[" * 100_000, '{"transcript_path": 3}', '{"transcript_path": "gone.jsonl"}', "\x00"]
)
def test_what_cannot_be_read_never_stops_an_agent(agent: str, given: str):
    done = ask(agent, given)
    assert (done.exit_code, json.loads(done.stdout)) == (0, {})


def test_a_question_that_is_too_long_is_read_to_its_end_and_the_call_goes_on(tmp_path: Path):
    about = event("claude-code", session(tmp_path, 5), "ls", {"text": "a" * (MOST_ASKED + 1_000_000)})
    done = in_a_process("claude-code", about=about)
    assert (done.returncode, done.stdout) == (0, "{}\n")
    assert f"more than {MOST_ASKED} bytes" in done.stderr


def test_a_session_that_is_cut_at_any_line_is_answered(tmp_path: Path):
    lines = gzip.decompress(STUCK.read_bytes()).splitlines(keepends=True)
    answers: list[bool] = []
    for number in range(10, len(lines), 40):
        (tmp_path / "s.jsonl").write_bytes(b"".join(lines[:number]) + lines[number][:20])
        done = ask("claude-code", event("claude-code", str(tmp_path / "s.jsonl"), "Bash"))
        assert done.exit_code == 0
        answers.append(json.loads(done.stdout) != {})
    assert answers[0] is False
    assert any(answers)


@pytest.mark.parametrize("agent", HOOKS)
def test_the_settings_name_the_command_with_its_options(agent: str, tmp_path: Path):
    (tmp_path / "my rules.toml").write_text("[ToolCallRepetition]\nloop_at = 7\n")
    done = ask(agent, "", "--print-settings", "--config", "my rules.toml", "--on-loop", "deny")
    text = json.dumps(json.loads(done.stdout))
    assert f"agent-monitor hook {agent} --on-loop deny --config '{tmp_path}/my rules.toml'" in text
    assert HOOKS[agent].place in done.stderr


PROGRAM = """
import sys
from monitor.cli import main
sys.argv = ["agent-monitor", "hook", *sys.argv[1:]]
main()
long = {"typer", "rich", "pydantic", "pydantic_core", "anyio"}
longer = {"typing", "dataclasses", "pathlib", "inspect", "asyncio", "tempfile", "sqlite3", "monitor.core.run"}
longer |= {"zipfile", "hashlib", "difflib", "monitor.verdicts", "monitor.policy", "monitor.messages"}
longer |= {"monitor.detectors.calls.tool_cycle", "monitor.detectors.calls.step_features"}
packages = {name.partition(".")[0] for name in sys.modules}
print(*sorted(packages & long), *sorted({*sys.modules} & longer), file=sys.stderr)
"""
"""Answers, and names the modules that were imported of those that take long."""


def in_a_process(*arguments: str, about: object) -> Any:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, input=json.dumps(about), capture_output=True, text=True, check=False, timeout=250)


def test_a_loop_is_answered_without_the_libraries_of_the_other_commands(tmp_path: Path):
    done = in_a_process("gemini-cli", "--on-loop", "deny", about=event("gemini-cli", session(tmp_path, 5)))
    assert json.loads(done.stdout)["decision"] == "deny"
    assert not {"typer", "rich", "pydantic", "pydantic_core", "anyio"} & {*done.stderr.split()}


@pytest.mark.parametrize("agent", HOOKED)
def test_while_nothing_repeats_the_core_is_not_imported(agent: str, tmp_path: Path):
    lines = (SAMPLES / agent / HOOKED[agent]).read_bytes().splitlines(keepends=True)
    file = tmp_path / HOOKED[agent]
    file.write_bytes(b"".join(lines[: len(lines) // 4]))
    for _ in range(2):
        done = in_a_process(agent, "--on-loop", "deny", about=event(agent, str(file), *OTHERS[agent]))
        assert (done.stdout, done.stderr.split()) == ("{}\n", [])


def test_a_command_line_with_settings_is_answered_as_well(tmp_path: Path):
    strict = ("--set", "ToolCallRepetition.loop_at=3", "--set", "ToolCallRepetition.suspect_at=2")
    done = in_a_process("gemini-cli", *strict, about=event("gemini-cli", session(tmp_path, 3)))
    assert json.loads(done.stdout)["decision"] == "deny"


@pytest.mark.parametrize("name", ["agent-monitor.toml", "pyproject.toml"])
def test_the_settings_of_the_folder_count(name: str, tmp_path: Path):
    head = "tool.agent-monitor." if name == "pyproject.toml" else ""
    about = event("gemini-cli", session(tmp_path, 5))
    assert json.loads(ask("gemini-cli", about).stdout) != {}
    (tmp_path / name).write_text(f"[{head}ToolCallRepetition]\nloop_at = 9\n")
    assert json.loads(ask("gemini-cli", about).stdout) == {}


KEYS = (
    "[tool.agent-monitor.X]",
    "[tool.'agent-monitor'.X]",
    '[tool]\n"agent-monitor" .X.y = 1',
    "tool.agent-monitor = {}",
)


@pytest.mark.parametrize("key", KEYS)
def test_settings_are_found_however_their_key_is_written(key: str, tmp_path: Path):
    assert not has_settings()
    (tmp_path / "pyproject.toml").write_text(f'{key}\n[project]\nname = "a"\n')
    assert has_settings()


def test_a_project_that_requires_the_package_needs_no_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tomllib", None)
    project = '[project]\nname = "agent-monitor"\ndependencies = ["agent-monitor[cli]>=1"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    assert not has_settings()


def test_a_session_that_grows_is_read_on_and_the_answer_is_the_same(tmp_path: Path):
    for calls in range(1, 8):
        about = event("claude-code", session(tmp_path, calls))
        first = ask("claude-code", about).stdout
        assert ask("claude-code", about).stdout == first
        assert (json.loads(first) != {}) == (calls >= 5)
    assert len(list((tmp_path / "cache" / "agent-monitor" / "sessions").iterdir())) == 1


@pytest.mark.parametrize("wrong", [["cursor"], ["codex", "--on-loop", "explode"]])
def test_a_wrong_name_is_refused(wrong: list[str]):
    assert ask(wrong[0], "{}", *wrong[1:]).exit_code == 2


def stuck_session(folder: Path, agent: str) -> Path:
    """A copy of the recorded loop, to be written on."""
    return Path(shutil.copy(SAMPLES / agent / HOOKED[agent], folder))


NEWS: dict[str, dict[str, Any]] = {
    "another call": {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "id": "n1", "name": "Read", "input": {"file_path": "a"}}]},
    },
    "a word of the person": {"type": "user", "message": {"content": "Try it again."}},
    "a new history": {"type": "system", "subtype": "compact_boundary"},
}


@pytest.mark.parametrize("agent", HOOKED)
def test_in_a_loop_the_core_is_imported_once(agent: str, tmp_path: Path):
    about = event(agent, str(stuck_session(tmp_path, agent)), *ASKED[agent])
    first, *later = [in_a_process(agent, "--on-loop", "deny", about=about) for _ in range(3)]
    assert json.loads(first.stdout) != {}
    assert [(one.stdout, one.stderr.split()) for one in later] == [(first.stdout, [])] * 2


def test_the_fifth_equal_call_imports_one_detector_and_what_it_needs(tmp_path: Path):
    about = event("claude-code", str(stuck_session(tmp_path, "claude-code")), *ASKED["claude-code"])
    refused = in_a_process("claude-code", "--on-loop", "deny", about=about)
    assert json.loads(refused.stdout) != {}
    assert refused.stderr.split() == ["dataclasses", "inspect", "monitor.verdicts", "typing"]


def test_up_to_the_fourth_equal_call_the_core_is_not_imported(tmp_path: Path):
    file, (name, given) = tmp_path / "session.jsonl", ASKED["claude-code"]
    for at in range(4):
        about = event("claude-code", str(file), name, given)
        done = in_a_process("claude-code", "--on-loop", "deny", about=about)
        assert (done.stdout, done.stderr.split()) == ("{}\n", [])
        call = {"type": "tool_use", "id": f"c{at}", "name": name, "input": given}
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": "No such file or directory"}
        with file.open("a") as out:
            for role, block in (("assistant", call), ("user", result)):
                out.write(f"{json.dumps({'type': role, 'message': {'content': [block]}})}\n")


def written(file: Path, *messages: tuple[str, object]) -> None:
    with file.open("a") as out:
        for role, content in messages:
            record = {"type": role, "sessionId": file.stem, "parentUuid": None, "message": {"content": content}}
            out.write(f"{json.dumps(record)}\n")


def called(file: Path, id: str, command: str, said: str) -> None:
    written(
        file,
        ("assistant", [{"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}]),
        ("user", [{"type": "tool_result", "tool_use_id": id, "content": said}]),
    )


@pytest.mark.parametrize("wish", ["Tidy up.", "Now run make 20 times."])
def test_of_a_long_session_all_requests_count_and_the_end_is_read(wish: str, tmp_path: Path):
    file = tmp_path / "s.jsonl"
    about = event("claude-code", str(file), "Bash", {"command": "make"})
    for part in range(3):
        for at in range(40):
            called(file, f"c{part}-{at}", f"cat {part}-{at}.py", f"{part} {at} " + "word " * 4_000)
        written(file, ("user", wish if part == 1 else "Go on."))
        assert json.loads(ask("claude-code", about).stdout) == {}
    for at in range(5):
        called(file, f"m{at}", "make", "nothing to do")
    assert (json.loads(ask("claude-code", about).stdout) == {}) == ("20 times" in wish)


@pytest.mark.parametrize("what", NEWS)
def test_an_answer_holds_only_as_long_as_the_loop_goes_on(what: str, tmp_path: Path):
    file = stuck_session(tmp_path, "claude-code")
    about = event("claude-code", str(file), *ASKED["claude-code"])
    for _ in range(2):
        ask("claude-code", about, "--on-loop", "deny")
    with file.open("a") as out:
        out.write(f"{json.dumps({**json.loads(file.read_text().splitlines()[-1]), 'uuid': 'n', **NEWS[what]})}\n")
    session = SessionLines(str(file), str(tmp_path / "cache" / "agent-monitor" / "sessions"))
    question = json.dumps(["PreToolUse", about["tool_name"], about["tool_input"], [["--on-loop", "deny"]]])
    assert session.steps.held(question) is not None
    session.read()
    assert session.steps.held(question) is None


def test_a_question_about_another_call_does_not_let_the_loop_pass(tmp_path: Path):
    file = tmp_path / "s.jsonl"
    for at in range(6):
        called(file, f"c{at}", "make", "No rule to make target")
    asked = [("Bash", {"command": "make"}), OTHERS["claude-code"], ("Bash", {"command": "make"})]
    refused, free, again = [
        in_a_process("claude-code", "--on-loop", "deny", about=event("claude-code", str(file), *one)).stdout
        for one in asked
    ]
    assert json.loads(free) == {}
    assert again == refused != free


def test_an_event_that_cannot_be_answered_does_not_hide_the_loop(tmp_path: Path):
    file = stuck_session(tmp_path, "claude-code")
    about = event("claude-code", str(file), *ASKED["claude-code"])
    assert json.loads(ask("claude-code", {**about, "hook_event_name": "Stop"}).stdout) == {}
    assert json.loads(ask("claude-code", about).stdout) != {}
