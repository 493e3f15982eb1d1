"""Programs that run a text: shells, and interpreters of other languages. Which of their words hold
code, and whether they read it from their input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from monitor.tools.approvals.plain_words import PlainWord
from monitor.tools.approvals.started.command_words import name_of_program, name_without_version

SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "rbash", "mksh", "fish", "yash", "csh", "tcsh"})
_CODE_OPTIONS: Final = frozenset(
    {"--eval", "--print", "--exec", "--run", "--execute", "--command", "--import", "--require", "--experimental-loader"}
)
_CODE_MODULES: Final = frozenset({"timeit", "code", "pdb", "asyncio", "trace"})
"""Modules of Python that run a text of the command line or of their input."""
_PLAIN_MODULE: Final = re.compile(r"[A-Za-z0-9_:.,=-]*")


@dataclass(slots=True, frozen=True)
class _Interpreter:
    """An interpreter of one language."""

    code: str
    """The letters of options that hold code, or name a file of it."""
    valued: str = ""
    """The letters of options whose value may be the next word."""
    modules: str = ""
    """The letters of options that load a module. A value that is no plain name is code."""


_INTERPRETERS: Final[Mapping[str, _Interpreter]] = {
    **dict.fromkeys(("python", "pypy"), _Interpreter("c", valued="WX")),
    "perl": _Interpreter("eE", valued="I", modules="Mmd"),
    "ruby": _Interpreter("er", valued="IC"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), _Interpreter("epr", valued="C")),
    "php": _Interpreter("rRBE", valued="cdz"),
    **dict.fromkeys(
        ("lua", "luajit", "julia", "rscript", "r", "groovy", "elixir", "ghc", "ocaml", "scala", "swift", "guile"),
        _Interpreter("eEc", valued="l"),
    ),
}
"""The interpreters by their names without a version."""


def is_interpreter(name: PlainWord) -> bool:
    """Whether a program runs files of another language than the shell's."""
    return name_without_version(name) in _INTERPRETERS


def is_shell(name: PlainWord) -> bool:
    """Whether a program is a shell."""
    return name_of_program(name) in SHELLS


def has_code(words: Sequence[PlainWord]) -> bool:
    """Whether a word of the command of an interpreter holds code, or says that it reads code."""
    interpreter = _INTERPRETERS.get(name_without_version(words[0]))
    if interpreter is None:
        return False
    wanted = ""
    for word in words[1:]:
        text = word.text
        if wanted == "m" or (text.startswith("-m") and text != "-m" and not interpreter.modules):
            return (text if wanted else text[2:]) in _CODE_MODULES
        if wanted:
            wanted = ""
            continue
        if not text.startswith("-") or text == "-":
            return text in {"-", "eval"}
        if text.startswith("--"):
            if text.partition("=")[0] in _CODE_OPTIONS:
                return True
            continue
        if any(letter in text[1:] for letter in interpreter.code):
            return True
        if text[1:2] and text[1] in interpreter.modules and not _PLAIN_MODULE.fullmatch(text[2:]):
            return True
        last = text[-1]
        wanted = last if last in interpreter.valued or (last == "m" and not interpreter.modules) else ""
    return False


def reads_a_program(words: Sequence[PlainWord]) -> bool:
    """Whether the command of an interpreter without a file runs what it is given as its input."""
    interpreter = _INTERPRETERS.get(name_without_version(words[0]))
    if interpreter is None:
        return False
    wanted = False
    for word in words[1:]:
        if not wanted and not word.text.startswith("-"):
            return word.text in _CODE_MODULES
        if word.text == "-i":
            return True
        wanted = not wanted and word.text[-1:] in interpreter.valued and not word.text.startswith("--")
    return True
