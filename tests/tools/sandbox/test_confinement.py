"""What confined commands cannot do, tried with real commands and canaries; and what still works."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.errors import ConfigError
from monitor.tools import Sandbox, SandboxFound, ShellTools, Workspace
from monitor.tools.processes.process_table import command_of, living
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox import bubblewrap, confinement
from tests.processes import (  # noqa: F401 - a fixture
    BUBBLEWRAP,
    LANDLOCK,
    ask,
    is_running_no_more,
    no_command_is_left,
    nothing_left,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

SECRET = "canary-7f3a"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace with a repository, a home with a key, and a secret in this environment."""
    workspace, home, outside = tmp_path / "work", tmp_path / "home", tmp_path / "outside"
    for folder in (workspace / ".git" / "hooks", workspace / "sub" / ".git", home / ".ssh", outside):
        folder.mkdir(parents=True)
    (home / ".ssh" / "key").write_text(SECRET)
    (outside / "secret").write_text(SECRET)
    (workspace / ".git" / "config").write_text("[core]\n")
    (workspace / "agent-monitor.toml").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CANARY", SECRET)
    monkeypatch.setattr(bubblewrap, "KEYS", ("/etc/shadow", str(outside / "secret")))
    yield workspace
    assert not (tmp_path / "written").exists()


def shell(place: Path, sandbox: Any = "required", **options: Any) -> ShellTools:
    return ShellTools(Workspace(place), sandbox=sandbox, grace_s=0.2, **options)


async def run(tools: ShellTools, line: str, **arguments: Any) -> ToolAnswer:
    return await ask(tools.tools(), "shell", command=line, **arguments)


FORBIDDEN = {
    "writing /etc": "touch /etc/zz && echo DONE",
    "writing /usr": "touch /usr/zz && echo DONE",
    "writing /sys": "touch /sys/zz && echo DONE",
    "reading the home": f"grep -r {SECRET} ~ && echo DONE",
    "listing the home": "ls -A ~/.ssh && echo DONE",
    "reading the home of the account": "ls -A $(getent passwd $(id -u) | cut -d: -f6)/.ssh && echo DONE",
    "writing .git": "touch .git/x && echo DONE",
    "moving .git": "mv .git g && echo DONE",
    "removing .git": "rm -rf .git && echo DONE",
    "a new .git": "rm -rf .git; mkdir .git && echo DONE",
    "a hook": "echo x > .git/hooks/pre-commit && echo DONE",
    "a worktree's config": "echo x > .git/config.worktree && echo DONE",
    "another common folder": "echo x > .git/commondir && echo DONE",
    "a config of a submodule": "mkdir -p .git/modules/x && echo x > .git/modules/x/config && echo DONE",
    "the .git of a repository within": "touch sub/.git/x && echo DONE",
    "moving the .git of a repository within": "mv sub/.git sub/g && echo DONE",
    "the settings of agent-monitor": "echo x > agent-monitor.toml && echo DONE",
    "moving these settings": "mv agent-monitor.toml a && echo DONE",
    "a symbolic link out": "ln -s /etc l && touch l/zz && echo DONE",
    "remounting the system": "mount -o remount,rw,bind / && echo DONE",
    "unmounting .git": "umount .git && echo DONE",
    "a device": "mknod d b 254 0 && echo DONE",
    "chroot": "chroot / true && echo DONE",
    "a namespace with its own mounts": "unshare -Urm mount -o remount,rw,bind / && echo DONE",
    "the kernel's settings": "(exec 3<>/proc/sys/kernel/core_pattern) && echo DONE",
    "the name of the host": "(exec 3<>/proc/sys/kernel/hostname) && echo DONE",
    "a controlling terminal": "(: < /dev/tty) && echo DONE",
    "the keys of the system": "grep -q . /etc/shadow && echo DONE",
    "the environment of the program": f"cat /proc/*/environ | tr '\\0' '\\n' | grep {SECRET} && echo DONE",
    "the environment of its parent": f"tr '\\0' '\\n' < /proc/$PPID/environ | grep {SECRET} && echo DONE",
    "the network": "timeout 2 bash -c 'echo > /dev/tcp/1.1.1.1/80' && echo DONE",
    "the network by UDP": "timeout 2 bash -c 'echo > /dev/udp/1.1.1.1/53' && echo DONE",
    "rights of another user": "! grep -q 'NoNewPrivs:.*1' /proc/self/status && echo DONE",
    "a block device": "ls /dev | grep -E '^(sd|vd|nvme|mem|kmsg)' && echo DONE",
}


