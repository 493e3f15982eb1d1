"""Commands in the background that are given input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.approvals.judged_call import judged
from monitor.tools.approvals.rules import Rules
from monitor.tools.registry import Registry
from monitor.tools.shell.shell_tools import ShellTools
from monitor.tools.workspace import Workspace
from tests.processes import BUBBLEWRAP, ask, nothing_left  # noqa: F401 - a fixture

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.anyio, pytest.mark.feature("GT-12")]


@pytest.fixture(params=["plain", pytest.param("in a sandbox", marks=BUBBLEWRAP)])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> ShellTools:
    return ShellTools(Workspace(tmp_path), sandbox=None if request.param == "plain" else "required", grace_s=0.1)


async def begun(shell: ShellTools, command: str) -> tuple[int, str]:
    answer = await ask(shell.tools(), "shell", command=command, background=True)
    assert "still running" in (answer.status or "")
    return answer.data["pid"], answer.text


async def read_on(shell: ShellTools, pid: int, text: str, wanted: str) -> str:
    """`text` with what the command writes, until all that is wanted is there."""
    for _ in range(100):
        if len(text) >= len(wanted):
            break
        text += (await ask(shell.tools(), "shell_wait", pid=pid, timeout_s=0.2)).text
    return text


async def test_a_running_command_is_written_to_read_and_ended(shell: ShellTools):
    async with shell:
        pid, text = await begun(shell, 'echo ready; while read -r line; do echo "got $line"; done')
        wanted = "ready\n"
        for word in ("one", "two"):
            answer = await ask(shell.tools(), "shell_write", pid=pid, text=f"{word}\n")
            assert answer.data["running"]
            wanted += f"got {word}\n"
            text = await read_on(shell, pid, text + answer.text, wanted)
            assert text == wanted
        ended = await ask(shell.tools(), "shell_kill", pid=pid)
        assert "ended by shell_kill" in (ended.status or "")
        assert shell.background == ()


async def test_the_end_of_the_input_ends_a_command_that_reads_it(shell: ShellTools):
    async with shell:
        pid, _ = await begun(shell, "cat; echo over; exit 3")
        answer = await ask(shell.tools(), "shell_write", pid=pid, text="all", end=True, timeout_s=60)
        assert answer.text == "allover\n"
        assert (answer.status or "").startswith("exit code 3")
        with pytest.raises(ToolError) as caught:
            await ask(shell.tools(), "shell_write", pid=pid, text="more")
        assert caught.value.kind is ToolErrorKind.NOT_FOUND


async def test_a_command_that_does_not_read_takes_what_fits_and_the_answer_says_so(shell: ShellTools):
    async with shell:
        pid, _ = await begun(shell, "exec sleep 60")
        answer = await ask(shell.tools(), "shell_write", pid=pid, text="x" * 300_000, timeout_s=0.2)
        assert "of 300,000 bytes and reads no more" in (answer.status or "")
        assert answer.data["running"]


async def test_a_command_without_input_is_not_written_to(shell: ShellTools):
    async with shell:
        answer = await ask(shell.tools(), "shell", command="sleep 60 & echo here")
        pid = answer.data["background"][0]
        with pytest.raises(ToolError, match="start it with background"):
            await ask(shell.tools(), "shell_write", pid=pid, text="x")


async def test_a_command_that_ends_at_once_is_answered_as_any_other(shell: ShellTools):
    async with shell:
        answer = await ask(shell.tools(), "shell", command="echo no; exit 2", background=True)
        assert (answer.text, shell.background) == ("no\n", ())
        assert (answer.status or "").startswith("exit code 2")


async def test_nothing_runs_in_the_background_of_tools_that_are_not_open(shell: ShellTools):
    with pytest.raises(ToolError, match="nothing can run in the background"):
        await ask(shell.tools(), "shell", command="cat", background=True)


# --- approval


def ruling(place: Path, rules: str, name: str, /, **arguments: Any) -> tuple[str, bool]:
    entry = Registry([ShellTools(Workspace(place), sandbox=None)]).entry(name)
    found = Rules.parse(rules).ruling(judged(entry, arguments))
    return (found.decision, found.unsure) if found is not None else ("nothing", False)


DENY = '[[rules]]\nname = "no pushes"\ntool = "shell"\ncommand = "git push"\ndecision = "deny"\n'
ALLOW = '[[rules]]\nname = "lists"\ntool = "shell*"\ncommand = "ls"\ndecision = "allow"\n'


def test_what_may_not_be_run_may_not_be_written_to_a_program_either(tmp_path: Path):
    assert ruling(tmp_path, DENY, "shell_write", pid=1, text="git push\n") == ("deny", False)
    assert ruling(tmp_path, DENY, "shell_write", pid=1, text="sh\n") == ("ask", True)  # what came before is not known


def test_what_may_be_run_may_not_be_written_unasked(tmp_path: Path):
    assert ruling(tmp_path, ALLOW, "shell", command="ls") == ("allow", False)
    assert ruling(tmp_path, ALLOW, "shell", command="ls", background=True) == ("ask", False)
    assert ruling(tmp_path, ALLOW, "shell_write", pid=1, text="ls")[0] != "allow"
