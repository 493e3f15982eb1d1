"""Real git in repositories that a model wrote: a line that nobody is asked about runs nothing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import ToolCall
from monitor.testing import FakeClock
from monitor.tools import Approval, Rules, Scheduler, ShellTools, Workspace
from monitor.tools.approvals.approval import Approvals
from monitor.tools.approvals.judged_call import JudgedCall, deciding_files
from monitor.tools.approvals.known_commands import KNOWN_COMMANDS
from monitor.tools.base import NO_LISTENER, NO_RUN, CallPlace
from monitor.tools.processes.command import OVERRULING, environment
from monitor.tools.registry import Registry
from tests.tools.approvals.test_known_commands import MORE, USUAL

COMMANDS = [" ".join(words) for words, table in KNOWN_COMMANDS.items() if table.git]
ALLOWS = Rules([{"tool": "shell", "command": COMMANDS, "decision": "allow"}])

PROGRAMS = (
    "core.fsmonitor", "core.hooksPath", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy",
    "core.askPass", "diff.external", "core.alternateRefsCommand", "filter.x.clean", "filter.x.smudge",
    "filter.x.process", "diff.x.textconv", "diff.x.command", "gpg.program", "gpg.ssh.program",
    "gpg.ssh.defaultKeyCommand", "gpg.openpgp.program", "gpg.x509.program", "alias.log", "alias.status",
    "pager.log", "pager.branch", "pager.tag", "credential.helper", "sequence.editor", "interactive.diffFilter",
    "trailer.x.command", "remote.origin.uploadpack", "remote.origin.vcs", "merge.x.driver",
    "uploadpack.packObjectsHook",
)  # fmt: skip
"""Settings that name a program."""
OTHERS = {
    "log.showSignature": "true", "format.pretty": "evil", "pretty.evil": "%G? %GS %h", "submodule.recurse": "true",
    "remote.origin.promisor": "true", "extensions.partialClone": "origin", "core.repositoryFormatVersion": "1",
    "diff.submodule": "log", "status.submoduleSummary": "true", "filter.x.required": "true", "column.ui": "always",
    "protocol.ext.allow": "always", "core.untrackedCache": "true",
}  # fmt: skip
HOOKS = ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "pre-auto-gc", "commit-msg")


def git(folder: Path, *words: str, text: str | None = None) -> str:
    home = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}
    named = ["-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(
        ["git", *named], cwd=folder, env=home, input=text, capture_output=True, text=True, check=True
    ).stdout.strip()


class Hostile:
    """A repository with a history, whose every setting names a program that leaves a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder.parent / "RAN"
        self.program = folder.parent / "evil"
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        for number in range(2):
            (folder / "a.txt").write_text(f"a{number}\n")
            git(folder, "add", "-A")
            git(folder, "commit", "-qm", f"{number}")
        git(folder, "tag", "-am", "x", "v1")
        (folder / "a.txt").write_text("stashed\n")
        git(folder, "stash", "-q")
        signed = git(folder, "cat-file", "commit", "HEAD").replace("\n\n", f"\ngpgsig {SIGNATURE}\n\n", 1)
        git(
            folder,
            "update-ref",
            "HEAD",
            git(folder, "hash-object", "-t", "commit", "-w", "--stdin", text=f"{signed}\n"),
        )
        self.program.write_text(f"#!/bin/sh\necho ran >> {shlex.quote(str(self.mark))}\ncat\n")
        self.program.chmod(0o755)

    @property
    def settings(self) -> str:
        values = {**dict.fromkeys(PROGRAMS, str(self.program)), "remote.origin.url": f"ext::{self.program}", **OTHERS}
        lines = []
        for name, value in values.items():
            section, _, key = name.rpartition(".")
            first, _, second = section.partition(".")
            lines.append(f"[{first}{f' {chr(34)}{second}{chr(34)}' if second else ''}]\n\t{key} = {value}\n")
        return "".join(lines)

    def arm(self) -> None:
        """Attributes, hooks, and a file whose content has to be compared."""
        own = self.folder / ".git"
        for hooks in (own / "hooks", own / "evil-hooks"):
            hooks.mkdir(exist_ok=True)
            for name in HOOKS:
                (hooks / name).write_text(self.program.read_text())
                (hooks / name).chmod(0o755)
        (self.folder / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
        (own / "info").mkdir(exist_ok=True)
        (own / "info" / "attributes").write_text("* filter=x diff=x\n")
        os.utime(self.folder / "a.txt", (1, 1))


SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"


def plainly(hostile: Hostile) -> Path:
    with (hostile.folder / ".git" / "config").open("a") as file:
        file.write(hostile.settings)
    return hostile.folder


def included(hostile: Hostile) -> Path:
    (hostile.folder / "more").write_text(hostile.settings)
    with (hostile.folder / ".git" / "config").open("a") as file:
        file.write('[include]\n\tpath = ../more\n[includeIf "gitdir:**"]\n\tpath = ../more\n')
    return hostile.folder


def with_carriage_returns(hostile: Hostile) -> Path:
    with (hostile.folder / ".git" / "config").open("a") as file:
        file.write(re.sub(r"\]\n\t", "] ", hostile.settings).replace("\n", " \r\n"))
    return hostile.folder


def of_a_worktree(hostile: Hostile) -> Path:
    git(hostile.folder, "config", "extensions.worktreeConfig", "true")
    (hostile.folder / ".git" / "config.worktree").write_text(hostile.settings)
    return hostile.folder


def behind_a_file(hostile: Hostile) -> Path:
    plainly(hostile)
    beside = hostile.folder / "beside"
    beside.mkdir()
    (beside / ".git").write_text("gitdir: ../.git  \n".rstrip(" "))
    return beside


def with_a_common_folder(hostile: Hostile) -> Path:
    plainly(hostile)
    own = hostile.folder / "own "
    own.mkdir()
    (own / "commondir").write_text("../.git")
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (hostile.folder / "linked").mkdir()
    (hostile.folder / "linked" / ".git").write_text("gitdir: ../own \n")
    return hostile.folder / "linked"


def bare_inside(hostile: Hostile) -> Path:
    plainly(hostile)
    (hostile.folder / ".git").rename(hostile.folder / "sub")
    (hostile.folder / "sub" / "config").write_text(f"[core]\n\tbare = true\n{hostile.settings}")
    (hostile.folder / ".git").mkdir()  # so that `arm` has a place
    return hostile.folder / "sub"


def as_a_submodule(hostile: Hostile) -> Path:
    above = hostile.folder.parent / "above"
    above.mkdir()
    git(above, "init", "-q", "-b", "main")
    hostile.arm()
    plainly(hostile)
    hostile.folder.rename(above / "module")
    git(above, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    hostile.folder.mkdir()
    (hostile.folder / ".git").mkdir()
    (hostile.folder / "a.txt").touch()
    return above


def without_objects(hostile: Hostile) -> Path:
    """What is missing would be fetched, by a program that the repository names."""
    lost = git(hostile.folder, "rev-parse", "HEAD:a.txt", "HEAD~1:a.txt", "HEAD^{tree}").split()
    for name in lost:
        (hostile.folder / ".git" / "objects" / name[:2] / name[2:]).unlink(missing_ok=True)
    return plainly(hostile)


FORMS: tuple[Callable[[Hostile], Path], ...] = (
    plainly, included, with_carriage_returns, of_a_worktree, behind_a_file, with_a_common_folder, bare_inside,
    as_a_submodule, without_objects,
)  # fmt: skip
OWN = (
    "git log", "git log --oneline -3 --graph --all --decorate", "git log --format='%h %G? %GS'", "git log -g",
    "git log -- a.txt", "git log --follow a.txt", "git shortlog -sn HEAD", "git reflog", "git branch -av", "git tag -n",
    "git tag", "git remote -v", "git stash list", "git rev-parse HEAD", "git rev-parse --show-toplevel",
    "git rev-list --count HEAD", "git rev-list --objects --all", "git ls-files", "git ls-files -d", "git ls-files -o",
    "git ls-files -s", "git ls-tree -r HEAD", "git describe --tags --always", "git grep -n a", "git grep -n a HEAD",
    "git grep --cached a", "git grep --untracked a", "git merge-base HEAD HEAD~1", "git show-ref",
    "git cat-file -p HEAD:a.txt", "git cat-file -t HEAD", "git log -1 --format=%B",
    "git status", "git diff", "git diff --cached", "git diff HEAD~1", "git log -p", "git log --stat", "git show",
    "git show HEAD:a.txt", "git blame a.txt", "git add -A", "git commit -m x", "git ls-files -m",
    "git describe --dirty",
)  # fmt: skip


def unasked(root: Path) -> Iterator[str]:
    """The lines that pass where nothing confines them."""
    place = CallPlace(root, root, overrules=True)
    for line in dict.fromkeys(
        [*OWN, *(line for line in (*USUAL, *MORE) if line.startswith("git") and "\0" not in line)]
    ):
        ruling = ALLOWS.ruling(JudgedCall("shell", {"command": line}, "execute", "command", place))
        if ruling is not None and ruling.decision == "allow":
            yield line


def run(line: str, folder: Path, *, overruled: bool) -> None:
    variables = {**environment(env_of_nobody()), **(OVERRULING if overruled else {})}
    subprocess.run(["bash", "-c", line], cwd=folder, env=variables, capture_output=True, timeout=20, check=False)


def env_of_nobody() -> dict[str, str]:
    return {"HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_line_that_nobody_is_asked_about_runs_nothing_that_the_model_wrote(form: Any, tmp_path: Path):
    hostile = Hostile(tmp_path / "work")
    folder = form(hostile)
    hostile.arm()
    lines = [*unasked(tmp_path)]
    assert len(lines) > 30
    for line in lines:
        run(line, folder, overruled=True)
        assert not hostile.mark.exists(), line


def test_without_the_environment_they_run_it(tmp_path: Path):
    """Else the test above would hold whatever the environment said."""
    hostile = Hostile(tmp_path / "work")
    folder = plainly(hostile)
    hostile.arm()
    ran = 0
    for line in OWN:
        run(line, folder, overruled=False)
        ran += hostile.mark.exists()
        hostile.mark.unlink(missing_ok=True)
    assert ran > 15


def test_what_filters_can_reach_is_asked_about_where_no_sandbox_is(tmp_path: Path):
    hostile = Hostile(tmp_path / "work")
    folder = plainly(hostile)
    hostile.arm()
    asked = set(OWN) - {*unasked(tmp_path)}
    ran = set()
    for line in OWN:
        run(line, folder, overruled=True)
        if hostile.mark.exists():
            ran.add(line)
        hostile.mark.unlink(missing_ok=True)
    assert ran <= asked
    assert {"git status", "git diff", "git log -p", "git show", "git blame a.txt", "git add -A"} <= ran


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop"])
def test_judging_a_line_opens_no_file_that_waits_or_never_ends(kind: str, tmp_path: Path):
    hostile = Hostile(tmp_path / "work")
    settings = hostile.folder / ".git" / "config"
    settings.unlink()
    if kind == "fifo":
        os.mkfifo(settings)
    elif kind == "folder":
        settings.mkdir()
    else:
        settings.symlink_to("/dev/zero" if kind == "device" else settings)
    for line in ("git log", "git status", f"bash {settings}", f"cat {settings} > {settings}", "bash .git/con*"):
        place = CallPlace(hostile.folder, hostile.folder, overrules=True)
        call = JudgedCall("shell", {"command": line}, "execute", "command", place)
        ALLOWS.ruling(call)
        assert set(deciding_files(call).values()) <= {"unreadable", "missing"}, line


@pytest.mark.anyio
async def test_the_shell_sets_the_environment_for_what_a_rule_allows_and_for_nothing_else(tmp_path: Path):
    workspace = Workspace(tmp_path)

    async def yes(_: object) -> bool:
        return True

    rules = Rules([{"tool": "shell", "command": "printenv", "decision": "allow"}])
    gate = Approvals(
        Approval(mode="default", rules=rules), yes, run=NO_RUN, run_id="r", listener=NO_LISTENER, clock=FakeClock()
    )
    scheduler = Scheduler(Registry([ShellTools(workspace, sandbox=None)]), gate=gate)
    said = []
    for line in ("printenv GIT_ALLOW_PROTOCOL", "printenv GIT_ALLOW_PROTOCOL; exit 0"):
        (result,) = await scheduler.carry_out([ToolCall("c", "shell", {"command": line})])
        said.append(result.text.splitlines()[-1])
    assert said[0] == "none"
    assert "none" not in said[1]
