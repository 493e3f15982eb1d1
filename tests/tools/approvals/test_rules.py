"""Rules about calls, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.tools import Rules
from monitor.tools.approvals.rules import Rule

GIT = Rules.parse("""
[[rules]]
tool = "shell"
command = ["git status", "git log", "ls", "cd"]
decision = "allow"
match = ["git status --short", "cd x && ls"]
not_match = ["git push", "git status > f", "git status && rm x"]

[[rules]]
name = "no pushes"
tool = "shell"
command = "git push"
decision = "deny"
reason = "pushes are made by people"
match = ["git push origin main", "cd x && git push", "git -C x push", "/usr/bin/git push"]
not_match = ["git status", "git commit -m push"]

[[rules]]
tool = "write_file"
arguments = { path = "secrets/*" }
decision = "deny"
match = [{ path = "secrets/key" }]
not_match = [{ path = "src/key" }, {}]

[[rules]]
tool = "fetch_*"
decision = "ask"
""")


def shell(command: str) -> str | None:
    ruling = GIT.judge("shell", {"command": command})
    return None if ruling is None else ruling.decision


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git status", "allow"),
        ("cd x && git log -3 | ls", "allow"),
        ("git statusx", "ask"),
        ("git", "ask"),
        ("git status && rm x", None),
        ("git status > f", "ask"),
        ("git status && $X", "ask"),
        ("git push", "deny"),
        ("git status; git push", "deny"),
        ("bash -c 'git push'", "deny"),
        ("sudo git push", "deny"),
        ("echo $(git --no-pager push)", "deny"),
        ("./git status", "ask"),
        ("PATH=/evil git status", "ask"),
    ],
)
def test_a_command_is_judged_by_all_that_it_runs(command: str, decision: str | None):
    assert shell(command) == decision


def test_rules_match_by_tool_and_by_arguments():
    assert GIT.judge("fetch_page", {}).decision == "ask"  # type: ignore[union-attr]
    assert GIT.judge("fetch", {}) is None
    assert GIT.judge("write_file", {"path": "secrets/a"}).decision == "deny"  # type: ignore[union-attr]
    assert GIT.judge("write_file", {"path": "a"}) is None


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value", [10**5_000, [10**5_000], {"n": 10**5_000}, Unspeakable(), float("nan"), "\ud800"], ids=lambda _: "value"
)
def test_no_argument_keeps_a_rule_from_being_asked(value: object):
    rules = Rules([Rule(name="all", tool="*", arguments={"n": "*"}, decision="deny")])
    assert rules.judge("count", {"n": value}).decision == "deny"  # type: ignore[union-attr]


def test_of_all_rules_that_match_the_strictest_decides_wherever_it_stands():
    for order in (1, -1):
        rules = [Rule(tool="*", decision="allow"), Rule(tool="x", decision="deny"), Rule(tool="x*", decision="ask")]
        assert Rules(rules[::order]).judge("x", {}).decision == "deny"  # type: ignore[union-attr]
        assert Rules(rules[::order]).judge("xy", {}).decision == "ask"  # type: ignore[union-attr]
        assert Rules(rules[::order]).judge("y", {}).decision == "allow"  # type: ignore[union-attr]


def test_a_ruling_names_its_rule_and_its_reason():
    ruling = GIT.judge("shell", {"command": "git push"})
    assert str(ruling) == "rule 'no pushes': pushes are made by people"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"command": "git push", "decision": "deny", "match": ["git status"]}, "does not match its own example"),
        ({"command": "git", "decision": "allow", "not_match": ["git log"]}, "matches its own example 'git log'"),
        ({"command": "ls", "decision": "allow", "match": ["ls > f"]}, "does not match its own example"),
        ({"tool": "x", "decision": "ask", "not_match": [{"a": 1}]}, "matches its own example"),
        ({"decision": "maybe"}, "rule 1: decision"),
        ({"decision": "ask", "tol": "x"}, "rule 1: tol"),
        ({"command": " ", "decision": "ask"}, "command is empty"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_when_it_is_loaded(rule: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        Rules([rule])


def test_rules_come_from_a_file_and_an_error_names_it(tmp_path: Path):
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\ntool = "x"\ndecision = "deny"\n', encoding="utf-8")
    assert [rule.name for rule in Rules.load(path).rules] == ["rule 1"]
    path.write_text("[[rules]]\ndecision = 3", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rules\.toml: rule 1: decision"):
        Rules.load(path)
    path.write_text("[[rule]]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"written as \[\[rules\]\]"):
        Rules.load(path)
    path.write_text("[", encoding="utf-8")
    with pytest.raises(ConfigError, match="no TOML"):
        Rules.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Rules.load(tmp_path / "none.toml")