@BUBBLEWRAP
@pytest.mark.parametrize("line", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_confined_command_cannot(place: Path, line: str):
    answer = await run(shell(place), f"({line}) 2>&1")
    assert "DONE" not in answer.text
    assert SECRET not in answer.text
    assert (place / ".git" / "config").read_text() == "[core]\n"


@BUBBLEWRAP
async def test_other_processes_are_neither_seen_nor_ended(place: Path):
    bystander = subprocess.Popen(["sleep", "71.25"])  # noqa: ASYNC220 - it is only looked at
    try:
        answer = await run(shell(place), "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -9 -1")
        assert "71.25" not in answer.text
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@BUBBLEWRAP
async def test_servers_of_this_machine_cannot_be_reached(place: Path, tmp_path: Path):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        named.bind(str(tmp_path / "outside" / "s"))
        named.listen()
        abstract.bind(f"\0{SECRET}")
        abstract.listen()
        port = server.getsockname()[1]
        program = (
            "import socket\n"
            f"for family, address in [(2, ('127.0.0.1', {port})), (1, {str(tmp_path / 'outside' / 's')!r}),"
            f" (1, '\\0{SECRET}')]:\n"
            "    try: socket.socket(family).connect(address); print('CONNECTED', address)\n"
            "    except OSError as error: print('no', error)\n"
        )
        (place / "p.py").write_text(program)
        answer = await run(shell(place), f"{sys.executable} -I -S p.py")
        assert "CONNECTED" not in answer.text
        assert answer.text.count("no [Errno") == 3
        own = f'{sys.executable} -I -S -c \'import socket as s; a = s.create_server(("127.0.0.1", 0));'
        answer = await run(shell(place), f'{own} s.create_connection(a.getsockname()); print("OWN")\'')
        assert answer.text == "OWN\n"
        answer = await run(shell(place, Sandbox(network=True, required=True)), f"{sys.executable} -I -S p.py")
        assert f"CONNECTED ('127.0.0.1', {port})" in answer.text


@BUBBLEWRAP
async def test_a_daemon_without_any_marker_ends_with_its_command(place: Path):
    answer = await run(shell(place), "(env -i setsid setsid sleep 71.26 &) ; sleep 0.1; echo $?")
    assert answer.text == "0\n"
    assert is_running_no_more("71.26")


@BUBBLEWRAP
async def test_what_works_outside_works_inside(place: Path):
    async with shell(place) as tools:
        assert (await run(tools, "echo a > f; cat f; echo $HOME; echo b > ~/kept; echo c > /tmp/kept")).text == (
            f"a\n{os.environ['HOME']}\n"
        )
        assert (await run(tools, "cat ~/kept /tmp/kept; cat <(echo sub); readlink /proc/self/cwd")).text == (
            f"b\nc\nsub\n{place}\n"
        )
        answer = await run(tools, f"{sys.executable} -I -S -c 'import sys; print(sys.prefix)'")
        assert answer.data["exit_code"] == 0
    assert (place / "f").read_text() == "a\n"
    assert not (place.parent / "home" / "kept").exists()


@BUBBLEWRAP
async def test_a_server_in_the_background_serves_until_the_run_ends_and_is_known_by_both_of_its_ids(place: Path):
    async with shell(place) as tools:
        answer = await run(tools, "sleep 71.27 & echo $!")
        (pid,) = answer.data["background"]
        assert command_of(pid) == "sleep 71.27"
        waited = await ask(tools.tools(), "shell_wait", pid=int(answer.text), timeout_s=0.05)
        assert waited.data["running"]
        killed = await ask(tools.tools(), "shell_kill", pid=int(answer.text))
        assert killed.status is not None
        assert killed.status.startswith("ended by shell_kill")
        assert tools.background == ()
    assert is_running_no_more("71.27")


@BUBBLEWRAP
async def test_a_sandbox_that_is_ended_from_outside_leaves_nothing(place: Path):
    async with shell(place, idle_s=0.1) as tools:
        answer = await run(tools, "trap '' TERM; sleep 71.28 & sleep 71.29; sleep 71.29")
        os.kill(answer.data["pid"], signal.SIGKILL)
        waited = await ask(tools.tools(), "shell_wait", pid=answer.data["pid"], timeout_s=60)
        assert waited.data["signal"] == "SIGKILL"
        assert is_running_no_more("71.28")


@BUBBLEWRAP
async def test_a_command_that_a_thread_has_started_outlives_that_thread(place: Path):
    tools = shell(place)
    answers: list[ToolAnswer] = []

    async def opened() -> None:
        await tools.__aenter__()
        answers.append(await run(tools, "sleep 71.3 &"))

    thread = threading.Thread(target=anyio.run, args=(opened,))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    (pid,) = answers[0].data["background"]
    await anyio.sleep(0.05)
    assert any(entry.pid == pid for entry in living())
    await tools.__aexit__(None, None, None)
    assert is_running_no_more("71.3")


@BUBBLEWRAP
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_sandbox_outlives_a_program_that_is_killed(place: Path):
    program = (
        "import anyio, os, sys\n"
        "from monitor.chunks import ToolCall\n"
        "from monitor.tools import ShellTools, ToolContext, Workspace\n"
        "async def main():\n"
        f"    async with ShellTools(Workspace({str(place)!r}), sandbox='required') as tools:\n"
        "        shell = tools.tools()[0]\n"
        "        context = ToolContext(ToolCall('1', 'shell', {}))\n"
        "        await shell.call({'command': '(env -i setsid sleep 71.31 &) ; sleep 0.1'}, context)\n"
        "        os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )
    done = await anyio.run_process([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert is_running_no_more("71.31")


@BUBBLEWRAP
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_thirty_two_commands_at_once_leave_nothing(place: Path):
    async with shell(place) as tools, anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(run, tools, f"echo {number} > f{number}; sleep 71.32 &")
            group.start_soon(anyio.lowlevel.checkpoint)
        group.cancel_scope.shield = True
        while len(os.listdir(place)) < 16 + 4:  # noqa: ASYNC110, PTH208 - few files
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert no_command_is_left()
    assert is_running_no_more("71.32")


@BUBBLEWRAP
async def test_a_cancelled_start_leaves_no_sandbox(place: Path):
    for _ in range(2):
        with anyio.move_on_after(0) as scope:
            await run(shell(place), "env -i setsid sleep 71.33 & sleep 71.33")
            await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
    assert is_running_no_more("71.33")


# --- the workspace


@BUBBLEWRAP
@pytest.mark.parametrize("name", ["with blanks", "-dash", "line\nbreak", "quote'\"", "umlaut-ä"])
async def test_a_workspace_of_any_name_can_be_confined(tmp_path: Path, name: str):
    place = tmp_path / name
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    assert (await run(shell(tmp_path / "link"), "echo a > f && pwd -P")).text == f"{place}\n"
    assert (place / "f").read_text() == "a\n"


@BUBBLEWRAP
async def test_nothing_is_left_in_the_workspace_by_a_sandbox(tmp_path: Path):
    (tmp_path / "a").write_text("")
    await run(shell(tmp_path), "true")
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208 - names are wanted


@BUBBLEWRAP
async def test_what_appears_where_programs_outside_would_run_it_is_said(tmp_path: Path):
    answer = await run(shell(tmp_path), "mkdir -p .git/hooks; echo x > .envrc")
    assert answer.status is not None
    assert "may run programs outside of the sandbox: .git, .envrc" in answer.status
    harmless = await run(shell(tmp_path), "echo x > f")
    assert harmless.status is not None
    assert "outside" not in harmless.status


@BUBBLEWRAP
async def test_a_failed_command_says_what_it_could_not_do(place: Path):
    answer = await run(shell(place), "touch .git/x")
    assert answer.status is not None
    assert "no network, an empty home" in answer.status
    (tool, *_) = shell(place).tools()
    assert "no network" in tool.spec.description
    (tool, *_) = shell(place, None).tools()
    assert "no network" not in tool.spec.description


@BUBBLEWRAP
async def test_paths_that_are_given_are_written_and_read(place: Path, tmp_path: Path):
    given = Sandbox(write=[".git", tmp_path / "outside"], read=["~/.ssh"], env=["CANARY"], required=True)
    answer = await run(shell(place, given), f"echo x > .git/x; echo x > {tmp_path}/outside/x; cat ~/.ssh/key; env")
    assert answer.data["exit_code"] == 0
    assert (place / ".git" / "x").exists()
    assert (tmp_path / "outside" / "x").exists()
    assert answer.text.startswith(SECRET)
    assert f"CANARY={SECRET}" in answer.text


@BUBBLEWRAP
async def test_git_commits_where_that_is_allowed(tmp_path: Path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    await anyio.run_process(["git", "init", "-q", str(tmp_path)])
    line = "echo a > f; git status --short; git add f && git -c user.name=a -c user.email=a@b commit -qm x && echo OK"
    denied = await run(shell(tmp_path), line)
    assert denied.text.startswith("?? f\n")
    assert "OK" not in denied.text
    assert (await run(shell(tmp_path, Sandbox(write=[".git"])), line)).text.endswith("OK\n")


@BUBBLEWRAP
async def test_a_home_that_the_workspace_holds_is_said_to_be_open(place: Path):
    tools = shell(place.parent / "home")
    assert tools.sandbox is not None
    assert "the home is not hidden" in tools.sandbox.detail
    assert (await run(tools, "cat .ssh/key")).text == SECRET


# --- the choice


@BUBBLEWRAP
async def test_each_choice_does_what_it_says_in_one_program(place: Path):
    for choice, seen in ((None, SECRET), ("auto", ""), (None, SECRET), ("required", "")):
        assert (await run(shell(place, choice), "cat ~/.ssh/key 2> /dev/null")).text == seen
    assert shell(place, None).sandbox is None
    assert shell(place).sandbox == SandboxFound("bubblewrap", "")


@BUBBLEWRAP
async def test_a_sandbox_that_cannot_be_made_is_an_error_and_the_command_does_not_run(place: Path, tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    tools = shell(place, Sandbox(write=[gone], required=True))
    gone.rmdir()
    with pytest.raises(Exception, match=r"could not be made, and it did not run: bwrap: .*gone"):
        await run(tools, "echo x > f")
    assert not (place / "f").exists()
    assert (await run(shell(place), "exit 1")).data["exit_code"] == 1  # which bubblewrap says too


def nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "program", lambda workspace=None: None)
    monkeypatch.setattr(confinement, "version", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")


async def test_without_any_sandbox_a_command_runs_and_what_is_open_is_known(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    nothing_works(monkeypatch)
    tools = shell(place, "auto")
    assert tools.sandbox is not None
    assert tools.sandbox.kind == "none"
    assert "bubblewrap is not installed" in tools.sandbox.detail
    assert "can read the environment of this program" in tools.sandbox.detail
    assert (await run(tools, "echo hi")).text == "hi\n"


def test_a_required_sandbox_that_is_not_there_is_an_error_before_the_first_command(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bubblewrap, "program", lambda workspace=None: None)
    for choice in ("required", Sandbox(required=True)):
        with pytest.raises(ConfigError, match="sandbox='auto'"):
            shell(place, choice)


def test_the_whole_system_is_no_workspace(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="/ cannot be confined"):
        shell(Path("/"))
    found = shell(Path("/"), "auto").sandbox
    assert found is not None
    assert found.kind == "none"


@pytest.mark.parametrize("choice", ["on", True, 1, Sandbox])
def test_another_choice_is_refused(place: Path, choice: Any):
    with pytest.raises(ConfigError, match="sandbox="):
        shell(place, choice)


@pytest.mark.parametrize("options", [{"write": "a"}, {"read": Path("a")}, {"env": "A"}, {"network": "yes"}])
def test_options_of_another_type_are_refused(options: Any):
    with pytest.raises(ConfigError, match="Sandbox"):
        Sandbox(**options)


def test_a_path_that_does_not_exist_is_refused(place: Path):
    with pytest.raises(ConfigError, match="name a path that exists"):
        shell(place, Sandbox(write=["../nowhere"]))


# --- Landlock


@pytest.fixture
def landlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "program", lambda workspace=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # it does not hold root, and is not chosen for it


LANDLOCK_FORBIDDEN = {
    "writing outside": "touch ../written && echo DONE",
    "writing /etc": "touch /etc/zz && echo DONE",
    "reading the home": "cat $OLD/.ssh/key && echo DONE",
    "listing the home": "ls -A $OLD && echo DONE",
    "the environment of the program": f"cat /proc/*/environ | tr '\\0' '\\n' | grep {SECRET} && echo DONE",
    "mounting": "mount -t tmpfs x /mnt && echo DONE",
}


@LANDLOCK
@pytest.mark.usefixtures("landlocked")
@pytest.mark.parametrize("line", LANDLOCK_FORBIDDEN.values(), ids=LANDLOCK_FORBIDDEN.keys())
async def test_landlock_keeps_a_command_from(place: Path, line: str):
    tools = shell(place, "auto", env={"OLD": os.environ["HOME"]})
    answer = await run(tools, f"({line}) 2>&1")
    assert "DONE" not in answer.text
    assert SECRET not in answer.text
    assert tools.sandbox is not None
    assert tools.sandbox.kind == "landlock"
    assert ".git can be written" in tools.sandbox.detail


@LANDLOCK
@pytest.mark.usefixtures("landlocked")
async def test_under_landlock_commands_work_and_this_program_stays_free(place: Path, tmp_path: Path):
    tools = shell(place, "auto")
    answer = await run(tools, "echo a > f; cat f; echo b > $TMPDIR/b; cat $TMPDIR/b; ls -A ~; : > /dev/null; echo $?")
    assert answer.text == "a\nb\n0\n"
    (tmp_path / "after").write_text("written by this program")
    with pytest.raises(Exception, match="there is no"):
        await run(shell(place, "auto", shell=["/no/such/shell", "-c"]), "true")
    async with tools:
        left = await run(tools, "setsid sleep 71.34 & sleep 0.05")
        assert left.data["background"]
    assert is_running_no_more("71.34")
