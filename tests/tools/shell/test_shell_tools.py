"""Real commands: each test counts the process table afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.events import ToolProgressed
from monitor.sinks.log import line_of
from monitor.testing import FakeClock, call
from monitor.tools.base import CallListener, Tool, traits_of
from monitor.tools.calls.scheduler import Scheduler
from monitor.tools.processes import command, descendants, process_table
from monitor.tools.processes.process_table import MARKER, command_of, end_leftovers, leftovers, living
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.shell import shell_tools as shell_module
from monitor.tools.shell.shell_tools import ShellTools
from monitor.tools.workspace import Workspace
from tests.processes import (  # noqa: F401 - a fixture
    BUBBLEWRAP,
    PATIENCE_S,
    Heard,
    ask,
    commands_left,
    is_gone,
    is_running_no_more,
    no_command_is_left,
    nothing_left,
)
from tests.runs.driving import drive

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.anyio, pytest.mark.feature("GT-12")]


SANDBOX: dict[str, Any] = {"sandbox": None}


@pytest.fixture(autouse=True, params=["plain", pytest.param("in a sandbox", marks=BUBBLEWRAP)])
def sandboxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each test is made of commands as they are, and of commands with a namespace of their own."""
    monkeypatch.setitem(SANDBOX, "sandbox", None if request.param == "plain" else "required")
    return bool(request.param != "plain")


def shell(path: Path, **options: Any) -> ShellTools:
    return ShellTools(Workspace(path), **{"grace_s": 0.2, **SANDBOX, **options})


async def run(tools: ShellTools, command: str, heard: Heard | None = None, **arguments: Any) -> ToolAnswer:
    return await ask(tools.tools(), "shell", heard, command=command, **arguments)


