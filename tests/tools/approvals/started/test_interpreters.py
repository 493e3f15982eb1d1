"""Code in the words of an interpreter, and on its input, is seen under any name and version."""

from __future__ import annotations

from itertools import product

import pytest

from monitor.tools.approvals.plain_words import PlainWord
from monitor.tools.approvals.started.interpreters import has_code, reads_a_program


def words(line: str, version: str = "") -> list[PlainWord]:
    name, _, rest = line.partition(" ")
    return [PlainWord(one) for one in (name + version, *rest.split())]


CODE = (
    "python -c x", "python -Sc x", "python -W ignore -c x", "python -X dev -Ic x", "python -m timeit x",
    "python -mtimeit x", "python -m code", "perl -e x", "perl -we x", "perl -I . -E x", "perl -Mx;y f",
    "perl -mx=y;z f", "ruby -e x", "ruby -I . -e x", "ruby -r./x y", "node -e x", "node -pe x", "node --eval=x",
    "node -r ./x y", "php -r x", "lua -e x", "julia -E x", "r -e x", "ocaml -e x", "deno eval x", "python -", "perl -",
)  # fmt: skip
INPUT = (
    "python", "python -W ignore", "python -u -X dev", "perl", "perl -w -I .", "ruby", "node", "php", "lua", "python -i",
    "python -m code", "python -i x.py",
)  # fmt: skip
NEITHER = (
    "python -W ignore x.py", "python -m pytest -q", "perl -w x.pl", "perl -Mstrict x.pl", "perl -I. x.pl e",
    "node x.js",
    "python -u x.py -c", "ruby -I lib x.rb", "python -m http.server", "python --version x",
)  # fmt: skip


@pytest.mark.parametrize("version", ["", "3", "3.11", "-3.11", "5.36", ".exe"])
def test_code_is_seen_under_any_version(version: str):
    for line, folder in product(CODE, ("", "/usr/bin/")):
        assert has_code(words(folder + line, version)), line
    for line in INPUT:
        assert reads_a_program(words(line, version)), line
    for line in NEITHER:
        assert not has_code(words(line, version)), line
        assert not reads_a_program(words(line, version)), line


def test_other_programs_are_no_interpreters():
    for line in ("ls -c x", "grep -e x", "git -c x", "tail -c 5"):
        assert not has_code(words(line))
        assert not reads_a_program(words(line))
