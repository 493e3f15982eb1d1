"""What the page says of a sandbox is what attacks on it find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.errors import ConfigError
from monitor.tools import Sandbox, ShellTools, Workspace
from tests.processes import BUBBLEWRAP, ask
from tests.tools.sandbox.attacks import ATTACKS, BEGIN, COLUMNS, END, PAGE, findings


@pytest.fixture
def anyio_backend() -> str:
    """Once is enough: the event loop has no part in it."""
    return "asyncio"


def said() -> dict[str, dict[str, str]]:
    """By attack and column, what the page says."""
    rows = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    head, _, *lines = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    return {name: dict(zip(head[1:], line[1:], strict=True)) for line in lines for name in line[0].split(", ")}


@pytest.mark.anyio
async def test_the_page_says_no_more_than_the_attacks_find():
    page = said()
    assert set(page) == set(ATTACKS)
    for column, found in (await findings()).items():
        assert column in COLUMNS
        claims = {attack for attack in ATTACKS if page[attack].get(column) == "no"}
        if os.getuid() == 0 and column != "Landlock":
            claims -= {"exceed processes"}  # the kernel does not hold root to it
        assert claims & {attack for attack, reached in found.items() if reached} == set(), column


# --- what is confined does not decide what is confined

TRICKS = {
    "a hooks path": "git init -q sub; git -C sub config core.hooksPath {home}",
    "a nested file .git": "mkdir sub; echo 'gitdir: {home}/.ssh' > sub/.git",
    "a nested link .git": "mkdir sub; ln -s {home} sub/.git; ln -s ../home .vscode",
    "commondir": "mkdir -p sub/.git; printf '{home}\\r\\n' > sub/.git/commondir",
    "a link for settings": "ln -s ../home/.ssh .claude; ln -s ../home .envrc; ln -s ../home .mcp.json",
    "another folder for a repository": "mkdir -p d/.git && mv d e && ln -s ../home d",
    "a replaced .git": "rm -rf .git; mv .git g; ln -s ../home .git",
    "a link to the modules": "mkdir -p .git/modules; ln -s {home} .git/modules/x; ln -s ../home node_modules",
}


@BUBBLEWRAP
@pytest.mark.anyio
@pytest.mark.parametrize("has_git", [False, True])
@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
async def test_nothing_in_the_workspace_widens_a_later_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trick: str, has_git: bool
):
    home, place = tmp_path / "home", tmp_path / "work"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "key").write_text("canary")
    (place / ".git" if has_git else place).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    box = ShellTools(Workspace(place), sandbox="required")
    await ask(box.tools(), "shell", command=trick.format(home=home))
    look = f"ls -A {home} {home}/.ssh; cat {home}/.ssh/key; grep -rs canary . /tmp {home}; touch {home}/x"
    for later in (box, ShellTools(Workspace(place), sandbox="required")):
        answer = await ask(later.tools(), "shell", command=look)
        assert "canary" not in answer.text
        assert "key" not in answer.text.replace("/key", "")
    assert sorted(os.listdir(home)) == [".ssh"]  # noqa: PTH208 - names are wanted


def test_a_named_path_that_became_a_link_is_refused_with_what_to_type(tmp_path: Path):
    place = tmp_path / "work"
    place.mkdir()
    (place / "data").symlink_to(tmp_path)
    for sandbox in (Sandbox(read=["data"]), Sandbox(write=["data"])):
        with pytest.raises(ConfigError, match=rf"write Sandbox\((read|write)=\['{tmp_path}'\]\)"):
            ShellTools(Workspace(place), sandbox=sandbox)
