"""A line is plain words, or it is a question."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.tools import Rules
from monitor.tools.approvals.plain_words import MOST_CHARS, plain_line
from tests.tools.approvals.bash import NEEDS_BASH, Place


def words(text: str) -> list[list[str]] | None:
    commands = plain_line(text)
    return None if commands is None else [list(command.texts) for command in commands]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git status && git diff", [["git", "status"], ["git", "diff"]]),
        ("ls -la | head -20; cat x || echo y", [["ls", "-la"], ["head", "-20"], ["cat", "x"], ["echo", "y"]]),
        ("\"git\" pu'sh' \\-f", [["git", "push", "-f"]]),
        ("ls # git push\npwd", [["ls"], ["pwd"]]),
        ("pytest \\\n  -q", [["pytest", "-q"]]),
        ("git commit -m 'a\n\nb' \"c\\\"d\\n\"", [["git", "commit", "-m", "a\n\nb", 'c"d\\n']]),
        ("ls 2>&1 >/dev/null | cat", [["ls"], ["cat"]]),
        ("git diff HEAD~1 HEAD@{1} @{u} HEAD^", [["git", "diff", "HEAD~1", "HEAD@{1}", "@{u}", "HEAD^"]]),
        ("git log @{-1}..HEAD a,b{}", [["git", "log", "@{-1}..HEAD", "a,b{}"]]),
        ("find . ! -name x -exec a {} \\;", [["find", ".", "!", "-name", "x", "-exec", "a", "{}", ";"]]),
        ("ls *.py [a-c]?", [["ls", "*.py", "[a-c]?"]]),
        ("ls |\n cat &&\n\n pwd\n", [["ls"], ["cat"], ["pwd"]]),
        ("echo é 'ü' \"'\" ''", None),
        ("echo 'é' \"ü\" ''", [["echo", "é", "ü", ""]]),
        ("", []),
        ("# nothing", []),
    ],
)  # fmt: skip
def test_plain_words_are_read_as_bash_reads_them(text: str, commands: list[list[str]] | None):
    assert words(text) == commands


EVALUATED = (
    "ls ${x:-`touch C`}", "ls ${!x}", "ls ${q:=1}", "ls ${PATH:x}", "ls $x", "ls $?", "ls $'a'", 'ls $"a"',
    "ls $((1))", "((x))", "[[ a -eq b ]]", "ls ${a[x]}", "a[x]=1", "[[ a =~ b ]]", "cat <<E\na\nE", "cat <<'E'\na\nE",
    "cat <<< a", "ls <(ls)", "ls >(ls)", "f() { ls; }", "function f { ls; }", "for x in a; do ls; done",
    "while ls; do ls; done", "until ls; do ls; done", "select x in a; do ls; done", "case a in a) ls;; esac",
    "if ls; then ls; fi", "x=1 ls", "x=1", "x+=1 ls", "(ls)", "{ ls; }", "! ls", "ls &", "ls & ls", "time ls",
    "coproc ls", "ls |& cat", "ls $(ls)", "ls `ls`", 'ls "$x"', 'ls "`ls`"', "ls {a,b}", "ls {1..3}", "ls a{b,c}d",
    "ls {a}{b,c}", "ls {{a,b}", "ls {a,b}}", "ls ~root", "ls a=~/x", "ls a:~/x", "ls ~+", "ls >&f", "ls >|f",
    "ls <>f", "ls 2>&1x", "ls {x}>f", "ls 3>f", "ls >f*", "cat </dev/tcp/a/1", "ls ?(a)", "ls @(a)", "~/x", "l* a",
    "ls\rls", "ls\vls", "ls\fls", "ls\0", "ls\u00a0a", "ls\u2028ls", "ls ;; ls", "; ls", "ls |", "ls && ", "'", '"',
    "ls \\", "l\\\ns", "ls\\\n;ls", "a" * (MOST_CHARS + 1), "ls '\ud800'", "then ls", "in", "do", "ls\x1b", "=ls",
    "%1", "ls é", 'ls "é\\""', "export A=b", "declare -x A=b", "unset x", "ls &>&1", "ls >& 2", "ls 2>&-", "}", "]]",
)  # fmt: skip


@pytest.mark.parametrize("text", EVALUATED)
def test_whatever_else_bash_evaluates_is_not_plain(text: str):
    assert plain_line(text) is None


def test_what_a_redirection_opens_is_a_path():
    command = next(iter(plain_line("cat < a 2>> b") or []))
    assert [(one.path.text, one.writes) for one in command.redirections] == [("a", False), ("b", True)]


def test_a_glob_and_the_home_folder_are_no_literals():
    command = next(iter(plain_line("ls *.py '*' ~/x \\~ a") or []))
    assert [(word.glob, word.home, word.literal) for word in command.words[1:]] == [
        (True, False, False), (False, False, True), (False, True, False), (False, False, True), (False, False, True),
    ]  # fmt: skip


@given(st.text(alphabet="git ls$()`'\"\\;|&<>{}\n -~*[]=#!é", max_size=40))
def test_any_text_is_plain_or_not(text: str):
    commands = plain_line(text)
    assert commands is None or all(one.texts[0] for one in commands)


# --- what bash does, bash itself says

TOKENS = (
    *("ls", "ls ", "cat ", "echo ", "cat", "'", '"', "$'", '$"', "\\", "\\\\", "\n", " ", "  ", "#", " #", "<<E"),
    *("<<'E'", "\nE\n", "(", ")", "{ ", "}", "[[ ", "]]", "((", "))", "$(", "`", ";", "&", "|", "&&", "||", "=~ "),
    *("! ", "~"),
    *("$", "${x:-", "[", "]", "<(", "<<<", "a", "b ", "-l ", "'a b'", '"c d"', "\\ ", "\\;", "touch C", ";touch C"),
    *("`touch C`", "$(touch C)", "=", "x", "$x", "?", "{a,b}", "{", "..", "!", "%", "^", ",", ":", "\\\n"),
    *("2>&1", ">", "<"),
    *("*", ">C", "\t", "a=", "é", "&>", "\\'", '\\"', "\r", "\v", "~/", "0", "2", ">|", "@(", "in ", "do "),
    *("then ", "time ", "\x01"),
)  # fmt: skip
ENDS = ("", "", "", "'", '"', "`", ")", "}", "\nE\n", "#'", '#"', " #'")
EXAMPLES = int(os.environ.get("MONITOR_EXAMPLES", "0")) or 1_000
"""Random lines. `MONITOR_EXAMPLES=200000` tries many more."""


def random_line(rng: random.Random) -> str:
    parts = rng.choices(TOKENS, k=rng.randint(1, 7))
    return rng.choice(("ls ", "cat ", "ls", "echo ", "")) + "".join(parts) + rng.choice(ENDS) + rng.choice(ENDS)


@NEEDS_BASH
def test_bash_does_nothing_else_with_a_random_line_that_passes_unasked(tmp_path: Path):
    """Its words are those that were read, too."""
    allows = Rules([{"tool": "shell", "command": ["ls", "cat", "echo"], "decision": "allow"}])
    place = Place(tmp_path, ["ls", "cat", "touch"])
    rng = random.Random(27)
    passed: list[str] = []
    compared = 0
    for at in range(0, EXAMPLES, 5_000):
        lines = [random_line(rng) for _ in range(min(5_000, EXAMPLES - at))]
        rulings = [allows.judge("shell", {"command": line}) for line in lines]
        passing = [
            line for line, one in zip(lines, rulings, strict=True) if one is not None and one.decision == "allow"
        ]
        for line, ran in zip(passing, place.run(passing), strict=True):
            assert ran.made == [], line
            assert all(command[0] in {"ls", "cat"} for command in ran.commands), line
            commands = plain_line(line) or ()
            if len(commands) == 1 and commands[0].texts[0] != "echo" and not any(w.home for w in commands[0].words):
                compared += 1
                assert ran.commands in ([list(commands[0].texts)], []), line
        passed += passing
    assert len(passed) > EXAMPLES // 50
    assert compared > EXAMPLES // 200


@NEEDS_BASH
def test_the_random_lines_would_find_what_passes_wrongly(tmp_path: Path):
    rng = random.Random(27)
    lines = [random_line(rng) for _ in range(300)]
    assert (
        sum(bool(ran.made) or ["touch", "C"] in ran.commands for ran in Place(tmp_path, ["ls", "touch"]).run(lines)) > 8
    )
