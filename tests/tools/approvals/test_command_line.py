"""The commands in a line for a shell."""

import os
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.tools import Rules
from monitor.tools.approvals.command_line import command_prefixes, read_line


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git push origin main", [["git", "push", "origin", "main"]]),
        ("cd x && git push; ls | wc -l &", [["cd", "x"], ["git", "push"], ["ls"], ["wc", "-l"]]),
        ("\"git\" pu'sh' \\-f", [["git", "push", "-f"]]),
        ('grep "a $(rm -rf x)" y', [["grep", '"a $(rm -rf x)"', "y"], ["rm", "-rf", "x"]]),
        ("echo `id` <(cat x)", [["echo", "`id`", "<(cat x)"], ["id"], ["cat", "x"]]),
        ("cat <<E\n$(id)\nE\n", [["cat"], ["id"]]),
        ("for f in *; do rm $f; done", [["rm", "$f"]]),
        ("git() { rm x; }; git status", [["rm", "x"], ["git", "status"]]),
        ("case x in x) git push;; esac", [["git", "push"]]),
        ("bash -c 'git push; ls'", [["git", "push"], ["ls"]]),
        ("bash -lc \"sh -c 'git push'\"", [["git", "push"]]),
        ("eval 'git push'", [["git", "push"]]),
        ("bash script.sh", [["bash", "script.sh"]]),
        ("ls # git push", [["ls"]]),
        ("", []),
    ],
)
def test_every_command_of_a_line_is_found_wherever_it_stands(text: str, commands: list[list[str]]):
    assert command_prefixes(text) == commands


@pytest.mark.parametrize(
    "text",
    [
        "if (",
        "$X -rf /",
        "{rm,-rf,/}",
        "$'\\x72m' x",
        'bash -c "$X"',
        "sh -c",
        "xargs $X",
        "r* x",
        "echo '",
        "ls \0",
        "a" * 20_001,
        "ls \ud800",
        "bash -c " + "'bash -c " * 9,
    ],
)
def test_what_cannot_be_read_for_sure_is_not_guessed(text: str):
    assert command_prefixes(text) is None


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("sudo -u root rm -rf /", ("rm", "-rf", "/")),
        ("env X=1 rm x", ("rm", "x")),
        ("timeout 5 rm x", ("rm", "x")),
        ("xargs rm", ("rm",)),
        ("find . -name x -exec rm {} ;", ("rm", "{}")),
        ('timeout 5 bash -c "rm x"', ("rm", "x")),
        ("nohup sudo rm x", ("rm", "x")),
    ],
)
def test_a_command_that_runs_another_one_shows_both(text: str, inner: tuple[str, ...]):
    line = read_line(text)
    assert line is not None
    assert inner in line.commands
    assert len(line.commands) > 1


def test_what_changes_the_meaning_of_later_commands_is_a_command_of_its_own():
    assert command_prefixes("PATH=/evil git status") == [["git", "status"], ["PATH=/evil"]]
    assert ["export PATH=/evil"] in (command_prefixes("export PATH=/evil; git status") or [])


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("ls > f", True),
        ("ls >> f", True),
        ("ls &> f", True),
        ("ls 2> f", True),
        ("echo $(ls > f)", True),
        ("bash -c 'ls > f'", True),
        ("ls 2>&1", False),
        ("ls > /dev/null 2>&1", False),
        ("cat < f", False),
        ("ls", False),
    ],
)
def test_a_redirection_into_a_file_is_seen(text: str, writes: bool):
    line = read_line(text)
    assert line is not None
    assert line.writes is writes


@given(st.text(alphabet="git push$()`'\"\\;|&<>{}\n -crm", max_size=40))
def test_any_text_is_read_or_refused(text: str):
    line = read_line(text)
    assert line is None or all(words and words[0] for words in line.commands)


# --- what bash runs, bash itself says: every program here writes its name and its first word

