"""A line for a shell as plain words: simple commands of literal words and globs, joined by `;`,
`&&`, `||`, `|` and newlines. Whatever else bash evaluates makes a line not plain.

Two readers must agree about each word. One is a small regular language, which gives the words. The
other is the grammar of tree-sitter-bash (the extra `tools`), of which a short list of nodes is
accepted. Neither of them has to be right about the whole of bash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from monitor.errors import ConfigError, MissingExtra

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


# --------------------------------------------------------------------------------------------------
# The options of a command that can do no more than its name says.
#
# A command is proven if each of its words is a known option, the value of one, or an operand. An
# option that is not listed is not proven: it may write a file or run a program (`sort -o`, `git
# log --output`, `rg --pre`). So an abbreviated option is not proven either.

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
    git: bool = False
    """The command belongs to git. It is proven in a sandbox, where what a repository names may run.
    """
    unboxed: KnownOptions | None = None
    """The options of a command of git with which the environment overrules all that a repository
    names. `None`: it does so with none.
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
