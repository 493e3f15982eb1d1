"""The commands that a line starts, as far as its words say.

A line is certain if it is plain and none of its commands starts others. Where a launcher, a shell
or an interpreter stands in front, its options are not read: each of its words may be where another
command begins, and a word with blanks may be a line. So a rule that refuses finds what the words
say, and asks about the rest. What no words say (a script, an alias) is for the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from monitor.tools.approvals.known_commands import is_proven
from monitor.tools.approvals.plain_words import PlainWord, bash_parser, nodes_of, plain_line

Words: TypeAlias = tuple[PlainWord, ...]
_DEPTH: Final = 4
"""The most lines within each other that are read."""
_STARTERS: Final = """
    . source alias unalias export declare typeset local readonly unset shopt hash enable trap mapfile readarray
    read let getopts bind complete compgen fc history function coproc eval exec command builtin set env xargs
    find git make gmake bmake just rake task npm pnpm yarn bun sed gsed awk gawk mawk nawk bash sh dash zsh ksh
    ash rbash mksh fish yash csh tcsh python pypy perl ruby node nodejs deno php lua luajit julia rscript r
    groovy elixir ghc ocaml scala swift guile tclsh expect m4 ed ex nohup setsid nice ionice stdbuf timeout
    gtimeout time chrt taskset caffeinate chronic busybox toybox doas sudo su parallel watch script flock
    unshare nsenter chroot systemd-run runuser pkexec ssh at batch crontab screen tmux socat gdb strace ltrace
    valgrind entr start-stop-daemon run-parts dbus-run-session fakeroot bwrap firejail proot osascript launchctl
    setarch linux32 linux64 hyperfine unbuffer printf test
"""
"""Programs that start others, or run a text."""
_STARTER_NAMES: Final = frozenset(_STARTERS.split())
_PASS_WORDS_ON: Final = """
    xargs find nohup setsid nice ionice stdbuf timeout gtimeout time sudo doas env set
"""
"""Programs that start nothing but what their words say."""
_OF_GIT: Final = """
    pull fetch checkout switch stash merge clone push reset restore rm mv tag init add
"""
"""Commands of git that start nothing. Another one may be an alias."""


@dataclass(slots=True)
class StartedCommands:
    """The commands of a line, and all that they may start."""

    commands: list[Words]
    certain: bool = True
    """The line starts nothing else."""


def name_of_program(word: PlainWord) -> str:
    """The name of a program without its folder and `.exe`, in small letters."""
    return word.text.rpartition("/")[2].casefold().removesuffix(".exe")


def _is_starter(name: str) -> bool:
    """Whether a program of this name, of any version, may start others."""
    return not _STARTER_NAMES.isdisjoint({name, name.rstrip("0123456789.-")}) or name.startswith("git-")


def started_by(text: str, depth: int = _DEPTH) -> StartedCommands:
    """The commands that the line `text` may start."""
    plain = plain_line(text) if depth else None
    found = StartedCommands([], certain=plain is not None)
    commands = [one.words for one in plain] if plain is not None else _seen_in(text) if depth else ()
    for words in filter(None, commands):
        found.commands.append(tuple(words))
        name = name_of_program(words[0])
        if is_proven(words) or (words[0].literal and "/" not in words[0].text and not _is_starter(name)):
            continue
        says_all = _says_all(name, words[1:])
        found.certain &= says_all
        for at in range(1, len(words)):
            found.commands.append(tuple(words[at:]))
            for line in {words[at].text, words[at].text.partition("=")[2]}:
                if " " in line:
                    found.commands += started_by(line, depth - 1).commands
        if name.startswith("git-"):
            found.commands.append((PlainWord("git"), PlainWord(name.removeprefix("git-")), *words[1:]))
        elif name == "git" and not says_all:
            found.commands += [(words[0], *words[at:]) for at in range(2, len(words))]
    return found


def _says_all(name: str, words: Sequence[PlainWord]) -> bool:
    """Whether the words behind a starter say all that it starts."""
    if not all(word.literal or word.text == "{}" for word in words):
        return False
    if name == "git":
        return (
            bool(words)
            and words[0].text in _OF_GIT.split()
            and not any(word.text.startswith(("-c", "--exec")) for word in words)
        )
    names = {name_of_program(word) for word in words}
    if name not in {"env", "set"} and all(one.startswith("-") for one in names):
        return False  # it may read what it runs
    return name in _PASS_WORDS_ON.split() and not any("=" in one or _is_starter(one) for one in names)


def _seen_in(text: str) -> Iterable[Sequence[PlainWord]]:
    """The commands that the grammar sees in a line which is not plain. There may be more."""
    try:
        nodes = nodes_of(bash_parser().parse(text.encode()).root_node)
    except UnicodeEncodeError:
        return
    for node in nodes:
        if node.type == "command":
            words = (bytes(child.text or b"").decode("utf-8", "replace") for child in node.named_children)
            yield [_word(word) for word in words]


def _word(text: str) -> PlainWord:
    """A word of a line as its text, or as one that is not known."""
    match plain_line(f": {text}"):
        case [command] if len(command.words[1:]) == 1:
            return command.words[1]
    return PlainWord("", known=False)
