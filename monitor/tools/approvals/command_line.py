"""The commands in a line for a shell, read by a parser of the shell's grammar (the extra `tools`).

Nothing is guessed. If the grammar does not know a part of the line, the answer is `None`. It is
`None` too if the name of a command is known only at run time. Then a person has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    | {"builtin", "setsid", "watch", "parallel", "strace", "ltrace", "unbuffer", "caffeinate", "busybox", "script"}
    | {"coproc", "su", "runuser", "pkexec", "ssh", "flock", "chroot", "unshare", "nsenter", "systemd-run"}
    | {"chrt", "taskset", "setarch", "fakeroot"}
)
"""Commands that run the command, or the line for a shell, that follows them."""
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_LITERAL: Final = frozenset({"word", "number", "raw_string", "string", "concatenation", "string_content"})
_OPEN: Final = frozenset("*?[{~")
"""Characters with which the shell replaces a word by other words."""
_NO_WRITING: Final = ("/dev/null",)
_LOOKED_BACK: Final = 1_000
"""Characters before the end of a line that goes on which are looked at."""
_NETWORK: Final = ("/dev/tcp/", "/dev/udp/")
"""Bash opens a connection where a redirection names such a file."""
_CONTROLS: Final = frozenset(map(chr, [*range(32), 127])) - {"\n", "\t"}
"""Shell and grammar do not agree whether these part words."""


class _Word(NamedTuple):
    """A word of a command, as it is read by the shell."""

    text: str
    known: bool
    """The command has no substitution: the text is what the shell starts from."""
    fixed: bool
    """The command gets this very text: it is known, and no pattern of file names."""


@dataclass(slots=True, frozen=True)
class Line:
    """A line for a shell, as far as it can be read."""

    commands: tuple[tuple[str, ...], ...]
    """The words of each command in it, wherever it stands: in a pipe, a substitution, the body of a
    function, a `bash -c`. A word that is only known at run time stands as it is written.
    """
    writes: bool
    """Something is redirected into a file, or to the network."""
    fixed: tuple[int, ...] = ()
    """The number of first words of each command that are known before it runs."""


def command_prefixes(text: str) -> list[list[str]] | None:
    """The words of each command in `text`. `None`: it cannot be read, so somebody has to be asked.

    Raises `MissingExtra` without the parser.
    """
    line = read_line(text)
    return None if line is None else [list(words) for words in line.commands]


def read_line(text: str) -> Line | None:
    """The commands in `text`, and whether it writes files. `None`: it cannot be read."""
    found: list[Sequence[_Word]] = []
    try:
        writes = _read(text, found, _DEPTH)
    except _Unreadable:
        return None
    commands = tuple(tuple(word.text for word in words) for words in found)
    fixed = (next((at for at, word in enumerate(words) if not word.fixed), len(words)) for words in found)
    return Line(commands, writes, tuple(fixed))


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


def _read(text: str, found: list[Sequence[_Word]], depth: int) -> bool:
    """Put the commands of `text` into `found`. Whether it writes files."""
    if depth == 0 or len(text) > MOST_CHARS or not _CONTROLS.isdisjoint(text) or _joins_words(text):
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
        if node.type == "ERROR" or node.is_missing or _hides_a_command(node):
            raise _Unreadable
        if node.type == "file_redirect":
            writes |= _writes(node)
        elif node.type in {"variable_assignment", "declaration_command", "unset_command"} or _sets_environment(node):
            found.append([_word(_text(node))])  # after it, the words that follow may mean something else
        elif node.type == "command":
            writes |= _take(_words(node), found, depth)
    return writes


def _joins_words(text: str) -> bool:
    """Whether a line goes on within a word, or before its first word: there the shell and the
    grammar read different commands.
    """
    at = text.find("\\\n")
    while at >= 0:
        before = text[max(0, at - _LOOKED_BACK) : at]
        words = before.rstrip(" \t")
        if words == before or not words or words.endswith("\n"):
            return True
        at = text.find("\\\n", at + 1)
    return False


def _hides_a_command(node: Node) -> bool:
    """Whether the shell may run something here that the grammar takes for text."""
    match node.type:
        case "raw_string" | "ansi_c_string" | "string" | "word" | "concatenation":
            # bash evaluates the index in a[$(x)] also where it is quoted: in [[ ]], test -v, let
            text = _text(node)
            return "[" in text and ("$(" in text or "`" in text)
        case "heredoc_redirect":  # the grammar overlooks some substitutions in its body
            starts = [_text(child) for child in node.children if child.type == "heredoc_start"]
            bodies = [_text(child) for child in node.children if child.type == "heredoc_body"]
            quoted = all(not {"'", '"', "\\"}.isdisjoint(start) for start in starts)
            dash = _text(node).startswith("<<-")
            return not quoted and any("`" in body or (dash and "$(" in body) for body in bodies)
        case "expansion":  # ${x@P} runs the substitutions in the value of x
            return _text(node).endswith("@P}")
    return False


def _sets_environment(node: Node) -> bool:
    """Whether a loop sets a variable that changes the commands in it, such as PATH."""
    if node.type not in {"for_statement", "select_statement"}:
        return False
    names = [_text(child) for child in node.children if child.type == "variable_name"]
    return not names or any(name.upper() == name or name.endswith("_proxy") for name in names)


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _words(command: Node) -> list[_Word]:
    """The words of a command, without its redirections."""
    words: list[_Word] = []
    given = False
    for child in command.named_children:
        if child.type == "command_name":
            word = _literal(child.named_children[0])
            if not word.known or not word.text or not _OPEN.isdisjoint(word.text):
                raise _Unreadable
            words.append(word._replace(fixed=True))
        elif child.type in {"herestring_redirect", "heredoc_redirect"}:
            given = True
        elif child.type not in {"variable_assignment", "file_redirect"}:
            words.append(_literal(child))
    if not words or (given and words[0].text.rpartition("/")[2] in _SHELLS):
        raise _Unreadable
    return words


def _take(words: Sequence[_Word], found: list[Sequence[_Word]], depth: int) -> bool:
    """Put a command into `found`, and the commands that it runs."""
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS or name == "eval":
        return _take_shell(name, words, found, depth)
    found.append(words)
    if name in {"trap", "alias"}:
        kept = [_read(line, found, depth - 1) for line in _lines_of(name, words)]
        return any(kept)
    if name in _WRAPPERS:
        return _take_wrapped(words, 1, found, depth)
    if name == "find":
        runs = (at for at, word in enumerate(words, 1) if word.text in _FIND_RUNS)
        return _take_wrapped(words, next(runs, len(words)), found, depth)
    return False


def _take_wrapped(words: Sequence[_Word], first: int, found: list[Sequence[_Word]], depth: int) -> bool:
    """Put every command into `found` that may begin at the word `first` or behind it: which words
    are options of the command around it is not known.
    """
    writes = False
    for at in range(first, len(words)):
        word, known, _ = words[at]
        parted = len(word.split()) > 1
        if not known or (parted and word.startswith("-")):
            raise _Unreadable
        if parted:  # a line for a shell: watch 'git push', su -c 'git push'
            writes |= _read(word, found, depth - 1)
        elif word[:1] not in {"-", "{", ";", "+", "(", "!"} and "=" not in word and not word[:1].isdigit():
            inner = word.rpartition("/")[2]
            if inner in _SHELLS or inner == "eval":
                return writes | _take_shell(inner, words[at:], found, depth)
            found.append(words[at:])
    return writes


def _take_shell(name: str, words: Sequence[_Word], found: list[Sequence[_Word]], depth: int) -> bool:
    """Read a shell within the shell: the line after `-c`, or the words of `eval`."""
    if not all(word.known for word in words):
        raise _Unreadable
    texts = [word.text for word in words]
    if name == "eval":
        return _read(" ".join(texts[1:]), found, depth - 1)
    for at, word in enumerate(texts[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            if at + 1 >= len(texts):
                raise _Unreadable
            return _read(texts[at + 1], found, depth - 1)
        if not word.startswith("-"):
            found.append(words)  # it runs a file
            return False
    raise _Unreadable  # it runs the lines that it reads


def _lines_of(name: str, words: Sequence[_Word]) -> list[str]:
    """The lines for the shell that `trap` or `alias` keeps for later."""
    if not all(word.known for word in words):
        raise _Unreadable
    texts = [word.text for word in words[1:] if not word.text.startswith("-")]
    return texts[:1] if name == "trap" else [line for _, sign, line in (text.partition("=") for text in texts) if sign]


def _literal(node: Node) -> _Word:
    """A word as the shell reads it, without quotes."""
    text = _text(node)
    if node.type not in _LITERAL:
        return _Word(text, known=False, fixed=False)
    if node.type == "raw_string":
        return _word(text[1:-1])
    if node.type in {"string", "concatenation"}:
        parts = [_literal(child) for child in node.named_children]
        if not all(part.known for part in parts):
            return _Word(text, known=False, fixed=False)
        if node.type == "string":
            return _word(_unescaped(text[1:-1]))
        joined = "".join(part.text for part in parts)
        # the grammar leaves out the braces of pu{sh,}
        return _Word(joined, known=True, fixed=all(part.fixed for part in parts) and "{" not in text)
    return _Word(_unescaped(text), known=True, fixed=text == "{}" or _OPEN.isdisjoint(text))


def _word(text: str) -> _Word:
    return _Word(text, known=True, fixed=True)


def _unescaped(text: str) -> str:
    return text.replace("\\\n", "").replace("\\", "") if "\\" in text else text


def _writes(redirect: Node) -> bool:
    texts = [_text(child) for child in redirect.children]
    if any(name in texts[-1] for name in _NETWORK):
        return True
    if not any(text.startswith((">", "&>", "<>")) for text in texts):
        return False
    target = texts[-1]
    return not (target in _NO_WRITING or (any(text == ">&" for text in texts) and target.isdigit()))


def _text(node: Any) -> str:
    return bytes(node.text).decode("utf-8", "replace")