HIDDEN = ("evil x", "e\\vil x", "${E}vil x", "$'evil' x", "\\\nevil x")
"""Ways to write the command that a rule refuses, and that no rule allows."""
AROUND = (
    "{}", "ls; {}", "ls & {}", "ls && {}", "ls | {}", "ls\n{}", "ls # x\n{}", "ls `{}`", "ls $({})", 'ls "$({})"',
    "ls <({})", "ls ${{x:-$({})}}", "ls $(( $({}) ))", "ls ${{a[$({})]}}", "( {} )", "{{ {}; }}", "! {}",
    "if {}; then ls; fi", "while {}; do break; done", "for x in $({}); do ls; done", "case x in x) {};; esac",
    "ls() {{ {}; }}; ls", "function ls {{ {}; }}; ls", "coproc {}", "trap '{}' EXIT", "alias ls='{}'",
    "ls <<E\n$({})\nE", "ls <<E\n`{}`\nE", "ls <<-E\n\t`{}`\n\tE", "ls <<-E\n\t$({})\n\tE", "ls <<'E'\n$({})\nE",
    "bash <<E\n{}\nE", "bash <<< '{}'", "echo '{}' | bash", "bash -c '{}'", 'bash -c "{}"', "bash -ec '{}'",
    "eval '{}'", "eval {}", "env {}", "env A=b {}", "env -S '{}'", "env --split-string='{}'", "nice {}", "timeout 5 {}",
    "setsid -w {}", "nohup {}", "command {}", "exec {}", "time {}", "xargs {} < /dev/null", "echo x | xargs {}",
    "echo x | xargs bash -c '{}'", "find . -maxdepth 0 -exec {} \\;", "[[ 'a[$({})]' -eq 0 ]]; ls",
    "[[ -v 'a[$({})]' ]]; ls", "[ -v 'a[$({})]' ]; ls", "test -v 'a[$({})]'; ls", "let 'a[$({})]=1'; ls",
    "(( a[$({})] )); ls", 'x=\'$({})\'; ls "${{x@P}}"', "for x in 'a[$({})]'; do ls $((x)); done",
    "ls\r{}", "ls\x0b{}", "ls\x0c{}", "ls\\\n;{}", "A=b {}", "ls 2>&1 >/dev/null; {}",
    "select x in a; do {}; done < /dev/null",
)  # fmt: skip
MEANT = (
    "PATH=./bad ls", "PATH=./bad; ls", "export PATH=./bad; ls", "for PATH in ./bad; do ls; done", "PATH+=:. ls",
    "read PATH <<< ./bad; ls", "printf -v PATH ./bad; ls", "hash -p ./bad/ls ls; ls", "ls\\\nx", "./bad/ls", "bad/ls",
    "cd bad; ./ls", "declare PATH=./bad; ls", "env PATH=./bad ls", "ls\\\n-x",
    "select PATH in ./bad; do ls; done <<< 1",
)  # fmt: skip
"""Lines in which `ls` is not the program that the rule allows."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs that say that they ran."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("bin/ls", "bin/evil", "bin/vil", "bin/lsx", "bin/ls-x", "bad/ls"):
        program = folder / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name}" >> "$RAN"\n')
        program.chmod(0o755)
    for name in ("bash", "env", "nice", "timeout", "setsid", "nohup", "xargs", "find", "sh"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    return folder


def ran(place: Path, lines: list[str]) -> list[set[str]]:
    """The programs that bash runs, for each line."""
    found = []
    for at in range(0, len(lines), 40):  # side by side
        running = []
        for number, line in enumerate(lines[at : at + 40]):
            log = place / f"log{number}"
            log.write_text("")
            environment = {"PATH": f"{place}/bin", "RAN": str(log), "E": "e"}
            shell = subprocess.Popen(
                [shutil.which("bash") or "bash", "-c", line.encode()],
                cwd=place, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            running.append((shell, log))
        for shell, log in running:
            shell.wait(20)
            found.append(set(log.read_text().split()))
    return found


@pytest.mark.skipif(shutil.which("bash") is None or os.name != "posix", reason="there is no bash")
def test_bash_runs_no_program_that_the_rules_did_not_see(place: Path):
    allows = Rules([{"tool": "shell", "command": ["ls", "echo", "cat", "test", ":"], "decision": "allow"}])
    refuses = Rules([{"tool": "shell", "command": "evil", "decision": "deny"}])
    lines = [around.format(hidden) for around, hidden in product(AROUND, HIDDEN)] + list(MEANT)
    ruled = [(allows.judge("shell", {"command": line}), refuses.judge("shell", {"command": line})) for line in lines]
    hits = 0
    for line, programs, (allowed, refused) in zip(lines, ran(place, lines), ruled, strict=True):
        if allowed is not None and allowed.decision == "allow":
            assert programs <= {"bin/ls"}, line
        if "bin/evil" in programs:
            hits += 1
            assert refused is not None, line
    assert hits > len(AROUND)  # bash did run it, in most of the ways


@pytest.mark.parametrize(
    "line",
    ["ls 2>&1", "cat a.txt | ls -l", 'echo "$HOME" $((1 + 1))', "[ -f x ] && ls", "for f in *.py; do cat $f; done",
     "cat <<'E'\n$(evil)\nE", "ls \\\n  -l", "ls > /dev/null", "[[ $x == [ab] ]] && ls", "ls # evil"],
)  # fmt: skip
def test_ordinary_lines_of_allowed_commands_are_allowed(line: str):
    allows = Rules([{"tool": "shell", "command": ["ls", "echo", "cat"], "decision": "allow"}])
    ruling = allows.judge("shell", {"command": line})
    assert ruling is not None
    assert ruling.decision == "allow"
