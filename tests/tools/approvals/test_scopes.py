"""The call that "always" covers is the one that was shown, and more only where that is harmless."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitor.messages import ApprovalRequest
from monitor.tools import ShellTools, Workspace, tool
from monitor.tools.approvals import judged_call
from monitor.tools.approvals.approvers import Grants, schema_hash, scopes_of
from monitor.tools.approvals.judged_call import JudgedCall
from monitor.tools.base import ToolKind
from monitor.tools.registry import Registry, ToolEntry


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("a.py", "b.py", "run.sh", "Makefile", "package.json", "sub/Makefile", "sub/run.sh"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path


def judged(entry: ToolEntry, arguments: dict[str, Any], *, boxed: bool = True) -> JudgedCall:
    call = judged_call.judged(entry, arguments)
    return replace(call, place=replace(call.place, boxed=boxed))


def allow(grants: Grants, entry: ToolEntry, call: JudgedCall, scope: str) -> None:
    grants.add(
        ApprovalRequest(
            id="q", run="r", call_id="c", tool=entry.spec.name, arguments={}, schema_hash=schema_hash(entry),
            bound_to="", why="", scopes=scopes_of(entry, call),
        ),
        scope,
    )  # fmt: skip


def covers(place: Path, first: dict[str, Any], then: dict[str, Any], *, scope: int = 0, name: str = "shell") -> bool:
    entry = Registry([ShellTools(Workspace(place))]).entry(name)
    grants = Grants()
    shown = judged(entry, first)
    scopes = scopes_of(entry, shown)
    if scopes:
        allow(grants, entry, shown, scopes[min(scope, len(scopes) - 1)])
    return grants.cover(entry, judged(entry, then))


PAIRS = (
    ("uv run pytest", "uv run rm x"), ("npm run test", "npm run deploy"), ("npm run test", "npm run test -- --x"),
    ("docker run a", "docker run --privileged a"), ("git config a.b c", "git config core.fsmonitor x"),
    ("make test", "make deploy"), ("make test", "make test CC=x"), ("python3.11 a.py", "python3.11 b.py"),
    ("python3.11 a.py", "python3.11 -c x"), ("tar xf a", "tar xf a --to-command=x"), ("vim a", "vim -c '!x' a"),
    ("git push", "git push --force"), ("git push", "git push x"), ("git push origin a", "git push origin b"),
    ("git add a.py", "git add b.py"), ("git commit -m a", "git commit -m b"), ("pytest a.py", "pytest b.py"),
    ("pytest -q", "pytest -q --basetemp=x"), ("rm a", "rm b"), ("rm a", "rm -rf a"), ("cp a b", "cp a c"),
    ("ls && make test", "make test"), ("cd sub && make", "make"), ("cd sub && ./run.sh", "./run.sh"),
    ("make; ls", "make && ls"), ("make | cat", "make"), ("echo x | sh", "echo y | sh"),
    ("pip install a", "pip install b"), ("cargo run", "cargo run -- x"), ("go run a.go", "go run b.go"),
    ("node a.js", "node b.js"), ("bash run.sh", "bash run.sh x"), ("./run.sh", "./run.sh x"),
    ("env A=b make", "env A=c make"), ("sudo ls", "sudo rm x"), ("xargs ls < a", "xargs rm < a"),
    ("find . -exec ls ;", "find . -exec rm ;"), ("ssh a ls", "ssh a rm"), ("curl a", "curl a -o b"),
    ("kubectl get x", "kubectl delete x"), ("terraform plan", "terraform apply"),
    ("brew install a", "brew install b"), ("apt install a", "apt remove a"), ("aws s3 ls", "aws s3 rm x"),
    ("gh pr list", "gh pr merge 1"), ("sed -i s/a/b/ a", "sed -i s/a/b/ b"), ("echo 'a ; rm' b", "rm b"),
    ("python -c 'x ; rm'", "rm"), ("git -c a=b log", "git -c c=!d log"), ("make 'a b'", "make a b"),
    ("make a", "make a*"), ("make '~/x'", "make ~/x"), ("make '*'", "make *"), ("cat a > b", "cat a > b"),
    ("make $X", "make $X"), ("rm *", "rm *"), ("for f in a; do make; done", "make"),
    ("timeout 5 make", "timeout 5 rm"), ("mv a b", "mv b a"), ("cargo test", "cargo test --config x"),
    ("perl -e 1", "perl -e 2"), ("git stash", "git stash drop"), ("kill 1", "kill 2"), ("sort -o a b", "sort -o b a"),
    ("git diff --output=a", "git diff --output=b"), ("yarn build", "yarn publish"),
)  # fmt: skip


@pytest.mark.parametrize(("first", "then"), PAIRS)
def test_always_covers_no_other_command(first: str, then: str, place: Path):
    for scope in (0, 1):
        assert not covers(place, {"command": first}, {"command": then}, scope=scope)


def test_there_are_enough_pairs():
    assert len(PAIRS) >= 60


@pytest.mark.parametrize(
    "command", ["make test", "git push", "npm run test", "python a.py", "ls && make test", "pytest -q a.py", "rm a"]
)
def test_always_covers_the_same_line_again(command: str, place: Path):
    assert covers(place, {"command": command}, {"command": f" {command}  "})
    assert covers(place, {"command": command}, {"command": command, "directory": ".", "timeout_s": 5})
    assert not covers(place, {"command": command}, {"command": command, "directory": "sub"})


@pytest.mark.parametrize(
    ("first", "then", "covered"),
    [("ls -l", "ls -a src", True), ("git log --oneline", "git log -5 && git log", True),
     ("ls -l && git log -3", "git log | ls", True), ("ls -l", "ls > x", False), ("ls -l", "ls $X", False),
     ("git log -3", "git log --output=x", False), ("cat a", "cat b", True), ("git log -3", "git diff", False),
     ("sort -u a", "sort -o a b", False), ("cat a; make", "cat b", False), ("ls -l", "cd /; ls", False)],
)  # fmt: skip
def test_a_command_that_only_reads_may_be_allowed_by_its_name(first: str, then: str, covered: bool, place: Path):
    assert covers(place, {"command": first}, {"command": then}, scope=1) is covered


@pytest.mark.parametrize("command", ["python a.py", "./run.sh", "bash run.sh", "make", "npm run x", "pytest a.py"])
def test_a_line_that_runs_code_is_always_allowed_in_a_sandbox_only(command: str, place: Path):
    entry = Registry([ShellTools(Workspace(place))]).entry("shell")
    call = judged(entry, {"command": command})
    assert scopes_of(entry, call) == (f"{command}, in the sandbox only",)
    grants = Grants()
    allow(grants, entry, call, scopes_of(entry, call)[0])
    assert grants.cover(entry, call)
    outside = judged(entry, {"command": command}, boxed=False)
    assert not grants.cover(entry, outside)
    assert scopes_of(entry, outside) == ()


@pytest.mark.parametrize(
    ("kind", "scopes"),
    [
        ("read", ["run"]),
        ("edit", ["run"]),
        ("execute", ['run {"cmd": "ls"}, in the sandbox only']),
        ("other", ['run {"cmd": "ls"}', "run"]),
    ],
)
def test_a_tool_is_allowed_as_a_whole_only_if_its_kind_says_what_it_does(kind: ToolKind, scopes: list[str]):
    entry = Registry([tool(name="run", kind=kind)(lambda cmd: cmd)]).entry("run")
    call = judged(entry, {"cmd": "ls"})
    assert list(scopes_of(entry, call)) == scopes
    grants = Grants()
    allow(grants, entry, call, scopes[0])
    assert grants.cover(entry, judged(entry, {"cmd": "ls"}))
    assert grants.cover(entry, judged(entry, {"cmd": "rm -rf x"})) is (kind in {"read", "edit"})


@pytest.mark.parametrize("name", ["bash", "sh", "terminal"])
def test_an_own_shell_is_known_by_the_argument_that_it_names(name: str, place: Path):
    entry = Registry([tool(name=name, kind="execute", command_argument="cmd")(lambda cmd: cmd)]).entry(name)
    shown = judged(entry, {"cmd": "git log -3"})
    assert scopes_of(entry, shown) == ("git log -3", "git log")
    grants = Grants()
    allow(grants, entry, shown, "git log")
    assert grants.cover(entry, judged(entry, {"cmd": "git log"}))
    assert not grants.cover(entry, judged(entry, {"cmd": "git push"}))
    assert not grants.cover(entry, judged(entry, {"cmd": "git log", "env": {"PATH": "."}}))


def test_a_secret_is_not_shown_in_a_scope():
    entry = Registry([tool(name="run", kind="execute")(lambda password: password)]).entry("run")
    assert scopes_of(entry, judged(entry, {"password": "hunter22"})) == ()
