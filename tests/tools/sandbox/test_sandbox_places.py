"""Which folders a sandbox hides, shows and protects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from monitor.tools.sandbox.sandbox_places import Sandbox, SandboxPlaces, changed, places_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def places(workspace: Path, path: str = "", **options: object) -> SandboxPlaces:
    return places_of(workspace, Sandbox(**options), {"PATH": path})  # type: ignore[arg-type]


def git(*words: str | Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *map(str, words)], check=True)


def test_programs_in_the_home_are_seen_and_keys_are_not(home: Path, tmp_path: Path):
    for name in (".cargo/bin", ".pyenv/shims", ".ssh", "own/bin"):
        (home / name).mkdir(parents=True)
    (tmp_path / "work").mkdir()
    found = places(tmp_path / "work", f"{home}/own/bin:relative:{home}/.cargo/bin").read
    assert {home / ".cargo/bin", home / ".pyenv", home / "own/bin"} <= set(found)
    assert all(path.exists() for path in found)
    assert not {home, home / ".ssh", home / ".cargo", home / "own"} & set(found)


def test_no_repository_opens_a_path(home: Path, tmp_path: Path):
    """A worktree names its repository; what its `.git` says is not read."""
    git("init", "-q", home / "repository")
    git("-C", home / "repository", "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", home / "repository", "worktree", "add", "-q", tmp_path / "tree")
    assert not [path for path in places(tmp_path / "tree").read if (home / "repository") in (path, *path.parents)]
    assert tmp_path / "tree" / ".git" in places(tmp_path / "tree").protected
    assert home / "repository" in places(tmp_path / "tree", read=["~/repository"]).read


def test_repositories_within_are_protected(tmp_path: Path, home: Path):
    for name in ("a/b/.git", "a/node_modules/x/.git"):
        (tmp_path / name).mkdir(parents=True)
    found = places(tmp_path)
    assert tmp_path / "a/b/.git" in found.protected
    assert tmp_path / "a/node_modules/x/.git" not in found.protected


def test_what_may_be_written_is_not_protected(tmp_path: Path, home: Path):
    for name in (".git", ".vscode"):
        (tmp_path / name).mkdir()
    found = places(tmp_path, write=[".git"])
    assert found.protected == (tmp_path / ".vscode",)
    assert tmp_path / ".git" not in found.watched
    assert places(tmp_path, write=[".", ".."]).protected == (tmp_path / ".git", tmp_path / ".vscode")


@pytest.mark.parametrize("how", ["appears", "is replaced", "vanishes", "is edited"])
def test_a_change_of_what_runs_outside_is_noticed(tmp_path: Path, home: Path, how: str):
    file = tmp_path / "agent-monitor.toml"
    if how != "appears":
        file.write_text("a")
    found = places(tmp_path)
    before = found.state()
    match how:
        case "vanishes":
            file.unlink()
        case "is replaced":
            (tmp_path / "new").write_text("b")
            (tmp_path / "new").replace(file)
        case _:
            file.write_text("bb")
    assert changed(before, found.state()) == [file]
    assert changed(found.state(), found.state()) == []