def jump(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What was heard of a command. The time of the tools jumps by 1,000 s with the first output."""
    heard, now = Heard(), time.monotonic
    clock = SimpleNamespace(monotonic=lambda: now() + (1_000 if heard.something.is_set() else 0))
    monkeypatch.setattr(shell_module, "time", clock)
    return heard


class Cancels(Heard):
    """Cancels a scope at the first output."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self._scope.cancel()


class WithDeadline:
    """The tool, with a deadline that the scheduler keeps."""

    timeout_s = 10

    def __init__(self, tool: Tool) -> None:
        self.spec, self.call = tool.spec, tool.call


# --- how a command ends


async def test_output_of_both_streams_stands_in_the_order_of_writing(tmp_path: Path):
    answer = await run(shell(tmp_path), "echo one; echo two >&2; echo three; exit 3")
    assert answer.text == "one\ntwo\nthree\n"
    assert answer.status is not None
    assert answer.status.startswith("exit code 3, ")
    assert answer.data["exit_code"] == 3
    assert not answer.is_error  # the command ran; what its code means is for the model to say


class Started(CallListener):
    """The processes that calls have started."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.something = anyio.Event()

    def process_started(self, call: ToolCall, pid: int) -> None:
        self.pids[call.id] = pid
        self.something.set()


async def test_the_process_id_of_a_command_in_the_foreground_is_known_while_it_runs(tmp_path: Path):
    started = Started()
    scheduler = Scheduler({tool.spec.name: tool for tool in shell(tmp_path).tools()}, listener=started)
    os.mkfifo(tmp_path / "go")
    async with anyio.create_task_group() as group:
        group.start_soon(scheduler.carry_out, [ToolCall("a", "shell", {"command": "read < go"})])
        with anyio.fail_after(PATIENCE_S):
            await started.something.wait()
            os.kill(started.pids["a"], 0)  # it is there
            await let_go(tmp_path / "go")


async def test_a_run_tells_the_process_id_as_an_event(tmp_path: Path):
    made = call("shell", command="echo $$")
    run = await drive(made, call("terminate", status="success"), tools=[shell(tmp_path, sandbox=None)])
    (told,) = [event for event in run.of(ToolProgressed) if event.pid is not None]
    assert f"\n{told.pid}" in run.results(0)[0].text
    assert line_of(told) == f"{told.call_id} has started the process {told.pid}"


async def test_a_signal_is_named(tmp_path: Path, sandboxed: bool):
    """Bubblewrap says 137 for a command that ended with 137, and for one that was killed."""
    answer = await run(shell(tmp_path), "kill -9 $$")
    assert (answer.data["signal"], answer.data["exit_code"]) == ((None, 137) if sandboxed else ("SIGKILL", None))
    assert answer.status is not None
    assert answer.status.startswith("exit code 137 (SIGKILL)" if sandboxed else "ended by SIGKILL")
    of_a_child = await run(shell(tmp_path), "bash -c 'kill -TERM $$'; exit $?")
    assert of_a_child.status is not None
    assert of_a_child.status.startswith("exit code 143 (SIGTERM)")


async def test_a_command_ends_with_its_shell_and_not_with_its_pipe(tmp_path: Path):
    async with shell(tmp_path) as tools:
        began = time.monotonic()
        answer = await run(tools, "echo hi; sleep 100 &")
        assert time.monotonic() - began < 50
        assert answer.text == "hi\n"
        assert answer.status is not None
        assert "1 background process: pid " in answer.status
        (pid,) = answer.data["background"]
        assert command_of(pid) == "sleep 100"
    assert is_gone(pid)


async def test_a_child_that_keeps_writing_does_not_hold_the_command(tmp_path: Path):
    async with shell(tmp_path) as tools:
        answer = await run(tools, "(while true; do echo x; sleep 0.01; done) & echo started")
        assert "started\n" in answer.text


async def let_go(pipe: Path) -> None:
    """A command that reads this named pipe goes on."""
    await anyio.to_thread.run_sync(pipe.write_text, "\n")


async def test_a_background_process_goes_on_writing_without_a_broken_pipe(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with shell(tmp_path) as tools, anyio.create_task_group() as group:
        answer = await run(tools, "(read < go; echo later; echo done > done.txt) &")
        (pid,) = answer.data["background"]
        group.start_soon(let_go, tmp_path / "go")
        waited = await ask(tools.tools(), "shell_wait", pid=pid, timeout_s=60)
    assert waited.text == "later\n"
    assert waited.status is not None
    assert waited.status.startswith("exit code 0")
    assert (tmp_path / "done.txt").read_text() == "done\n"


async def test_without_an_open_toolset_no_process_outlives_its_call(tmp_path: Path):
    answer = await run(shell(tmp_path), "sleep 100 & setsid sleep 100 & echo $!")
    assert answer.status is not None
    assert "2 background processes ended with it" in answer.status
    assert is_gone(int(answer.text))


# --- time


@pytest.mark.feature("GT-09")
async def test_a_timeout_keeps_the_output_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    answer = await run(shell(tmp_path), "echo before; sleep 100", jump(monkeypatch))
    assert answer.text == "before\n"
    assert (answer.is_error, answer.error_kind) == (True, ToolErrorKind.TIMEOUT)
    assert answer.status is not None
    assert "timeout" in answer.status


async def test_what_ignores_term_is_killed_after_the_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    began = time.monotonic()
    command = "trap '' TERM; echo a; while true; do sleep 0.05; done"
    answer = await run(shell(tmp_path, grace_s=0.3), command, jump(monkeypatch))
    assert time.monotonic() - began >= 0.3
    assert answer.data["signal"] == "SIGKILL"


async def test_term_comes_first_so_that_a_command_can_tidy_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tools = shell(tmp_path, grace_s=50)
    began = time.monotonic()
    command = "trap 'echo tidied; exit 7' TERM; echo ready; while true; do sleep 0.05; done"
    answer = await run(tools, command, jump(monkeypatch))
    assert time.monotonic() - began < 40  # and not the grace
    assert answer.text.endswith("tidied\n")
    assert answer.data["exit_code"] == 7


async def test_a_longer_timeout_than_allowed_is_refused(tmp_path: Path):
    with pytest.raises(ToolError, match="at most 10") as caught:
        await run(shell(tmp_path, longest_s=10), "true", timeout_s=11)
    assert caught.value.kind is ToolErrorKind.INVALID_ARGUMENTS


# --- what escapes from the group

ESCAPES = {
    "setsid": "setsid {wait}",
    "nohup": "nohup {wait}",
    "a group of its own": "set -m; {wait}",
    "without the marker": "env -i {wait}",
    "a session of its own without the marker": "env -i setsid --wait {wait}",
    "a daemon": "setsid bash -c '{wait} & disown; exit'",
    "ignores TERM": "setsid bash -c \"trap '' TERM; {wait}; {wait}\"",
    "starts another one when it is ended": "setsid bash -c \"trap 'setsid {wait} & exit' TERM; {wait} & wait\"",
}


def unlike_any_other() -> str:
    """A command that sleeps, and is known by its text: other programs have sleepers too."""
    return f"sleep 100.{random.SystemRandom().randrange(10**12):012}"


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_what_escapes_from_the_group_is_gone_after_a_cancellation(tmp_path: Path, escape: str):
    tools = shell(tmp_path)
    wait = unlike_any_other()
    async with anyio.create_task_group() as group:
        group.start_soon(run, tools, f"{escape.format(wait=wait)} > /dev/null 2>&1 & {wait}")
        with anyio.fail_after(PATIENCE_S):
            while [command_of(entry.pid) for entry in living()].count(wait) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert is_running_no_more(wait)


async def test_a_cancellation_goes_on_after_the_command_has_ended(tmp_path: Path):
    with anyio.CancelScope() as scope:
        answer = await run(shell(tmp_path), "echo before; sleep 100", Cancels(scope))
        assert no_command_is_left()
        assert (answer.text, answer.error_kind) == ("before\n", ToolErrorKind.CANCELLED)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


@pytest.mark.parametrize("how", ["the call", "the batch", "its deadline"])
async def test_output_before_the_end_of_a_call_is_in_its_result(tmp_path: Path, how: str):
    """Also what was written between the cancellation and the end."""
    group = shell(tmp_path, grace_s=2)
    heard, clock = Heard(), FakeClock()
    tools = {tool.spec.name: tool for tool in group.tools()}
    if how == "its deadline":
        tools["shell"] = WithDeadline(tools["shell"])
    scheduler = Scheduler(tools, listener=heard, clock=clock)
    command = "trap 'echo after; exit 1' TERM; echo before; seq 100000; while true; do sleep 0.02; done"
    results: list[ToolResult] = []
    async with anyio.create_task_group() as tasks:

        async def carry_out() -> None:
            calls = [ToolCall("1", "shell", {"command": command})]
            with suppress(anyio.get_cancelled_exc_class()):
                await scheduler.carry_out(calls, lambda result, _: results.append(result))

        tasks.start_soon(carry_out)
        await heard.something.wait()
        if how == "the call":
            assert scheduler.cancel("1")
        elif how == "the batch":
            scheduler.abort("it is over")
        clock.advance(10)
    (result,) = results
    assert result.is_error
    assert result.error_kind is (ToolErrorKind.TIMEOUT if how == "its deadline" else ToolErrorKind.CANCELLED)
    assert "before\n" in result.text
    assert result.text.rstrip().endswith("after")
    if how == "the batch":
        assert result.text.splitlines()[0].endswith("; the reason: it is over")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_native_cancellation_kills_at_once(tmp_path: Path):
    tools = shell(tmp_path, grace_s=30)
    task = asyncio.create_task(run(tools, "trap '' TERM; touch ready; while true; do sleep 0.05; done"))
    while not (tmp_path / "ready").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.1)
    assert not task.done()  # the grace
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 20  # and not the grace
    assert no_command_is_left()


async def test_an_agent_within_a_command_is_ended_with_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A command of a command has its own marker beside the one around it."""
    inner = f"{MARKER}=$${MARKER}:9-9-inner setsid sleep 100 & echo started; sleep 100".replace("$$", "$")
    with anyio.CancelScope() as scope:
        await run(shell(tmp_path), inner, Cancels(scope))
    assert no_command_is_left()


def test_commands_of_a_dead_owner_are_found_and_ended(monkeypatch: pytest.MonkeyPatch):
    """Under a marker of its own: what other programs have left is not this test's to end, and
    theirs is not to end what it has left.
    """
    wait = unlike_any_other()
    marker = f"{MARKER}_{wait.partition('.')[2]}"
    code = (
        "import os, subprocess; from monitor.tools.processes.process_table import owner_token\n"
        f"subprocess.Popen({wait.split()!r}, env={{{marker!r}: owner_token('x')}}, start_new_session=True,\n"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print('ready', flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ready\n", -signal.SIGKILL)
    monkeypatch.setattr(process_table, "MARKER", marker)
    assert [command_of(entry.pid) for entry in leftovers()] == [wait]
    assert end_leftovers() == 1
    assert is_running_no_more(wait)


async def test_commands_of_a_living_owner_are_no_leftovers(tmp_path: Path):
    async with shell(tmp_path) as tools:
        await run(tools, "sleep 100 &")
        living_ones = {entry.pid for entry in commands_left()}
        assert living_ones
        assert not living_ones & {entry.pid for entry in leftovers()}


async def test_without_a_process_table_the_group_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on macOS: no /proc, no descriptor of a process, and no namespace."""
    SANDBOX["sandbox"] = None
    with monkeypatch.context() as patched:
        patched.setattr(command, "_pidfd", lambda pid: -1)
        patched.setattr(descendants, "HAS_TABLE", False)
        patched.setattr(process_table, "HAS_TABLE", False)
        patched.setattr(command, "REAP_S", 0.2)  # nobody reaps an orphan in a container without an init
        patched.setattr(process_table, "living", lambda: iter(()))
        assert (await run(shell(tmp_path), "echo hi; exit 3")).data["exit_code"] == 3
        async with shell(tmp_path) as tools:
            answer = await run(tools, "sleep 100 > /dev/null & echo $!")
        late = await run(shell(tmp_path), "echo before; sleep 100 & sleep 100", jump(patched))
    assert is_gone(int(answer.text))
    assert (late.text, late.error_kind) == ("before\n", ToolErrorKind.TIMEOUT)


# --- in the background


async def test_a_silent_command_is_handed_over_and_can_be_read_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with shell(tmp_path, idle_s=100, timeout_s=2_000, longest_s=2_000) as tools:
        command = "echo listening; until test -e go; do sleep 0.02; done; echo request; sleep 100"
        answer = await run(tools, command, jump(monkeypatch))
        pid = answer.data["pid"]
        assert answer.text == "listening\n"
        assert answer.status is not None
        assert answer.status.startswith(f"still running, pid {pid}")
        assert "shell_wait" in answer.status
        assert "shell_kill" in answer.status
        (tmp_path / "go").touch()
        waited = await ask(tools.tools(), "shell_wait", pid=pid, timeout_s=0.1)
        while not waited.text:
            waited = await ask(tools.tools(), "shell_wait", pid=pid, timeout_s=0.1)
        assert waited.text == "request\n"
        assert waited.status is not None
        assert waited.status.startswith(f"still running, pid {pid}")
        killed = await ask(tools.tools(), "shell_kill", pid=pid)
        assert killed.status is not None
        assert killed.status.startswith("ended by shell_kill: ended by SIGTERM")
        assert tools.background == ()
        with pytest.raises(ToolError) as caught:
            await ask(tools.tools(), "shell_wait", pid=pid)
        assert caught.value.kind is ToolErrorKind.NOT_FOUND


async def test_an_abort_after_the_hand_over_leaves_the_process_until_the_run_ends(tmp_path: Path):
    async with shell(tmp_path, idle_s=0.1) as tools:
        with anyio.CancelScope() as scope:
            answer = await run(tools, "echo up; sleep 100")
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        pid = answer.data["pid"]
        assert not is_gone(pid, within_s=0)
    assert is_gone(pid)


async def test_the_exit_code_of_a_process_that_was_handed_over_is_told_once(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with shell(tmp_path, idle_s=0.1) as tools, anyio.create_task_group() as group:
        answer = await run(tools, "read < go; echo late; exit 5")
        group.start_soon(let_go, tmp_path / "go")
        waited = await ask(tools.tools(), "shell_wait", pid=answer.data["pid"], timeout_s=60)
        assert (waited.text, waited.data["exit_code"]) == ("late\n", 5)
        assert tools.background == ()


async def test_two_waits_for_one_process_take_turns(tmp_path: Path):
    async with shell(tmp_path, idle_s=0.1) as tools:
        answer = await run(tools, "sleep 100")
        waited: list[ToolAnswer] = []

        async def wait() -> None:
            waited.append(await ask(tools.tools(), "shell_wait", pid=answer.data["pid"], timeout_s=0.1))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait)
        assert [one.data for one in waited] == [{"pid": answer.data["pid"], "running": True}] * 2
        assert len(tools.background) == 1


async def test_a_background_process_that_nobody_reads_keeps_its_newest_output(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with shell(tmp_path, idle_s=0.1) as tools:
        answer = await run(tools, "read < go; seq 1 200000; echo last; touch written; sleep 100")
        await let_go(tmp_path / "go")
        with anyio.fail_after(60):
            while not await anyio.Path(tmp_path, "written").exists():  # noqa: ASYNC110
                await anyio.sleep(0.02)
        waited = await ask(tools.tools(), "shell_wait", pid=answer.data["pid"], timeout_s=0.1)
    assert waited.text.endswith("\nlast\n")
    assert waited.text.startswith("[the first ")
    assert len(waited.text) < 1_100_000


async def test_only_so_many_processes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shell_module, "BACKGROUND_MOST", 2)
    async with shell(tmp_path) as tools:
        await run(tools, "sleep 100 > /dev/null 2>&1 &")
        answer = await run(tools, "sleep 100 > /dev/null 2>&1 &")
        with pytest.raises(ToolError, match="shell_kill"):
            await run(tools, "true")
        await ask(tools.tools(), "shell_kill", pid=answer.data["background"][0])
        assert (await run(tools, "true")).data["exit_code"] == 0


async def test_two_runs_share_a_toolset_and_the_last_one_closes_it(tmp_path: Path):
    tools = shell(tmp_path)
    async with tools:
        async with tools:
            answer = await run(tools, "sleep 100 &")
        assert not is_gone(answer.data["background"][0], within_s=0.05)


async def test_closing_within_a_cancelled_scope_ends_everything(tmp_path: Path):
    with anyio.CancelScope() as scope:
        async with shell(tmp_path) as tools:
            await run(tools, "trap '' TERM; setsid sleep 100 & sleep 100 &")
            scope.cancel()
    assert no_command_is_left()


# --- output


async def test_output_comes_while_the_command_runs(tmp_path: Path):
    heard = Heard()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: ask(shell(tmp_path).tools(), "shell", heard, command="echo a; sleep 100"))
        with anyio.fail_after(60):
            await heard.something.wait()
        group.cancel_scope.cancel()
    assert heard.pieces == ["a\n"]


async def test_a_command_that_writes_too_much_is_ended_with_what_there_is(tmp_path: Path):
    answer = await run(shell(tmp_path, output_bytes=100_000), "yes")
    assert len(answer.text) == 100_000
    assert (answer.is_error, answer.error_kind) == (True, ToolErrorKind.EXECUTION_FAILED)
    assert answer.status is not None
    assert "100,000 bytes" in answer.status


HOSTILE = {
    "invalid UTF-8": (r"printf 'a\xff\xfeb'", "a\ufffd\ufffdb"),
    "NUL": (r"printf 'a\0b'", "ab"),
    "colours": (r"printf '\033[31mred\033[0m\n'", "red\n"),
    "a title and a link": (r"printf '\033]0;title\007\033]8;;http://x\033\\text\033]8;;\033\\'", "text"),
    "an escape at the end": (r"printf 'a\033'", "a"),
    "a progress bar": (r"printf '10%%\r50%%\r100%%\ndone\n'", "100%\ndone\n"),
    "lines of Windows": (r"printf 'a\r\nb\r\n'", "a\nb\n"),
    "a character in two writes": (r"printf '\xe2\x82'; sleep 0.05; printf '\xac'", "\u20ac"),
    "half a character at the end": (r"printf '\xe2\x82'", "\ufffd"),
    "one line of 1 MB": ("head -c 1000000 /dev/zero | tr '\\0' x", "x" * 1_000_000),
    "nothing": ("true", ""),
}


@pytest.mark.parametrize(("command", "read"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_output_is_read_as_on_a_screen(tmp_path: Path, command: str, read: str):
    assert (await run(shell(tmp_path), command)).text == read


async def test_no_line_of_a_long_output_is_lost(tmp_path: Path):
    answer = await run(shell(tmp_path), "seq 1 49999; echo 'error: here'; seq 50001 100000")
    assert answer.text.splitlines() == [*map(str, range(1, 50_000)), "error: here", *map(str, range(50_001, 100_001))]


async def test_the_number_of_failing_tests_is_data(tmp_path: Path):
    answer = await run(shell(tmp_path), "echo '== 2 failed, 3 passed, 1 error in 0.12s =='")
    assert answer.data["progress"] == 3


# --- where and with what it runs


async def test_nothing_is_read_from_a_terminal(tmp_path: Path):
    assert (await run(shell(tmp_path), "cat; read x; echo $?; tty")).text == "1\nnot a tty\n"


async def test_keys_of_services_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("LC_TIME", "C")
    tools = shell(tmp_path, env={"OWN": "1", "PAGER": "most"}, pass_env=["WANTED"], columns=77)
    lines = (await run(tools, "env")).text.splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert "sk-secret" not in values.values()
    assert (values["WANTED"], values["OWN"], values["PAGER"], values["GIT_PAGER"]) == ("yes", "1", "most", "cat")
    assert (values["TERM"], values["COLUMNS"], values["LC_TIME"]) == ("dumb", "77", "C")
    assert values["PATH"] == os.environ["PATH"]
    assert values["PWD"] == str(Workspace(tmp_path).root)


async def test_the_size_and_the_colours_of_the_terminal_are_options(tmp_path: Path):
    said = "echo $COLUMNS $LINES $TERM ${NO_COLOR:-colours} ${FORCE_COLOR:-none}; printf '\\033[31mred\\033[0m\\n'"
    plain = (await run(shell(tmp_path), said)).text
    assert plain == "120 50 dumb 1 none\nred\n"
    made = shell(tmp_path, columns=40, lines=10, colours=True)
    assert (await run(made, said)).text == "40 10 xterm-256color colours 1\nred\n"


@pytest.mark.parametrize("option", [{"columns": 0}, {"lines": -1}, {"lines": 1.5}])
def test_a_terminal_without_a_size_is_refused(option: dict[str, Any], tmp_path: Path):
    with pytest.raises(ConfigError, match="give a whole number above 0"):
        shell(tmp_path, **option)


@pytest.mark.feature("GT-09")
async def test_a_command_that_cannot_be_started_is_a_failure_of_the_shell(tmp_path: Path):
    with pytest.raises(ToolError, match="cannot be started") as caught:
        await run(shell(tmp_path, shell=["/nowhere/bash", "-c"]), "ls")
    assert caught.value.kind is ToolErrorKind.SHELL_FAILED


@pytest.mark.feature("GT-09")
async def test_a_directory_outside_of_the_workspace_is_refused(tmp_path: Path):
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "out").symlink_to(tmp_path)
    (inside / "sub").mkdir()
    tools = shell(inside)
    assert (await run(tools, "pwd", directory="sub")).text == f"{inside.resolve()}/sub\n"
    for directory in ("..", "out", "/", "sub/../.."):
        with pytest.raises(ToolError) as caught:
            await run(tools, "pwd", directory=directory)
        assert caught.value.kind is ToolErrorKind.OUTSIDE_WORKSPACE
    with pytest.raises(ToolError, match="does not exist"):
        await run(tools, "pwd", directory="nowhere")


@pytest.mark.parametrize("command", ["a\0b", "a\ud800b", "x" * 200_000], ids=["NUL", "surrogate", "too long"])
async def test_a_command_that_cannot_be_started_is_an_error_result(tmp_path: Path, command: str):
    with pytest.raises(ToolError, match="command"):
        await run(shell(tmp_path), command)


async def test_a_missing_shell_is_an_error_result(tmp_path: Path):
    with pytest.raises(ToolError, match="cannot be started"):
        await run(shell(tmp_path, shell=["/no/such/shell", "-c"]), "true")


# --- the group


def test_each_tool_can_be_off_and_says_what_it_is(tmp_path: Path):
    tools = {tool.spec.name: traits_of(tool) for tool in shell(tmp_path).tools()}
    assert {name: traits.kind for name, traits in tools.items()} == {
        "shell": "execute",
        "shell_wait": "read",
        "shell_write": "execute",
        "shell_kill": "execute",
    }
    key = tools["shell"].loop_key
    assert key is not None
    assert key({"command": "a", "timeout_s": 3}) == key({"command": "a", "timeout_s": 4}) != key({"command": "b"})
    assert [tool.spec.name for tool in shell(tmp_path, filter=["shell"]).tools()] == ["shell"]


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"idle_s": -1},
        {"grace_s": -1},
        {"output_bytes": 0},
        {"columns": 1.5},
        {"pass_env": "PATH"},
        {"shell": "bash"},
        {"longest_s": float("nan")},
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]):
    with pytest.raises(ConfigError):
        shell(tmp_path, **options)


def test_a_system_without_process_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="Linux or macOS"):
        shell(tmp_path)
