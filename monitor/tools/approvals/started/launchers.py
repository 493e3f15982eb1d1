"""The commands that a command starts: `sudo git push`, `bash -c 'git push'`, `xargs git`.

Each launcher has a parser of its own options. What a launcher runs may not be readable: a script on
its standard input, a program in another language, an alias. Then the command is not certain, and a
rule that refuses has to ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from monitor.tools.approvals.known_commands import is_proven
from monitor.tools.approvals.plain_words import PlainWord, bash_parser, known_options, nodes_of, plain_line
from monitor.tools.approvals.started.command_words import Words, after_options, name_of_program
from monitor.tools.approvals.started.git_commands import git_command
from monitor.tools.approvals.started.interpreters import SHELLS, has_code, is_interpreter, reads_a_program
from monitor.tools.approvals.started.scripts import runs_files, told_files
from monitor.tools.approvals.started.sed_scripts import may_run_a_program

_DEPTH: Final = 8
"""The most launchers within each other that are read."""
_UNKNOWN: Final = PlainWord("", known=False)


@dataclass(slots=True)
class StartedCommands:
    """The commands of a line, and all that they start."""

    commands: list[Words]
    certain: bool = True
    """The line starts nothing else, as far as it can be read."""

    def unsure(self) -> None:
        """Something is started that cannot be read."""
        self.certain = False


def started_by(text: str) -> StartedCommands:
    """The commands that the line `text` starts."""
    found = StartedCommands([])
    _read(text, found, _DEPTH)
    return found


def _read(text: str, found: StartedCommands, depth: int) -> None:
    commands = plain_line(text) if depth else None
    if commands is None:
        found.unsure()
        if depth:
            for words in _seen_in(text):
                _take(words, found, depth)
        return
    writes = False
    said: set[str] = set()
    for command in commands:
        _take(command.words, found, depth)
        if (writes and runs_files(command.words)) or _are_named(command.words, said):
            found.unsure()  # the line may have written what it runs
        writes |= any(one.writes for one in command.redirections) or name_of_program(command.words[0]) in _WRITERS
        if not is_proven(command.words):
            said.update(word.text for word in command.words[1:])
        said.update(one.path.text for one in command.redirections if one.writes)
        given = command.after == "|" or any(not one.writes for one in command.redirections)
        if given and _reads_a_program(command.words):
            found.unsure()


def _seen_in(text: str) -> list[Words]:
    """The commands that the grammar sees in a line which is not plain: wherever they stand, in a
    loop, a substitution, a function. There may be more.
    """
    try:
        root = bash_parser().parse(text.encode()).root_node
    except UnicodeEncodeError:
        return []
    seen: list[Words] = []
    for node in nodes_of(root):
        if node.type == "command":
            words: list[PlainWord] = []
            for child in node.named_children:
                if child.type not in {
                    "variable_assignment",
                    "file_redirect",
                    "herestring_redirect",
                    "heredoc_redirect",
                }:
                    plain = plain_line(f": {bytes(child.text or b'').decode('utf-8', 'replace')}")
                    one = plain[0].words[1:] if plain is not None and len(plain) == 1 else ()
                    words.append(one[0] if len(one) == 1 else _UNKNOWN)
            if words:
                seen.append(tuple(words))
    return seen


def _take(words: Sequence[PlainWord], found: StartedCommands, depth: int) -> None:
    """Put a command into `found`, and the commands that it starts."""
    if not words or not depth:
        return found.unsure() if words else None
    if not words[0].literal:
        return found.unsure()
    found.commands.append(tuple(words))
    name = name_of_program(words[0])
    if name.startswith("git-"):
        found.commands.append((PlainWord("git"), PlainWord(name[4:]), *words[1:]))
    launcher = _LAUNCHERS.get(name)
    if launcher is not None:
        return launcher(tuple(words), found, depth)
    if name in _UNREAD:
        return found.unsure()
    return found.unsure() if has_code(words) else None


def _are_named(words: Sequence[PlainWord], said: set[str]) -> bool:
    """Whether an earlier command was given the name of a file that says what this one runs."""
    if any(name in said for name in told_files(words)):
        return True
    return any(one and name.removeprefix("./").startswith(one) for name in runs_files(words) for one in said)


def _reads_a_program(words: Sequence[PlainWord]) -> bool:
    """Whether the command runs what is its input."""
    if name_of_program(words[0]) in {"make", "gmake"}:
        return any(word.text == "-" or re.fullmatch(r"-[A-Za-z]*f-?", word.text) for word in words[1:])
    return reads_a_program(words)


# ---------------------------------------------------------------------- parsers of launchers

_Launcher: TypeAlias = Callable[[Words, StartedCommands, int], None]


def _runs(spec: str, *, skip: int = 0, assigns: bool = False) -> _Launcher:
    """A launcher whose command stands behind its options and `skip` operands."""
    options = known_options(spec)

    def launch(words: Words, found: StartedCommands, depth: int) -> None:
        rest = after_options(words, options, skip)
        if rest is None:
            return found.unsure()
        if assigns:
            while rest and "=" in rest[0].text:
                rest = rest[1:]
                found.unsure()  # a variable such as PATH or BASH_ENV changes what is run
        if not rest and name_of_program(words[0]) != "env":
            return found.unsure()  # it may read what it runs
        return _take(rest, found, depth - 1)

    return launch


def _env(words: Words, found: StartedCommands, depth: int) -> None:
    for at, word in enumerate(words[1:], start=1):
        text = word.text
        if text.startswith("-") and (text.startswith(("-S", "--split")) or "S" in text.split("=")[0][1:]):
            inner = text.partition("=")[2] if text.startswith("--") and "=" in text else text.partition("S")[2]
            rest = words[at + 1 :]
            if not inner and rest:
                inner, rest = rest[0].text, rest[1:]
            parts = inner.split()
            if not re.fullmatch(r"[A-Za-z0-9_./=:, -]*", inner):
                found.unsure()
            while parts and "=" in parts[0]:
                parts = parts[1:]
                found.unsure()
            return _take((*map(PlainWord, parts), *rest), found, depth - 1)
        if not text.startswith("-"):
            break
    return _ENV(words, found, depth)


def _shell(words: Words, found: StartedCommands, depth: int) -> None:
    """`bash -c LINE`, whatever options stand around `-c`. A shell that reads its lines from
    elsewhere is not certain.
    """
    has_line = False
    at = 1
    while at < len(words):
        text = words[at].text
        if not words[at].literal:
            return found.unsure()
        if text in {"--", "-"}:
            at += 1
            break
        if text[:1] not in {"-", "+"}:
            break
        if text.startswith("--"):
            at += 2 if text in {"--rcfile", "--init-file"} else 1
            continue
        has_line |= text[0] == "-" and "c" in text
        if "s" in text or "i" in text:
            found.unsure()
        at += 1 + sum(letter in "oO" for letter in text[1:])
    if has_line and at < len(words) and words[at].literal:
        return _read(words[at].text, found, depth - 1)
    if has_line or at >= len(words) or not words[at].literal or words[at].text.startswith("/dev/"):
        return found.unsure()
    return None  # it runs a file


def _eval(words: Words, found: StartedCommands, depth: int) -> None:
    rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    if not all(word.literal for word in rest):
        return found.unsure()
    return _read(" ".join(word.text for word in rest), found, depth - 1)


def _xargs(words: Words, found: StartedCommands, depth: int) -> None:
    rest = after_options(words, _XARGS)
    if rest is None:
        return found.unsure()
    marks = [
        word.text[2:] or words[at + 1].text for at, word in enumerate(words[:-1], start=0) if word.text[:2] == "-I"
    ]
    given = [replace(word, known=False) if any(mark and mark in word.text for mark in marks) else word for word in rest]
    if given and not marks:
        given.append(_UNKNOWN)
    if given:
        _take(tuple(given), found, depth - 1)
        if name_of_program(given[0]) in _LAUNCHERS or is_interpreter(given[0]):
            found.unsure()
    return None


def _find(words: Words, found: StartedCommands, depth: int) -> None:
    for at, word in enumerate(words):
        if word.text in {"-exec", "-execdir", "-ok", "-okdir"} or not word.known:
            inner: list[PlainWord] = []
            for one in words[at + 1 :]:
                if one.text in {";", "+"}:
                    break
                inner.append(replace(one, known=False) if "{}" in one.text else one)
            _take(tuple(inner), found, depth - 1)


def _command(words: Words, found: StartedCommands, depth: int) -> None:
    if len(words) > 1 and words[1].text in {"-v", "-V", "-pv", "-pV"}:
        return None
    return _COMMAND(words, found, depth)


def _git(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    rest, certain = git_command(words)
    if rest:
        found.commands.append((words[0], *rest))
    if not certain:
        found.unsure()


def _make(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    if any(word.text.startswith(("--ev", "-E")) or not word.known for word in words):
        found.unsure()


def _set(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    if not all(re.fullmatch(r"[-+][euxfv]*o?|pipefail|errexit|nounset|xtrace", word.text) for word in words[1:]):
        found.unsure()


def _printf(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    if not is_proven(words):
        found.unsure()


def _awk(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    texts = [word.text for word in words[1:]]
    if any(text.startswith(("-f", "-e", "-i", "-l", "-E")) or _OF_AWK.search(text) for text in texts):
        found.unsure()


def _sed(words: Words, found: StartedCommands, depth: int) -> None:
    del depth
    if may_run_a_program(words):
        found.unsure()


_OF_AWK: Final = re.compile(r"system|getline|[|@]")
_ENV: Final = _runs(
    """
    -i0v -u: -C: --ignore-environment --null --unset: --chdir: --block-signal= --default-signal=
    --ignore-signal= --debug --list-signal-handling
    """,
    assigns=True,
)
_XARGS: Final = known_options(
    """
    -0rtpxo -a: -d: -E: -I: -L: -n: -P: -s: -e= -i= -l= --null --no-run-if-empty --verbose --interactive
    --exit --open-tty --arg-file: --delimiter: --max-args: --max-procs: --max-lines= --max-chars:
    --replace= --eof= --show-limits --process-slot-var:
    """
)
_COMMAND: Final = _runs("-p")
_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(("make", "gmake", "bmake"), _make),
    "eval": _eval,
    "env": _env,
    "xargs": _xargs,
    "find": _find,
    "command": _command,
    "git": _git,
    "set": _set,
    "printf": _printf,
    "test": _printf,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    "builtin": _runs(""),
    "exec": _runs("-cl -a:"),
    "nohup": _runs("--version"),
    "setsid": _runs("-cfw --ctty --fork --wait"),
    "nice": _runs("-# -n: --adjustment:"),
    "ionice": _runs("-t -c: -n: -p: --class: --classdata: --ignore"),
    "stdbuf": _runs("-i: -o: -e: --input: --output: --error:"),
    "timeout": _runs("-v -k: -s: --foreground --preserve-status --verbose --kill-after: --signal:", skip=1),
    "gtimeout": _runs("-v -k: -s: --foreground --preserve-status --verbose --kill-after: --signal:", skip=1),
    "time": _runs("-pvqaV -f: -o: --portability --verbose --append --format: --output: --quiet"),
    "chrt": _runs("-abdfimorRv -T: -P: -D: --all-tasks --batch --fifo --idle --other --rr", skip=1),
    "taskset": _runs("-ac --all-tasks --cpu-list", skip=1),
    "caffeinate": _runs("-dimsu -t: -w:"),
    "chronic": _runs("-ev"),
    "busybox": _runs(""),
    "toybox": _runs(""),
    "doas": _runs("-nLs -u: -C:"),
    "sudo": _runs(
        """
    -AbEHKkNnPSilsv -u: -g: -p: -C: -D: -h: -r: -t: -T: -R: -U: -a: -c: --user: --group: --prompt:
    --chdir: --host: --role: --type: --command-timeout: --chroot: --askpass --background --preserve-env=
    --set-home --login --shell --non-interactive --stdin --remove-timestamp --reset-timestamp --validate
    --close-from: --bell
    """,
        assigns=True,
    ),
}
_WRITERS: Final = frozenset(
    {"tee", "cp", "mv", "ln", "dd", "install", "curl", "wget", "tar", "unzip", "base64", "xxd", "sed"}
)
"""Commands that can write a file without a redirection."""
_UNREAD: Final = frozenset(
    {".", "source", "alias", "unalias", "export", "declare", "typeset", "local", "readonly", "unset", "shopt", "hash"}
    | {
        "enable",
        "trap",
        "mapfile",
        "readarray",
        "read",
        "let",
        "getopts",
        "bind",
        "complete",
        "compgen",
        "fc",
        "history",
    }
    | {
        "function",
        "coproc",
        "parallel",
        "watch",
        "script",
        "flock",
        "unshare",
        "nsenter",
        "chroot",
        "systemd-run",
        "su",
    }
    | {
        "runuser",
        "pkexec",
        "ssh",
        "at",
        "batch",
        "crontab",
        "screen",
        "tmux",
        "expect",
        "socat",
        "gdb",
        "strace",
        "ltrace",
    }
    | {"valgrind", "entr", "m4", "ed", "ex", "tclsh", "start-stop-daemon", "run-parts", "dbus-run-session", "fakeroot"}
    | {"bwrap", "firejail", "proot", "osascript", "launchctl", "setarch", "linux32", "linux64", "hyperfine", "unbuffer"}
)
"""Commands that run others, or that change the meaning of later words, and are not read further."""
