"""A line for a shell as plain words: simple commands of literal words and globs, joined by `;`,
`&&`, `||`, `|` and newlines. Whatever else bash evaluates makes a line not plain.

Two readers must agree about each word. One is a small regular language, which gives the words. The
other is the grammar of tree-sitter-bash (the extra `tools`), of which a short list of nodes is
accepted. Neither of them has to be right about the whole of bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from monitor.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_CHARS: Final = 20_000
"""A longer line is not read: nobody who approves it would read it either."""
NO_FILES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
"""Places of a redirection that are no files."""

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t]+(?:\\\n[ \t]*)?)
  | (?P<comment>\#[^\n]*)
  | (?P<operator>&&|\|\||\||;|\n)
  | (?P<joined>[012]?>&[12](?=[ \t\n;|&]|\Z))
  | (?P<redirect>(?:&>>|&>|[012]?>>|[012]?>|<)[ \t]*)
  | (?P<word>(?:[A-Za-z0-9_%+,./:@^*?=\[\]!~{}\#-] | \\[\x20-\x7e] | '[^']*' | "(?:[^"\\$`]|\\[\x20-\x7e])*")+)
    """,
    re.VERBOSE,
)
"""The tokens of the regular language, read from a line whose bytes stand for characters."""
_PIECE: Final = re.compile(r"""\\(.) | '([^']*)' | "((?:[^"\\]|\\.)*)" | ([^\\'"])""", re.VERBOSE | re.DOTALL)
_IN_QUOTES: Final = re.compile(r'\\(["\\$`])')
_NAME: Final = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./:+-]*")
"""A word that can be the name of a command, and no assignment."""
_KEYWORDS: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "function"}
    | {"select", "time", "coproc"}
)
_NODES: Final = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "number", "raw_string", "string"}
    | {"string_content", "concatenation", "comment", "redirected_statement", "file_redirect", "file_descriptor"}
    | {";", "&&", "||", "|", "\n", '"', ">", ">>", "<", "&>", "&>>", ">&"}
)
_NO_TEXT: Final = frozenset(map(chr, [*range(9), *range(11, 32), 127]))
"""Controls. Shell and grammar do not agree whether these part words."""


@dataclass(slots=True, frozen=True)
class PlainWord:
    """A word of a command."""

    text: str
    """The word as the command gets it: without quotes, and before file names replace a glob."""
    glob: bool = False
    """Whether `*`, `?` or `[` stands outside of quotes: bash may replace the word by names of
    files.
    """
    home: bool = False
    """Whether the word begins with a `~` that bash replaces by the home folder."""
    known: bool = True
    """False: a part of it is only known when the command runs, such as what `xargs` reads."""

    @property
    def literal(self) -> bool:
        """Whether the command gets this very text."""
        return self.known and not self.glob and not self.home


@dataclass(slots=True, frozen=True)
class Redirection:
    """A file that a command reads or writes by a redirection."""

    path: PlainWord
    writes: bool


