"""The commands in a line for a shell, read by a parser of the shell's grammar (the extra `tools`).

Nothing is guessed. If the grammar does not know a part of the line, the answer is `None`. It is
`None` too if the name of a command is known only at run time. Then a person has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from monitor.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_CHARS: Final = 20_000
"""A longer line is not read: nobody who approves it would read it either."""
_DEPTH: Final = 8
"""The most shells within each other that are read."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_WRAPPERS: Final = frozenset(
    {"sudo", "doas", "env", "nohup", "time", "timeout", "nice", "ionice", "stdbuf", "xargs", "command", "exec"}
    | {"builtin", "setsid", "watch", "parallel", "strace", "unbuffer", "caffeinate", "busybox", "script"}
)
"""Commands that run what follows them."""
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_LITERAL: Final = frozenset({"word", "number", "raw_string", "string", "concatenation", "string_content"})
_OPEN: Final = frozenset("*?[{~")
"""Characters with which the shell replaces a word by other words."""
_NO_WRITING: Final = ("/dev/null",)


@dataclass(slots=True, frozen=True)
class Line:
    """A line for a shell, as far as it can be read."""

    commands: tuple[tuple[str, ...], ...]
    """The words of each command in it, wherever it stands: in a pipe, a substitution, the body of a
    function, a `bash -c`. A word that is only known at run time stands as it is written.
    """
    writes: bool
    """Something is redirected into a file."""


def command_prefixes(text: str) -> list[list[str]] | None:
    """The words of each command in `text`. `None`: it cannot be read, so somebody has to be asked.

    Raises `MissingExtra` without the parser.
    """
    line = read_line(text)
    return None if line is None else [list(words) for words in line.commands]


def read_line(text: str) -> Line | None:
    """The commands in `text`, and whether it writes files. `None`: it cannot be read."""
    found: list[tuple[str, ...]] = []
    try:
        writes = _read(text, found, _DEPTH)
    except _Unreadable:
        return None
    return Line(tuple(found), writes)


def need_parser() -> None:
    """Raise `MissingExtra` where the parser is not installed."""
    _parser()


class _Unreadable(Exception):
    """The line cannot be read without a guess."""


@cache
def _parser() -> Parser:
    try:
        import tree_sitter  # noqa: PLC0415 - the optional package of this file
        import tree_sitter_bash  # noqa: PLC0415 - the same
    except ImportError:
        raise MissingExtra("tree-sitter-bash", "tools") from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _read(text: str, found: list[tuple[str, ...]], depth: int) -> bool:
    if depth == 0 or len(text) > MOST_CHARS or "\0" in text:
        raise _Unreadable
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise _Unreadable from None
    root = _parser().parse(data).root_node
    if root.has_error:
        raise _Unreadable
    writes = False
    for node in _nodes(root):
        if node.type == "ERROR" or node.is_missing:
            raise _Unreadable
        if node.type == "file_redirect":
            writes |= _writes(node)
        elif node.type in {"variable_assignment", "declaration_command", "unset_command"}:
            found.append((_text(node),))  # after it, the words that follow may mean something else
        elif node.type == "command":
            writes |= _take(_words(node), found, depth)
    return writes


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _words(command: Node) -> list[tuple[str, bool]]:
    """The words of a command. True: the word is known before the command runs."""
    words: list[tuple[str, bool]] = []
    for child in command.named_children:
        if child.type == "command_name":
            word, known = _literal(child.named_children[0])
            if not known or not word or not _OPEN.isdisjoint(word):
                raise _Unreadable
            words.append((word, True))
        elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"}:
            words.append(_literal(child))
    if not words:
        raise _Unreadable
    return words


def _take(words: Sequence[tuple[str, bool]], found: list[tuple[str, ...]], depth: int) -> bool:
    """Put a command into `found`, and the commands that it runs."""
    texts = tuple(word for word, _ in words)
    name = texts[0].rpartition("/")[2]
    if name in _SHELLS or name == "eval":
        return _take_shell(name, words, found, depth)
    found.append(texts)
    writes = False
    if name in _WRAPPERS or name == "find":
        first = 1 if name != "find" else next((at for at, one in enumerate(texts, 1) if one in _FIND_RUNS), len(texts))
        for at in range(first, len(texts)):
            word, known = words[at]
            if not known:
                raise _Unreadable
            if word[:1] not in {"-", "{", ";", "+", "(", "!"} and "=" not in word and not word[:1].isdigit():
                inner = word.rpartition("/")[2]
                if inner in _SHELLS or inner == "eval":
                    return writes | _take_shell(inner, words[at:], found, depth)
                found.append(texts[at:])
    return writes


def _take_shell(name: str, words: Sequence[tuple[str, bool]], found: list[tuple[str, ...]], depth: int) -> bool:
    """Read a shell within the shell: the line after `-c`, or the words of `eval`."""
    if not all(known for _, known in words):
        raise _Unreadable
    texts = [word for word, _ in words]
    if name == "eval":
        return _read(" ".join(texts[1:]), found, depth - 1)
    for at, word in enumerate(texts[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            if at + 1 >= len(texts):
                raise _Unreadable
            return _read(texts[at + 1], found, depth - 1)
        if not word.startswith("-"):
            break
    found.append(tuple(texts))  # it runs a file, or the lines that it reads
    return False


def _literal(node: Node) -> tuple[str, bool]:
    """A word as the shell reads it, and whether that is known before it runs."""
    if node.type not in _LITERAL:
        return _text(node), False
    if node.type == "raw_string":
        return _text(node)[1:-1], True
    if node.type in {"string", "concatenation"}:
        parts = [_literal(child) for child in node.named_children]
        if node.type == "string" and not parts:
            return _text(node)[1:-1], True
        known = all(known for _, known in parts)
        if node.type == "string" and known:
            return _unescaped(_text(node)[1:-1]), True
        return ("".join(text for text, _ in parts), True) if known else (_text(node), False)
    text = _text(node)
    return _unescaped(text), True


def _unescaped(text: str) -> str:
    return text.replace("\\\n", "").replace("\\", "") if "\\" in text else text


def _writes(redirect: Node) -> bool:
    texts = [_text(child) for child in redirect.children]
    if not any(text.startswith((">", "&>", "<>")) for text in texts):
        return False
    target = texts[-1]
    return not (target in _NO_WRITING or (any(text == ">&" for text in texts) and target.isdigit()))


def _text(node: Any) -> str:
    return bytes(node.text).decode("utf-8", "replace")
