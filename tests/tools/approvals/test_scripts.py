"""What a script runs is asked about: no words say it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.tools import Rules
from monitor.tools.approvals.judged_call import JudgedCall
from monitor.tools.base import CallPlace

REFUSES = Rules([{"tool": "shell", "command": "git push", "decision": "deny"}])


def asked(line: str, root: Path) -> bool:
    call = JudgedCall("shell", {"command": line}, "execute", "command", CallPlace(root, root))
    ruling = REFUSES.ruling(call)
    return ruling is not None and (ruling.unsure or ruling.decision == "deny")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, text in {
        "push.sh": "git push\n",
        "sub/deep.sh": "git push\n",
        "calls.sh": "set -e\n./push.sh --now\n",
        "by_name.sh": "bash push.sh\n",
        "run.py": "import subprocess\nsubprocess.run(['git', 'push'])\n",
        "pkg/__main__.py": "import os; os.system('git push')\n",
        "fine.sh": "make; ls notes.md\n",
        "notes.md": "First `git push`.\n",
        "Makefile": "test:\n\tpytest\nrelease:\n\tgit tag v1 && git push --tags\n",
        "other/Makefile": "all:\n\t./tool\n",
        "other/tool": "#!/bin/sh\ngit -C x push\n",
        "package.json": json.dumps(
            {
                "scripts": {
                    "test": "jest",
                    "release": "git push",
                    "preship": "npm run release",
                    "ship": "ls",
                    "x": "npm run ship",
                }
            }
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    ["sh push.sh", "bash -e ./push.sh", "cd sub && sh deep.sh", "cd sub; ./deep.sh", "sh calls.sh", "sh by_name.sh",
     "python run.py", "python -W ignore run.py", "python -m run", "python3.11 -m pkg", "env sh calls.sh",
     "timeout 5 sh calls.sh", "make", "make release", "make -C .. -f Makefile", "make -fMakefile", "cd other && make",
     "npm run release", "npm run ship", "npm run x", "yarn release", "find . -exec sh push.sh ;", "nice make"],
)  # fmt: skip
def test_what_a_file_runs_is_a_question(line: str, place: Path):
    assert asked(line, place)


@pytest.mark.parametrize(
    "line",
    ["npm test", "pytest", "cd sub && ls", "python -m pytest", "cat push.sh", "ls"],
)
def test_commands_that_are_known_are_none_of_its_business(line: str, place: Path):
    assert not asked(line, place)


@pytest.mark.parametrize(
    "path", ["/dev/stdin", "//dev/stdin", "../../../../../../../../dev/fd/0", "/proc/self/fd/0", "pipe", "link"]
)
def test_what_is_no_file_may_hold_anything(path: str, place: Path):
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to("/dev/stdin")
    for line in ("sh {}", "python {}", "perl -w {}", "bash -e {} x", "make -f {}"):
        assert asked(line.format(path), place), line


@pytest.mark.parametrize(
    "writes", ["split - run", "csplit -f run - 1", "sort -o run", "uniq - run", "sponge run", "tee run", "dd of=run",
               "sed -n 'w run'", "tool --out run", "cp a run", "install a run"]
)  # fmt: skip
def test_a_line_may_write_what_it_runs(writes: str, place: Path):
    for there in (False, True):
        if there:
            (place / "run").write_text("ls\n")
            (place / "runaa").write_text("ls\n")
        assert asked(f"cat a | {writes}; sh {'runaa' if 'split' in writes else 'run'}", place)
    assert asked("cat a > Makefile; make", place)
    assert asked("tool -o Makefile && make", place)
