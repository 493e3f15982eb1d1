"""Options of git that start another program are seen when they are abbreviated or joined."""

from __future__ import annotations

import pytest

from monitor.tools.approvals.plain_words import PlainWord
from monitor.tools.approvals.started.git_commands import git_command


def certain(line: str) -> bool:
    return git_command(tuple(PlainWord(one) for one in line.split()))[1]


@pytest.mark.parametrize(
    ("verb", "option"),
    [("fetch", "--upload-pack"), ("ls-remote", "--upload-pack"), ("clone", "--upload-pack"), ("clone", "--config"),
     ("clone", "--template"), ("rebase", "--exec"), ("archive", "--exec"), ("grep", "--open-files-in-pager"),
     ("diff", "--ext-diff"), ("push", "--receive-pack")],
)  # fmt: skip
def test_an_abbreviated_option_is_the_option(verb: str, option: str):
    for end in range(4, len(option) + 1):
        assert not certain(f"git {verb} {option[:end]} x")
        assert not certain(f"git -C y {verb} {option[:end]}=x z")


@pytest.mark.parametrize(
    "line", ["git grep -Ox y", "git grep -lOx y", "git clone -u x y", "git clone -qux y", "git clone -c a=b x",
             "git clone -lca=b x", "git rebase -xls", "git remote add x ext::ls", "git fetch ext::ls",
             "git send-pack x"]
)  # fmt: skip
def test_letters_may_be_joined(line: str):
    assert not certain(line)


@pytest.mark.parametrize(
    "line", ["git fetch origin", "git clone --depth 1 https://x/y", "git log --all -S x", "git rebase main",
         "git diff -U3",
             "git commit -am x", "git grep -n x", "git checkout -b x", "git remote add x https://x/y",
             "git pull --rebase"]
)  # fmt: skip
def test_usual_commands_start_nothing_else(line: str):
    assert certain(line)
