"""A rule that refuses a command holds however the command is started."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from monitor.tools import Rules
from monitor.tools.approvals.started_commands import started_by
from tests.tools.approvals.bash import NEEDS_BASH, Place

REFUSES = Rules([{"tool": "shell", "command": "git push", "decision": "deny", "name": "no pushes"}])


def commands(text: str) -> list[str]:
    return [" ".join(word.text for word in words) for words in started_by(text).commands]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("bash -c 'git push; ls'", ["git push", "ls"]),
        ("bash -o posix -c 'git push'", ["git push"]),
        ("bash -c -- 'git push'", ["git push"]),
        ("bash -c -x 'git push' a b", ["git push"]),
        ("bash --norc -ec 'git push'", ["git push"]),
        ("sh -c \"bash -lc 'git push'\"", ["git push"]),
        ("eval -- git push", ["git push"]),
        ("eval 'git push'", ["git push"]),
        ("env -i git push", ["git push"]),
        ("env -S 'git push' x", ["git push x"]),
        ("env --split-string='git push'", ["git push"]),
        ("sudo -u root -- git push", ["git push"]),
        ("nice -n 5 git push", ["git push"]),
        ("nice -5 git push", ["git push"]),
        ("timeout -s KILL 5 git push", ["git push"]),
        ("timeout --kill-after=1 5 nohup setsid -w git push", ["git push"]),
        ("stdbuf -oL git push", ["git push"]),
        ("command -p git push", ["git push"]),
        ("exec -a x git push", ["git push"]),
        ("find . -name x -exec git push {} +", ["git push {}"]),
        ("git -C x --no-pager push", ["git push"]),
        ("/usr/lib/git-core/git-push x", ["git push x"]),
        ("busybox sh -c 'git push'", ["git push"]),
    ],
)
def test_what_the_words_of_a_launcher_start_is_refused(text: str, inner: list[str]):
    found = commands(text)
    assert [one for one in inner if not any(each.startswith(one) for each in found)] == []
    ruling = REFUSES.judge("shell", {"command": text})
    assert ruling is not None
    assert ruling.decision == "deny" or "{}" in inner[0]


@pytest.mark.parametrize(
    "text",
    ["bash -s", "bash", "echo git push | sh", "bash < x", ". /dev/stdin", "source x", "bash /dev/stdin", "eval $X",
     "hash -p /bin/git ls", "alias g='git push'", "export BASH_ENV=x", "BASH_ENV=x bash -c ls", "PS4='$(git push)' ls",
     "mapfile -C 'git push' -c 1 x", "trap 'git push' EXIT", "env BASH_ENV=x bash -c ls", "git -c alias.p=push p",
     "git p", "git bisect run ls", "python -c 'x'", "perl -e x", "node -e x", "awk 'BEGIN{system(x)}'", "sed 1e f",
     "sed s/a/b/e f", "parallel git", "ssh a git push", "git rebase --exec ls x", "xargs bash", "sudo --unknown git",
     "sudo -s", "git config alias.p push", "shopt -s expand_aliases", "enable -f x y", "printf -v PATH x",
     "bash --rcfile x -i", "git clone -c core.fsmonitor=x y", "read PATH"],
)  # fmt: skip
def test_what_cannot_be_read_is_not_certain(text: str):
    assert not started_by(text).certain
    ruling = REFUSES.judge("shell", {"command": text})
    assert ruling is not None
    assert ruling.decision == "deny" or (ruling.decision, ruling.unsure) == ("ask", True)


@pytest.mark.parametrize(
    "text",
    ["git status", "git commit -m 'git push'", "echo git push", "grep -rn 'git push' .", "ls | xargs wc -l",
     "pytest -q 2>&1 | tail -5", "sed -n '1,5p' f", "awk '{print $1}' f", "find . -name '*.py'",
     "python -m pytest", "cargo build", "docker ps", "env",
     "timeout 5 pytest -q", "sudo apt update", "rm -rf build", "git pull", "git fetch origin",
     "git checkout -b push-fix", "set -eu; pytest", "cat a | sort | uniq -c", "tar xf a.tar",
     "git stash push", "mkdir -p a && cp x a", "command -v git", "which git", "uv run pytest", "echo a > f",
     "curl -s http://localhost:8000/x", "git add push", "cd x && ls", "xargs -n1 wc < f", "git log --grep push"],
)  # fmt: skip
def test_ordinary_commands_are_none_of_its_business(text: str):
    """So a rule that refuses one command costs few questions in the mode `yolo`."""
    assert REFUSES.judge("shell", {"command": text}) is None


@pytest.mark.parametrize(
    "text",
    ["make", "make test", "sed -i s/old/new/ f", "find . -exec wc -l {} +", "python x.py", "npm run build",
     "nohup python server.py", "node server.js", "sh fine.sh x", "./tool"],
)  # fmt: skip
def test_a_program_that_may_start_any_other_is_a_question(text: str):
    """No words say what a script runs, so a rule that refuses asks a person."""
    ruling = REFUSES.judge("shell", {"command": text})
    assert ruling is not None
    assert (ruling.decision, ruling.unsure) == ("ask", True)


def test_a_name_of_the_program_among_words_that_are_not_known_is_a_question():
    for text in ("foo git push", "foo 'git push'", "cp /usr/bin/git x", "foo -x=git", "vim -c '!git push'"):
        ruling = REFUSES.judge("shell", {"command": text})
        assert ruling is not None, text
        assert ruling.unsure, text


# --- bash says which of these spellings run the command

SPELLINGS = (
    "git push", "g\\it pus\\h", "'git' \"push\"", "gi''t push", "git -C . push", "git --no-pager push",
    "git --git-dir=x push", "./../bin/git push", "git $'push'", "git pu{sh,}", "X=push; git $X", "{git,push}",
    "${G:-git} push", "git ${P:-push}", "$(echo git) push", "`echo git` push", "git `echo push`", "git p*",
)  # fmt: skip
AROUND = (
    "@@", "ls; @@", "ls && @@", "ls || @@", "ls | @@", "ls & @@", "ls\n@@", "( @@ )", "{ @@; }", "! @@",
    "if @@; then ls; fi", "for x in a; do @@; done", "while @@; do break; done", "case a in a) @@;; esac",
    "f() { @@; }; f", "ls $(@@)", "ls `@@`", "ls <(@@)", 'ls "$(@@)"', "ls ${x:-$(@@)}", "[[ -n $(@@) ]]", "x=$(@@)",
    "cat <<E\n$(@@)\nE", "bash <<E\n@@\nE", "bash <<< '@@'", "time @@", "coproc @@; wait", "trap '@@' EXIT",
    "eval '@@'", "eval -- '@@'", "eval @@", "bash -c '@@'", "bash -o posix -c '@@'", "bash -c -- '@@'",
    "bash -ec '@@'", "bash +x -c '@@'", "bash -O extglob -c '@@'", "sh -c '@@'",
    'bash -c \'bash -c "$0 $1"\' git push', 'bash -c \'"$@"\' x git push', "env @@", "env -i PATH=$PATH RAN=$RAN @@",
    "env A=b @@", "env -S '@@'", "env -u X @@", "nice @@", "nice -n 1 @@", "timeout 5 @@", "timeout -k 1 5 @@",
    "nohup @@", "setsid -w @@", "stdbuf -o0 @@", "command @@", "command -p -- @@", "builtin eval '@@'", "exec @@",
    "exec -a x @@", "echo push | xargs git", "echo git push | xargs env", "echo git push | xargs -I% bash -c %",
    "xargs @@ < /dev/null", "echo x | xargs -I% @@", "find . -maxdepth 0 -exec @@ \\;",
    "find . -maxdepth 0 -exec bash -c '@@' \\;", "echo '@@' | bash", "echo '@@' | bash -s",
    "echo '@@' | . /dev/stdin", "echo '@@' > x; bash x", "echo '@@' > x; . ./x",
    "shopt -s expand_aliases\nalias g='git'\ng push", "alias g='@@'; shopt -s expand_aliases; eval g",
    "hash -p ../bin/git ls; ls push", "echo '@@' > x; BASH_ENV=x bash -c ls", "PS4='$(@@)' bash -xc ls",
    "mapfile -C '@@;' -c 1 a < /etc/passwd", "export PATH; @@", "A=1 @@", 'python3 -c \'import os; os.system("@@")\'',
    'perl -e \'system("@@")\'', 'awk \'BEGIN{system("@@")}\'', "printf '@@' | sh", "cat > x <<E\n@@\nE\nbash x",
    "[ -v 'a[$(@@)]' ]", "test -v 'a[$(@@)]'", "let 'a[$(@@)]=1'", "(( a[$(@@)] ))", "declare -a 'a=($(@@))'",
    "printf -v 'a[$(@@)]' x", "read 'a[$(@@)]' <<< x", "unset 'a[$(@@)]'", 'x=\'$(@@)\'; echo "${x@P}"',
    "compgen -C '@@' x", "complete -C '@@' x; @@", "ls\\\n;@@", "ls # x\n@@",
    "select x in a; do @@; done < /dev/null",
)  # fmt: skip
"""Lines around a command, which stands for `@@`."""


@NEEDS_BASH
def test_no_spelling_of_a_refused_command_runs_unasked(tmp_path: Path):
    lines = [around.replace("@@", SPELLINGS[at % 3]) for at, around in enumerate(AROUND)] + list(SPELLINGS)
    lines += [around.replace("@@", one) for around, one in product(AROUND[1:6], SPELLINGS[:12])]
    lines = list(dict.fromkeys(lines))
    system = (
        "bash",
        "sh",
        "env",
        "nice",
        "timeout",
        "setsid",
        "nohup",
        "xargs",
        "find",
        "stdbuf",
        "cat",
        "perl",
        "awk",
    )
    place = Place(tmp_path, ["git", "ls"], system)
    hits = 0
    for line, ran in zip(lines, place.run(lines), strict=True):
        ruling = REFUSES.judge("shell", {"command": line})
        if any(words[0] == "git" and "push" in words for words in ran.commands):
            hits += 1
            assert ruling is not None, line
            assert ruling.decision == "deny" or ruling.unsure, line
    assert hits >= 120
