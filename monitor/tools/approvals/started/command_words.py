"""The words of a command as launchers read them: the name of the program, and what follows its
options.
"""

from __future__ import annotations

from typing import TypeAlias

from monitor.tools.approvals.plain_words import KnownOptions, PlainWord

Words: TypeAlias = tuple[PlainWord, ...]


def name_of_program(word: PlainWord) -> str:
    """The name of a program without its folder and `.exe`, in small letters: some systems do not
    tell them apart.
    """
    return word.text.rpartition("/")[2].casefold().removesuffix(".exe")


def name_without_version(word: PlainWord) -> str:
    """The name of a program without a version: `python3.11` is `python`."""
    return name_of_program(word).rstrip("0123456789.-")


def after_options(words: Words, options: KnownOptions, skip: int = 0) -> Words | None:
    """The words behind the options and `skip` operands. `None`: an option is not known."""
    at = 1
    while at < len(words):
        word = words[at]
        text = word.text
        if not word.literal:
            return None
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        name, sign, _ = text.partition("=")
        if text.startswith("--"):
            arity = options.longs.get(name)
            if arity is None or (sign and arity == "flag"):
                return None
            at += 1 if sign or arity != "value" else 2
            continue
        if options.digits and text[1:].isdecimal():
            at += 1
            continue
        taken = 1
        for place, letter in enumerate(text[1:], start=1):
            arity = options.letters.get(letter)
            if arity is None:
                return None
            if arity != "flag":
                taken = 2 if arity == "value" and place + 1 == len(text) else 1
                break
        at += taken
    return words[at + skip :]
