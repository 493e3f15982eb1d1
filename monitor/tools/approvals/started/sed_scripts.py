"""Whether a script of sed runs a program: its command `e`, and the flag `e` of a substitution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from monitor.tools.approvals.plain_words import PlainWord

_TO_THE_LINE_END: Final = frozenset("aicrRwW#")
"""Commands whose text goes to the end of the line."""
_WITHOUT_MORE: Final = frozenset("{}pPdDgGhHnNxzF=;")
_NUMBERED: Final = frozenset("qQlL")
_LABELLED: Final = frozenset("btT:")
_FLAGS: Final = frozenset("gpimIM0123456789")


def may_run_a_program(words: Sequence[PlainWord]) -> bool:
    """Whether the command of sed with these words may run a program. A script in a file may."""
    scripts: list[str] = []
    operands: list[PlainWord] = []
    wanted = ""
    for word in words[1:]:
        text = word.text
        if wanted:
            scripts += [text] if wanted == "e" else []
            wanted = ""
        elif text in {"--expression", "--line-length"}:
            wanted = text[2]
        elif text.startswith("--expression="):
            scripts.append(text.partition("=")[2])
        elif text.startswith("--"):
            if len(text) > 2 and (text.startswith(("--e", "--fi")) or text == "--f"):  # noqa: PLR2004 - two dashes
                return True  # abbreviations, and a file of a script
        elif text.startswith("-") and text != "-":
            for at, letter in enumerate(text[1:], start=1):
                if letter == "f":
                    return True
                if letter in "el":
                    scripts += [text[at + 1 :]] if letter == "e" and text[at + 1 :] else []
                    wanted = "" if text[at + 1 :] else letter
                    break
                if letter in "iI":
                    break
        else:
            operands.append(word)
    if not scripts and operands:
        scripts = [operands[0].text]
        if not operands[0].literal:
            return True
    return any(not word.known for word in words) or _runs("\n".join(scripts))


def _runs(script: str) -> bool:
    """Whether the script runs a program, or cannot be read."""
    at = 0
    while at < len(script):
        at = _past_address(script, at)
        if at < 0:
            return True
        if at >= len(script):
            return False
        command = script[at]
        at += 1
        if command in _TO_THE_LINE_END:
            at = _line_end(script, at)
        elif command in _LABELLED:
            at = min(_line_end(script, at), (script.find(";", at) + 1 or len(script) + 1) - 1)
        elif command in "sy":
            at = _past_replacement(script, at, flags=_FLAGS if command == "s" else frozenset())
            if at < 0:
                return True
        elif command in _NUMBERED:
            while at < len(script) and script[at] in " 0123456789":
                at += 1
        elif command not in _WITHOUT_MORE and command not in " \t\n":
            return True
    return False


def _line_end(script: str, at: int) -> int:
    """The end of the line that goes on after a backslash."""
    while at < len(script) and script[at] != "\n":
        at += 2 if script[at] == "\\" else 1
    return at


def _past_address(script: str, at: int) -> int:
    """The place behind the addresses of a command. Below 0: they cannot be read."""
    while at < len(script) and script[at] in "0123456789$,~+! \t/\\":
        if script[at] in "/\\":
            sign = at if script[at] == "/" else at + 1
            if sign >= len(script):
                return -1
            at = _past(script, sign + 1, script[sign])
            if at < 0:
                return -1
            while at < len(script) and script[at] in "IM":
                at += 1
        else:
            at += 1
    return at


def _past(script: str, at: int, sign: str) -> int:
    """The place behind the next `sign` without a backslash. Below 0: there is none."""
    while at < len(script):
        if script[at] == sign:
            return at + 1
        at += 2 if script[at] == "\\" else 1
    return -1


def _past_replacement(script: str, at: int, flags: frozenset[str]) -> int:
    """The place behind `/a/b/` and its flags. Below 0: it runs a program, or cannot be read."""
    if at >= len(script):
        return -1
    sign = script[at]
    middle = _past(script, at + 1, sign)
    at = _past(script, middle, sign) if middle >= 0 else -1
    if at < 0:
        return -1
    while at < len(script) and script[at] in flags:
        at += 1
    if at < len(script) and script[at] == "w":
        return _line_end(script, at)
    return at if at >= len(script) or script[at] in " \t\n;}#" else -1
