"""The options of a command that can do no more than its name says.

A command is proven if each of its words is a known option, the value of one, or an operand. An
option that is not listed is not proven: it may write a file or run a program (`sort -o`, `git log
--output`, `rg --pre`). So an abbreviated option is not proven either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from monitor.errors import ConfigError
from monitor.tools.approvals.plain_words import PlainWord

ANY: Final = "*"
"""Stands for all options in a list of options."""
_OPTION: Final = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_-]*[:=]?|-#")
Arity: TypeAlias = Literal["flag", "value", "attached"]
"""An option without a value, with one, or with one that can only be attached: `--stat=80`."""
OperandCheck: TypeAlias = Callable[[Sequence[PlainWord]], str | None]
"""Why the operands of a command are not proven. `None`: they are."""


@dataclass(slots=True, frozen=True)
class KnownOptions:
    """The options of one command that are known to be harmless."""

    letters: dict[str, Arity]
    """Options of one letter, which may be joined: `-la`."""
    longs: dict[str, Arity]
    """Options such as `--all`, or `-name` where `single` is set, with their dashes."""
    digits: bool = False
    """A number is an option: `-20`."""
    every: bool = False
    """No option of the command writes or runs anything: none has to be listed."""
    single: bool = False
    """Long options have one dash, and there are no letters to be joined: `find -name`."""
    apart: bool = False
    """The value of a letter is always the next word: `tree -Lo 1 file` has the option `-o`."""
    argument_files: bool = False
    """A word that begins with `@` names a file of further options, wherever it stands."""
    most: int | None = None
    """The most operands. `None`: any number."""
    inside: bool = False
    """The operands are code that runs, so they must lie in the workspace."""
    runs: bool = False
    """The command runs code of the workspace, as `pytest` does. So "always" is never offered for
    more than the exact words, and its program may lie in the workspace.
    """
    repository: Literal["", "read", "commit"] = ""
    """The command belongs to git: settings and hooks of the repository say what it runs."""
    adds: bool = False
    """The command adds files to a repository. A repository among them is one whose settings count
    from then on.
    """
    reads_below: frozenset[str] = frozenset()
    """With one of these options (`""`: with none) it reads all files below a folder."""
    values: Mapping[str, Callable[[str], bool]] | None = None
    """Whether the value of an option is harmless. Of an option that is not here, any value is."""
    check: OperandCheck | None = None
    """A further check of the operands. If `every` is set, of all words."""

    def with_options(self, options: Iterable[str]) -> KnownOptions:
        """Return a table with further options."""
        more = known_options(" ".join(options))
        return replace(
            self,
            letters={**self.letters, **more.letters},
            longs={**self.longs, **more.longs},
            digits=self.digits or more.digits,
        )

    def unproven(self, words: Sequence[PlainWord]) -> str | None:
        """Why the words after the name are not proven. `None`: they are."""
        if any(not word.known for word in words):
            return "a word is only known when the command runs"
        if self.argument_files and (named := [word.text for word in words if word.text.startswith("@")]):
            return f"{named[0]} names a file of options"
        operands = words if self.every else self._operands(words)
        if isinstance(operands, str):
            return operands
        if self.check is not None and (why := self.check(operands)) is not None:
            return why
        if self.most is not None and (len(operands) > self.most or any(word.glob for word in operands)):
            return f"more than {self.most} operands" if self.most else "a word after the command"
        return None

    def operands(self, words: Sequence[PlainWord]) -> Sequence[PlainWord]:
        """The words that are neither options nor their values, as far as the options are known."""
        found = self._operands(words)
        return words if isinstance(found, str) else found

    def _operands(self, words: Sequence[PlainWord]) -> list[PlainWord] | str:
        operands: list[PlainWord] = []
        after_dashes = False
        wanted: str | None = None
        """The option whose value is the next word."""
        for word in words:
            text = word.text
            if wanted is not None:
                if text.startswith("-") and not self.single:
                    return f"{wanted} without a value"
                if word.glob:
                    return f"{text} may become several words: quote it"
                if why := self._value(wanted, text):
                    return why
                wanted = None
            elif after_dashes or text == "-" or not text.startswith("-"):
                if not after_dashes and (why := _may_be_option(word)):
                    return why
                operands.append(word)
            elif text == "--" and not self.single:
                after_dashes = True
            else:
                read = self._option(word)
                if read is None:
                    return f"the option {text} is not known to be harmless"
                option, value = read
                if value is None:
                    wanted = option
                elif value and (why := self._value(option, value)):
                    return why
        return f"{wanted} without a value" if wanted is not None else operands

    def _option(self, word: PlainWord) -> tuple[str, str | None] | None:
        """An option, and its value: `""` for none, `None` if the next word is it. `None`: it is not
        known.
        """
        text = word.text
        name, sign, value = text.partition("=")
        if "*" in name or (word.glob and not sign):
            return None
        if self.single and name.startswith("--"):
            name = name[1:]
        if self.single or name.startswith("--"):
            arity = self.longs.get(name)
            if arity is None or (sign and arity == "flag"):
                return None
            return name, (value if sign else None if arity == "value" else "")
        if self.digits and text[1:].isdecimal():
            return text, ""
        for at, letter in enumerate(text[1:], start=1):
            arity = self.letters.get(letter)
            if arity is None:
                return None
            if arity != "flag":
                rest = text[at + 1 :]
                if rest and self.apart:
                    return None
                return f"-{letter}", (rest or (None if arity == "value" else ""))
        return text, ""

    def _value(self, option: str, value: str) -> str | None:
        harmless = (self.values or {}).get(option)
        return None if harmless is None or harmless(value) else f"{option} {value} is not known to be harmless"


def _may_be_option(word: PlainWord) -> str | None:
    """A glob such as `*` may become the name of a file that begins with a dash."""
    if word.glob and word.text[:1] in {"*", "?", "["}:
        return f"{word.text} may become an option: write ./{word.text}"
    return None


def known_options(spec: str, *, single: bool = False, reads_below: str | None = None, **traits: Any) -> KnownOptions:
    """The options in `spec`: `-abc` (letters), `-k:` (with a value), `-#` (a number), `--long`,
    `--long:` (with a value), `--long=` (a value only after the sign). `traits`: further fields of
    `KnownOptions`. Raises `ConfigError`.
    """
    letters: dict[str, Arity] = {}
    longs: dict[str, Arity] = {}
    digits = False
    for one in spec.split():
        if not _OPTION.fullmatch(one):
            raise ConfigError(f'{one!r} is no option: write "-l", "-k:" for one with a value, "--all" or "--key:"')
        arity: Arity = "value" if one.endswith(":") else "attached" if one.endswith("=") else "flag"
        name = one.rstrip(":=")
        if name == "-#":
            digits = True
        elif single or name.startswith("--"):
            longs[name] = arity
        elif arity == "flag":
            letters.update(dict.fromkeys(name[1:], arity))
        else:
            letters[name[1]] = arity
            if len(name) > 2:  # noqa: PLR2004 - a dash and one letter
                raise ConfigError(f'{one!r}: an option of one letter has a value, or write "-{name}"')
    below = frozenset(reads_below.split() or {""}) if reads_below is not None else frozenset[str]()
    return KnownOptions(letters, longs, digits, single=single, reads_below=below, **traits)
