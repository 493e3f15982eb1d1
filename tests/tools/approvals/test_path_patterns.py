"""A rule about a path means the place, however it is spelt."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from monitor.tools import FileTools, Rules, ShellTools, Workspace
from monitor.tools.approvals.judged_call import judged
from monitor.tools.approvals.path_patterns import may_hold
from monitor.tools.registry import Registry

DENIES = Rules(
    [{"tool": "*", "arguments": {"path": pattern}, "decision": "deny"} for pattern in (".env", "secrets/*", "*.pem")]
)
ALLOWS = Rules(
    [{"tool": "*", "arguments": {"path": pattern}, "decision": "allow"} for pattern in ("docs/*", "README.md")]
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in (".env", "secrets/key", "docs/a.md", "main.py", "README.md", "certs/x.pem", "a/b.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "link").symlink_to(".env")
    (tmp_path / "folder").symlink_to("secrets")
    (tmp_path / "docs" / "out").symlink_to("../main.py")
    (tmp_path / "docs" / "up").symlink_to("..")
    return tmp_path


def ruled(rules: Rules, place: Path, name: str, arguments: dict[str, Any]) -> str | None:
    workspace = Workspace(place)
    entry = Registry([FileTools(workspace), ShellTools(workspace)]).entry(name)
    filled = {
        key: value.replace("ROOT", str(place)) if isinstance(value, str) else value for key, value in arguments.items()
    }
    ruling = rules.ruling(judged(entry, filled))
    return None if ruling is None else "unsure" if ruling.unsure else ruling.decision


@pytest.mark.parametrize(
    "path",
    [".env", "./.env", "a/../.env", "a/.././.env", "ROOT/.env", "ROOT/a/../.env", ".//.env", "link", "./link",
     "a/../link", "secrets/key", "secrets/../secrets/key", "folder/key", "./folder/key", "docs/up/.env",
     "docs/up/secrets/key", "certs/x.pem", "ROOT/secrets/key", "missing/../.env", "secrets/new", "folder/new",
     "docs/up/link", ".ENV"],
)  # fmt: skip
def test_a_refused_path_is_refused_however_it_is_spelt(path: str, place: Path):
    assert ruled(DENIES, place, "read_file", {"path": path}) == "deny"
    assert ruled(DENIES, place, "write_file", {"path": path, "content": "x"}) == "deny"
    assert ruled(DENIES, place, "shell", {"command": f"cat {path}"}) == "deny"


@pytest.mark.parametrize("path", ["main.py", "a/b.txt", "docs/a.md", ".environment", "secret", "x.pem.txt"])
def test_another_path_is_not_refused(path: str, place: Path):
    assert ruled(DENIES, place, "read_file", {"path": path}) is None
    assert ruled(DENIES, place, "shell", {"command": f"cat {path}"}) is None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("docs/a.md", True), ("./docs/a.md", True), ("ROOT/docs/a.md", True), ("docs/new.md", True), ("README.md", True),
     ("docs/../README.md", True), ("docs/../main.py", False), ("docs/out", False), ("docs/up/main.py", False),
     ("main.py", False), ("docs/../../x", False), ("/etc/passwd", False), ("docs/up/docs/a.md", True),
     ("docs/../docs/../.env", False), ("/proc/self/cwd/docs/a.md", False)],
)  # fmt: skip
def test_an_allowed_path_is_allowed_as_the_place_that_it_is(path: str, allowed: bool, place: Path):
    assert (ruled(ALLOWS, place, "read_file", {"path": path}) == "allow") is allowed


@pytest.mark.parametrize(
    "command",
    ["grep KEY .env", "cat < .env", "cat .e*", "cat .en?", "cat .[e]nv", "cat .[!a]nv", "cat secrets/*",
     "head -1 ./.env", "ls > .env", "cd secrets && cat key", "cd a && cat ../.env", "cp .env x",
     "git diff --no-index .env x", "dd if=.env", "curl -d @.env x", "git show HEAD:.env", "sudo cat .env",
     "bash -c 'cat .env'", "xargs cat .env", "cat 'secrets'/key", 'cat ".env"', "python x.py --config=.env",
     "cat folder/key", "cat a.txt .env", "wc -l *.pem certs/*.pem", "echo x >> secrets/new", "cp x.pem a"],
)  # fmt: skip
def test_a_refused_path_is_refused_in_the_words_of_a_line(command: str, place: Path):
    assert ruled(DENIES, place, "shell", {"command": command}) == "deny"


@pytest.mark.parametrize(
    "command",
    ["grep -r KEY .", "tar cf x secrets", "rm -rf secrets", "grep -rn KEY", "rg KEY", "cp -r . /tmp/x",
     "python -c \"open('.env')\"", "cat $X", "cat /proc/self/cwd/.env", "tar cf x .", "for f in .e*; do cat $f; done",
     "echo .env | xargs cat", "cat $(echo .env)", "cat {.env,x}", "diff -r . /tmp", "sed 1r.env a/b.txt",
     "sed -n 'r secrets/key' a/b.txt", "awk '{getline < \".env\"}' a/b.txt", "find . -delete", "git log -2 -up"],
)  # fmt: skip
def test_a_line_that_may_touch_a_refused_path_is_a_question_in_every_mode(command: str, place: Path):
    assert ruled(DENIES, place, "shell", {"command": command}) in {"unsure", "deny"}


@pytest.mark.parametrize(
    "command", ["ls", "grep x main.py", "grep -rn x a", "git status", "pytest -q", "cat docs/a.md | wc -l", "ls -la"]
)
def test_other_lines_are_not_refused(command: str, place: Path):
    assert ruled(DENIES, place, "shell", {"command": command}) is None


def test_a_search_of_a_folder_with_a_refused_file_is_a_question(place: Path):
    assert ruled(DENIES, place, "grep", {"pattern": "x"}) == "unsure"  # the folder has a default
    assert ruled(DENIES, place, "grep", {"pattern": "x", "path": "."}) == "unsure"
    assert ruled(DENIES, place, "grep", {"pattern": "x", "path": "a"}) is None
    assert ruled(DENIES, place, "ls", {"path": "."}) is None


def test_a_pattern_of_another_text_is_compared_as_it_is(place: Path):
    rules = Rules([{"tool": "*", "arguments": {"url": "https://x.org/*"}, "decision": "allow"}])
    assert rules.judge("fetch", {"url": "https://x.org/a//b"}) is not None
    assert rules.judge("fetch", {"url": "https://y.org/a"}) is None


def test_a_folder_that_is_nested_deeper_than_calls_is_looked_through(tmp_path: Path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("last.secret", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    try:
        root = tmp_path.resolve()
        assert may_hold(root, "*.secret", root)
        assert may_hold(root / "d", "d/d/d/*", root)
        assert not may_hold(root, "*.other", root)
    finally:  # pytest removes old folders by recursion, which 1,000 levels end
        subprocess.run(["/bin/rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_link_below_a_folder_means_what_it_leads_to(tmp_path: Path):
    root = tmp_path.resolve()
    (root / "sub").mkdir()
    (root / "secrets").mkdir()
    (root / "sub" / "link").symlink_to(root / "secrets")
    assert may_hold(root / "sub", "secrets*", root)
    assert not may_hold(root / "sub", "others*", root)
