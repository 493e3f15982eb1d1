"""A script of sed that runs a program is seen, however the command `e` is written."""

from __future__ import annotations

from itertools import product

import pytest

from monitor.tools.approvals.plain_words import PlainWord
from monitor.tools.approvals.started.sed_scripts import may_run_a_program

ADDRESSES = ("", "1", "$", "1,2", "1~2", "0,/a/", "/e/", "/e/I", "\\,e,", "/a\\/b/", "1!", "1,+2 ", "/a/,/b/ ")
AROUND = ("{}", "p;{}", "s/e/w/;{}", "{{{}\n}}", "1{{p\n{}\n}}", ":a;{}", "a text\n{}", "y/e/f/;{}", "# e\n{}", "ba;{}")
RUN = (
    "e",
    "e git push",
    "s/a/b/e",
    "s,a,b,ge",
    "s|a|b|2e",
    "sxaxbxe",
    "s a b e",
    "s1a1b1e",
    "s/a/b/ew f",
    "s/a/b/Ie#x",
)
FINE = (
    "p",
    "d",
    "s/e/e/",
    "s,e,e,g",
    "s/\\/e/e/",
    "sxexexg",
    "s/e;e/e/",
    "s/e/e/w e",
    "y/e/f/",
    "=",
    "n",
    "q5",
    "i e",
    "r e",
)


def runs(*words: str) -> bool:
    return may_run_a_program([PlainWord(one) for one in ("sed", *words)])


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_script_that_runs_a_program_is_told_from_one_that_does_not(address: str):
    for around, run in product(AROUND, RUN):
        assert runs(around.format(address + run), "f"), around.format(address + run)
    for around, fine in product(AROUND, FINE):
        assert not runs(around.format(address + fine), "f"), around.format(address + fine)


def test_the_script_is_found_among_the_words():
    assert runs("-n", "-e", "p", "-e", "1e x", "f")
    assert runs("-ne1e", "f")
    assert runs("--expression=1e", "f")
    assert runs("-i", "s/a/b/e", "f")
    assert not runs("-i.bak", "s/a/b/", "e")
    assert not runs("-l", "5", "-n", "p", "e")
    assert not runs("-e", "p", "e", "s/a/b/e")


@pytest.mark.parametrize(
    "words", [("-f", "x"), ("-nf", "x"), ("-sEf", "x"), ("--file=x",), ("--fil", "x"), ("--expr=p",)]
)
def test_a_script_in_a_file_is_not_read(words: tuple[str, ...]):
    assert runs(*words)


def test_a_glob_may_become_any_script():
    assert may_run_a_program([PlainWord("sed"), PlainWord("s*", glob=True)])