@dataclass(slots=True, frozen=True)
class PlainCommand:
    """One simple command."""

    words: tuple[PlainWord, ...]
    redirections: tuple[Redirection, ...] = ()
    """The files among its redirections: `2>&1` and `/dev/null` are none."""
    after: str = ""
    """The operator before it: `;`, `&&`, `||` or `|`. The first one has none."""
    piped: bool = False
    """Whether the command is part of a pipe, so that it cannot change the directory of later
    commands.
    """

    @property
    def texts(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(word.text for word in self.words)


def plain_line(text: str) -> tuple[PlainCommand, ...] | None:
    """The commands of a line in their order. `None`: it has anything else than plain words.

    Raises `MissingExtra` without the parser.
    """
    if len(text) > MOST_CHARS or not _NO_TEXT.isdisjoint(text):
        return None
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    tokens = _tokens(data.decode("latin-1"))
    if tokens is None:
        return None
    spans = [(at, end) for kind, at, end in tokens if kind == "word"]
    return _commands(tokens, data) if spans == _spans_of_grammar(data) else None


def need_parser() -> None:
    """Raise `MissingExtra` where the parser is not installed."""
    bash_parser()


@cache
def bash_parser() -> Parser:
    """The parser of bash. Raises `MissingExtra` where it is not installed."""
    try:
        import tree_sitter  # noqa: PLC0415 - the optional package of this file
        import tree_sitter_bash  # noqa: PLC0415 - the same
    except ImportError:
        raise MissingExtra("tree-sitter-bash", "tools") from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# ---------------------------------------------------------------------- the regular language


def _tokens(line: str) -> list[tuple[str, int, int]] | None:
    """The kind of each token, with its span, without blanks and comments."""
    tokens: list[tuple[str, int, int]] = []
    at, parted = 0, True
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None or found.lastgroup is None:
            return None
        kind = found.lastgroup
        if kind in {"redirect", "joined"} and not parted:
            return None  # {x}>f opens a descriptor of its own
        parted = kind in {"blank", "operator"}
        if kind not in {"blank", "comment"}:
            tokens.append((kind, at, found.end()))
        at = found.end()
    return tokens


def _commands(tokens: list[tuple[str, int, int]], data: bytes) -> tuple[PlainCommand, ...] | None:
    """The commands that the tokens make. `None`: two operators meet, or a word is not literal."""
    made: list[PlainCommand] = []
    words: list[PlainWord] = []
    redirections: list[Redirection] = []
    after, opened = "", ""
    for kind, at, end in [*tokens, ("operator", len(data), len(data))]:
        raw = data[at:end].decode("latin-1")
        if opened and kind != "word":
            return None
        if kind == "word":
            word = _word(raw)
            if word is None:
                return None
            if not opened:
                words.append(word)
            elif word.glob or "://" in word.text or word.text.startswith(("/dev/tcp/", "/dev/udp/")):
                return None
            elif word.text not in NO_FILES or word.home:
                redirections.append(Redirection(word, writes=opened != "<"))
            opened = ""
        elif kind == "redirect":
            opened = raw.rstrip(" \t")
        elif kind == "operator":
            operator = raw if raw not in {"", "\n"} else ";"
            if words:
                if not _is_name(words[0]):
                    return None
                made.append(PlainCommand(tuple(words), tuple(redirections), after, after == "|" or operator == "|"))
                words, redirections, after = [], [], operator
            elif redirections or (raw not in {"", "\n"}) or (not raw and after not in {"", ";"}):
                return None  # an operator without a command before it or behind it
    return tuple(made)


def _is_name(word: PlainWord) -> bool:
    return word.literal and _NAME.fullmatch(word.text) is not None and word.text not in _KEYWORDS


def _word(raw: str) -> PlainWord | None:
    """The word that bash makes of `raw`. `None`: it is more than a literal or a glob."""
    parts: list[str] = []
    bare: list[str] = []
    """The characters outside of quotes; a quoted part is one NUL."""
    at = 0
    while (found := _PIECE.match(raw, at)) is not None:
        at = found.end()
        escaped, single, double, plain = found.groups()
        if double is not None and "\\" in double and not double.isascii():
            return None  # in some encodings a backslash is the second half of a character
        parts.append(
            plain or escaped or (single if single is not None else _IN_QUOTES.sub(r"\1", double) if double else "")
        )
        bare.append(plain or "\0")
    shape = "".join(bare)
    home = shape.startswith("~")
    if home and shape != "~" and not shape.startswith("~/"):
        return None  # ~name, ~+
    braces = shape[shape.find("{") : shape.rfind("}")] if "{" in shape else ""
    if "=~" in shape or ":~" in shape or "," in braces or ".." in braces:
        return None
    text = "".join(parts).encode("latin-1").decode("utf-8", "surrogateescape")
    return PlainWord(text, glob=not {"*", "?", "["}.isdisjoint(shape), home=home)


# ---------------------------------------------------------------------- the grammar


def _spans_of_grammar(data: bytes) -> list[tuple[int, int]] | None:
    """The spans of the words, as the grammar reads them. `None`: it reads something else, too."""
    root = bash_parser().parse(data).root_node
    if root.has_error:
        return None
    spans: list[tuple[int, int]] = []
    for node in nodes_of(root):
        if node.type not in _NODES or node.is_missing:
            return None
        if node.type == "command":
            spans += (
                (child.start_byte, child.end_byte) for child in node.named_children if child.type != "file_redirect"
            )
        elif node.type == "file_redirect":
            to = node.child_by_field_name("destination")
            if to is not None and not (to.type == "number" and any(child.type == ">&" for child in node.children)):
                spans.append((to.start_byte, to.end_byte))
    return sorted(spans)


def nodes_of(root: Node) -> Iterator[Node]:
    """All nodes below `root`, and itself."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)
