"""Lines of everyday work pass, and what does more than its name says is a question."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from monitor.tools import Rules
from monitor.tools.approvals.judged_call import JudgedCall
from monitor.tools.approvals.known_commands import KNOWN_COMMANDS, in_directories, names_of_glob
from monitor.tools.approvals.plain_words import known_options, plain_line
from monitor.tools.base import CallPlace
from tests.tools.approvals.bash import NEEDS_BASH, Place

NAMES = [" ".join(words) for words in KNOWN_COMMANDS if words[0] not in {"mkdir", "touch"}]
EVERYTHING = Rules([{"tool": "shell", "command": NAMES, "decision": "allow"}])
READING = Rules([{"tool": "shell", "command": ["ls", "cat", "echo"], "decision": "allow"}])
WORKING = Rules(
    [
        {"tool": "shell", "command": ["git", "ls", "cat", "grep", "rg", "find", "head", "tail"], "decision": "allow"},
        {"tool": "shell", "command": ["wc", "sort", "sed", "cd"], "decision": "allow"},
        {"tool": "shell", "command": ["pytest", "npm test", "python -m pytest", "cargo test", "go test", "ruff check"],
         "decision": "allow"},
        {"tool": "shell", "command": "make test", "decision": "allow"},
        {"tool": "shell", "command": "mytool", "options": ["-v", "--level:"], "decision": "allow"},
        {"tool": "shell", "command": "git push", "decision": "deny"},
    ]
)  # fmt: skip
SETS = {"reading": READING, "working": WORKING, "everything": EVERYTHING}


def decided(rules: Rules, line: str, root: Path, *, boxed: bool = True) -> str | None:
    place = CallPlace(root, root, boxed=boxed, overrules=True)
    call = JudgedCall("shell", {"command": line}, "execute", "command", place)
    ruling = rules.ruling(call)
    return None if ruling is None else ruling.decision


USUAL = (
    "git status && git diff", "ls -la src | head", "pytest -q tests/x.py", "git log --oneline -5",
    "git diff HEAD~1 -- a.py", "git log --format='%h %s' -3", "git show HEAD:README.md", "git diff --stat",
    "git status --short", "git status -sb", "cat README.md", "cat src/*.py | wc -l", "ls *.py",
    "grep -rn 'TODO' . | head -20", 'rg -n "def main" src', "ls", "rg -n 'class \\w+' --type py",
    "rg foo -g '*.py' -A 3", "find . -name '*.py' | wc -l", "find src -maxdepth 2 -type d",
    "find . -type f -not -path './.git/*'", "pytest", "pytest -q", "pytest -q tests/a.py::test_b -x 2>&1 | tail -20",
    'pytest -k "foo and not bar" -vv --tb=short', "pytest -x --lf -p no:cacheprovider", "python -m pytest -q",
    "npm test", "npm test --silent 2>&1 | tail -5", "head -50 README.md; tail -5 README.md", "head -n 20 f",
    "tail -n +5 f", "wc -l a.py", "sed -n '1,120p' src/a.py", "sed -n 5p f", "cd src && ls",
    "cd src && pytest -q && cd ..", "sort -u f | head", "git diff", "sort -k2,2 -t, f", "git add -A",
    "git add a.py && git commit -m \"fix: it's done\"", "git commit -m 'a\n\nb'", "go test ./...",
    "git branch --show-current", "git branch -a", "ruff check .", "ruff check src && pytest -q",
    "cargo test -- --nocapture", "ls 2>/dev/null", "cat < a", "ls src # the sources", "git log -p -2 -- src",
    "git diff --cached --name-only", "git log --since=yesterday --author=me", "git show --stat HEAD",
    "ls -1 | grep -v x", "mytool run -v --level 3", "git blame a", "git rev-parse --abbrev-ref HEAD",
    "git stash list", "git remote -v", "git ls-files | head", "git grep -n foo", "ls -d */",
    "pytest -q \\\n  tests/a.py", "cat a.py; cat b.py", "wc -l < f", "grep -c x f || ls", "find . -mtime -1",
    "git describe --tags",
)  # fmt: skip


@pytest.mark.parametrize("line", USUAL)
def test_everyday_lines_pass_unasked(line: str, tmp_path: Path):
    assert decided(WORKING, line, tmp_path) == "allow"


MORE = (
    "git log --output=C", "git log --output C", "git log --pretty --output=C", "git diff --ext-diff",
    "git diff --output=C", "git show --textconv HEAD", "git log --show-signature", "git log -O x", "git grep -O./x a",
    "git grep --open-files=x a", "git branch -D x", "git branch new", "git tag v1", "git remote add x y",
    "git remote update", "git stash", "git stash pop", "git reflog expire --all", "git commit --template=x -m a",
    "git commit -F x", "git commit -S -m a", "git add -e", "git add -p", "git -C x status", "git -c core.pager=x log",
    "git --git-dir=x status", "git config a.b c", "git checkout x", "git fetch", "git rebase -x ls",
    "git bisect run x", "git worktree add x", "git apply x", "git clean -fd", "git archive --output=C HEAD",
    "git format-patch -o x", "git diff --no-index a b", "git cat-file --textconv x", "git describe --broken",
    "pytest --basetemp=x", "pytest -c x", "pytest -p x", "pytest --rootdir=x", "pytest -o a=b", "pytest --junitxml=C",
    "pytest --pdb", "pytest --debug", "pytest --cache-clear", "pytest @x", "pytest /tmp/x.py", "pytest ../x.py",
    "pytest ~/x.py", "pytest --pastebin=all", "pytest --log-file=C", "pytest --cov-report=html:C",
    "pytest --import-mode=x", "pytest --baset=x", "python -m pytest -c x", "python -m pytest --override-ini=a=b",
    "python x.py", "python -c 'print(1)'", "python -m http.server", "npm test --script-shell=./x", "npm test -- --x",
    "npm test x", "npm run build", "npm install", "npm test --prefix x", "cargo test --config x",
    "cargo test -- --logfile C", "cargo test --target-dir x", "cargo run", "cargo test --manifest-path x",
    "go test -exec ./x", "go test -o C", "go test ../x", "go test -toolexec x", "go test -coverprofile=C", "go run x",
    "go generate", "ruff check --fix .", "ruff check --config x .", "ruff check --output-file=C", "ruff check ../x",
    "ruff format .", "ruff clean", "sort -o C a", "sort --output=C a", "sort --out=C a", "sort -oC a", "sort -uo C a",
    "sort --compress-program=./x a", "sort -T x a", "sort --files0-from=x", "sort *", "uniq a C", "uniq a b*",
    "tree -o C", "tree -R -H x", "date -s x", "date 0101", "find . -exec touch C ;", "find . -execdir x ;",
    "find . -ok x ;", "find . -delete", "find . -fprint C", "find . -fprintf C x", "find . -fls C", "find *",
    "find . -name *", "find -files0-from x", "rg --pre ./x a", "rg --hostname-bin x a", "rg -z a",
    "rg --search-zip a", "rg --pre=./x a", "rg *", "sed '1w C' a", "sed -n 'p;w C' a", "sed 1e a", "sed -i s/a/b/ a",
    "sed -f x a", "sed s/a/b/e a", "sed 's/a/b/w C' a", "sed --in-place 1p a", "sed -e 1p -e '1w C' a", "sed R* a",
    "sed -s -i 1p a", "awk 'BEGIN{system(\"touch C\")}'", "awk '{print > \"C\"}' a", "awk -f x a",
    "awk '{print | \"x\"}' a", "awk -i x a", "diff -l a b", "diff --paginate a b", "diff --to-file=* a",
    "jq -L x . a", "jq -f x a", "file -C -m x", "file -z a", "file -f x", "printf %n PATH", "printf -v PATH x",
    "printf '%5n' PATH", "printf x*", "test -v 'a[$(touch C)]'", "test -R a", "test -[v] a*", "test * a",
    "which -s x", "type -x ls", "cd a b", "cd -x", "cd *", "command ls", "command -p ls", "mkdir ../x",
    "touch /tmp/x", "make", "make test -j4", "make test CC=x", "make test*", "make 'test x'", "mytool --other",
    "mytool -x", "mytool --level", "ls > C", "cat a > C", "cat a >> C", "ls 2> C", "ls &> C", "ls >& C", "ls >| C",
    "ls <> C", "cat a | tee C", "cat a | sh", "cat a | xargs touch", "ls; touch C", "ls && touch C",
    "ls || touch C; touch C", "ls | touch C", "ls\ntouch C", "ls & touch C", "ls $(touch C)", "ls `touch C`",
    'ls "$(touch C)"', "ls <(touch C)", "ls ${x:-`touch C`}", "ls $'a'", "ls $HOME", "x=1 ls", "PATH=. ls", "(ls)",
    "{ ls; }", "! ls", "if ls; then ls; fi", "for f in *; do ls; done", "while ls; do ls; done", "time ls",
    "ls() { touch C; }; ls", "ls ~root", "ls a=~/x", "ls {a,b}", "[[ a -eq b ]]", "((x))", "cat <<E\n$(touch C)\nE",
    "cat <<< a", "exec ls", "env ls", "sudo ls", "nice ls", "timeout 5 ls", "/bin/ls", "./ls", "bin/ls", "../ls",
    "ls\rtouch C", "ls\vtouch C", "ls\u00a0touch C", "eval ls", "bash -c ls", "sh -c ls", ". ./x", "source x",
    "alias ls=x", "export PATH=.", "set -x", "trap x EXIT", "hash -p ./x ls", "read x", "mapfile x", "let x=1",
    "declare x=1", "unset PATH", "shopt -s x", "enable -f x y", "coproc ls", "select x in a; do ls; done",
    "case a in a) ls;; esac", "function f { ls; }", "ls \\\n;touch C", "ls 'a'\"'\";touch C #'", "ls \\';touch C #'",
    "cat <<E''\nE\ntouch C\nE''", 'ls $"`touch C`"', "ls |& cat", "ls 3>C", "ls {x}>C", "cat </dev/tcp/a/1", "ls\0",
    "git log --format=%G?", "git show --pretty=%GG", "git reflog --format=%+GS", "git stash list --format=%-GK",
    "git shortlog --group=%GS", "git tag --sort signature", "git tag --sort=signature:grade", "tree -Lo 1 C",
    "tree -aPo x C", "tree -Io x C", "awk '{print}' /inet/tcp/0/a/1", "uniq -f 1*", "git tag --sort x*", "date -d 0*",
    "pytest -k @x", "pytest -m @x", "pytest -- @x", "pytest -k ../*", "ruff check @x", "ruff check --select @x",
    "curl x", "wget x", "rm a", "mv a b", "cp a b", "chmod x a", "docker ps", "kubectl get x", "vim a", "tar xf a",
    "pip install x", "uv run x", "uv run pytest -c x", "npx x", "node x", "ssh x", "git push", "git push origin main",
)  # fmt: skip


@NEEDS_BASH
@pytest.mark.parametrize("named", SETS)
def test_no_line_that_does_more_than_its_rules_say_passes_unasked(named: str, tmp_path: Path):
    """Each line that passes is run: it makes no file, and starts no program that no rule names."""
    assert len(MORE) >= 250
    rules = SETS[named]
    lines = [*MORE, *(line for line in USUAL if "cd src" not in line)]
    passing = [line for line in lines if decided(rules, line, tmp_path) == "allow"]
    assert {line for line in lines if decided(rules, line, tmp_path, boxed=False) == "allow"} <= {*passing}
    assert [line for line in MORE if line in passing and line not in PASSES[named]] == []
    programs = {name.split(" ")[0] for name in NAMES} - {
        "cd",
        "pwd",
        "echo",
        ":",
        "true",
        "false",
        "test",
        "printf",
        "type",
    }
    place = Place(tmp_path, [*sorted(programs - {"command"}), "touch", "make", "mytool"])
    allowed = programs | {"make", "mytool"}
    for line, ran in zip(passing, place.run(passing, ["a", "x"]), strict=True):
        assert ran.made == [], line
        assert {words[0] for words in ran.commands} <= allowed - ({"touch"} if named != "everything" else set()), line


PASSES: dict[str, set[str]] = {"reading": set(), "working": set(), "everything": {"ls -- *"}}


@NEEDS_BASH
def test_the_lines_do_harm_where_nobody_is_asked(tmp_path: Path):
    """Else the tests above would hold whatever the rules said."""
    place = Place(tmp_path, ["ls", "cat", "sed"], ["awk", "sort", "find", "uniq"])
    lines = [line for line in MORE if "C" in line]
    assert sum(bool(ran.made) for ran in place.run(lines, ["a", "x"])) > 15


def test_a_rule_names_further_options_itself(tmp_path: Path):
    rules = Rules([{"command": "make", "options": ["-j:", "--silent"], "decision": "allow"}])
    assert decided(rules, "make -j4 --silent all", tmp_path) == "allow"
    assert decided(rules, "make -f x", tmp_path) == "ask"
    anything = Rules([{"command": "make", "options": ["*"], "decision": "allow"}])
    assert decided(anything, "make -f x --eval=y", tmp_path) == "allow"
    assert decided(anything, "make $X", tmp_path) == "ask"


def test_a_makefile_is_asked_about_where_another_rule_refuses_a_command(tmp_path: Path):
    allows = {"command": "make test", "decision": "allow"}
    refuses = {"command": "git push", "decision": "deny"}
    assert decided(Rules([allows]), "make test", tmp_path) == "allow"
    assert decided(Rules([allows, refuses]), "make test", tmp_path) == "ask"


def test_the_value_of_an_option_is_never_another_option():
    options = known_options("-k: --key: --stat= -ab")
    proven = ("-k x", "--key x", "--stat", "--stat x", "-abk x", "-abkx", "./*", "-- *", "-- -x", "--stat=9", "-a b")
    for line in (*proven, "-k -x", "--key --output=C", "-abx", "--key", "--ke=x", "*", "-*", "--stat -x", "-k", "-a=b"):
        command = next(iter(plain_line(f"tool {line}") or []))
        assert (options.unproven(command.words[1:]) is None) is (line in proven), line


def test_a_program_of_the_workspace_is_not_the_one_of_the_system(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cat").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "cat").chmod(0o755)

    def asked(path: str) -> bool:
        place = CallPlace(tmp_path, tmp_path, path)
        call = JudgedCall("shell", {"command": "cat x"}, "execute", "command", place)
        return getattr(READING.ruling(call), "decision", None) == "ask"

    assert asked(f"{tmp_path}/bin:/usr/bin:/bin")
    assert asked(".:/usr/bin:/bin")
    assert asked(":/usr/bin:/bin")
    assert not asked("/usr/bin:/bin")


# --- what a glob, a link and a file of options may turn into

VALUED = [
    (" ".join(words), option if option.startswith("-") else f"-{option}")
    for words, table in KNOWN_COMMANDS.items()
    for option, arity in {**table.letters, **table.longs}.items()
    if arity == "value"
]


@pytest.mark.parametrize("glob", ["x*", "1?", "a[b]", "../*"])
def test_a_glob_is_no_value_of_an_option(glob: str, tmp_path: Path):
    """`uniq -f 1*` is `uniq -f 1 1a 1b` where there are such files, and writes the last one."""
    assert len(VALUED) > 150
    assert [one for one in VALUED if decided(EVERYTHING, f"{' '.join(one)} {glob}", tmp_path) == "allow"] == []


@pytest.mark.parametrize("name", sorted({words[0] for words in KNOWN_COMMANDS} & {"pytest", "py.test", "ruff"}))
def test_a_file_of_options_is_a_question_wherever_it_stands(name: str, tmp_path: Path):
    for words, table in KNOWN_COMMANDS.items():
        if name in words:
            valued = [f"-{one}".replace("---", "--") for one, arity in table.letters.items() if arity == "value"]
            valued += [one for one, arity in table.longs.items() if arity == "value"]
            for before in ("", "-q", "--", "a.py", *valued):
                assert decided(EVERYTHING, f"{' '.join(words)} {before} @x", tmp_path) == "ask", before


def test_a_glob_that_leads_out_of_the_workspace_is_a_question(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.py").write_text("")
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "x.py").write_text("")
    (root / "link").symlink_to("../out")
    (root / "tests" / "far.py").symlink_to("../../out/x.py")
    for line in ("pytest lin*/x.py", "pytest l[i]nk", "pytest tests/*", "pytest */x.py", "ruff check l?nk/x.py"):
        assert decided(WORKING, line, root) == "ask", line
    assert decided(WORKING, "pytest tests/x*", root) == "allow"


@pytest.mark.parametrize(
    ("line", "folders"),
    [("cd a && pytest", {"a"}), ("cd a; pytest", {"", "a"}), ("cd deep && cd .. && pytest", {"", "x/y"}),
     ("ls | cd a; pytest", {""}), ("cd a || pytest", {"", "a"}), ("cd - && pytest", {None}), ("cd && pytest", {None})],
)  # fmt: skip
def test_cd_is_followed_to_where_the_next_command_runs(line: str, folders: set[str | None], tmp_path: Path):
    """Also above a link, where bash goes up the path as it is spelt."""
    root = tmp_path.resolve()
    (root / "x" / "y" / "z").mkdir(parents=True)
    (root / "deep").symlink_to("x/y/z")
    _, found = in_directories(plain_line(line) or (), root)[-1]
    assert {None if one is None else "" if one == root else str(one.relative_to(root)) for one in found} == folders


@pytest.mark.parametrize("pattern", ["*/" * 40 + "x", "**/" * 9 + "*", "*", "[a-z]*/../*/*"])
def test_a_glob_is_looked_up_to_a_bound(pattern: str, tmp_path: Path):
    for name in range(300):
        (tmp_path / f"d{name}" / "e").mkdir(parents=True)
        for link in range(40):
            (tmp_path / f"d{name}" / f"up{link}").symlink_to("..")
    begun = time.process_time()
    found = names_of_glob(pattern, tmp_path)
    assert time.process_time() - begun < 1
    assert found is None or len(found) <= 10_000
