"""The files that a command runs: a script that it names, and files that say what a program runs,
such as a Makefile. Whether they start a command is seen by its words in their text.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from monitor.tools.approvals.path_patterns import is_path
from monitor.tools.approvals.plain_words import PlainWord
from monitor.tools.approvals.started.command_words import name_of_program
from monitor.tools.approvals.started.interpreters import is_interpreter, is_shell

Prefixes: TypeAlias = Sequence[Sequence[str]]
_MOST_BYTES: Final = 1_000_000
"""The beginning of a script that is read."""
_MOST_FILES: Final = 100
"""The most scripts that are read for one command."""
_MOST_PIECES: Final = 2_000
"""The most words of a script that are looked at as names of further scripts."""
_PARTS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_PIECES: Final = re.compile(r"[^\s'\"`$();&|<>={},\[\]]+")
_SCRIPT: Final = re.compile(r".*\.(?:sh|bash|zsh|py|pl|rb|js|mjs|cjs|ts|mk|lua|php)")
_MAKERS: Final = {
    **dict.fromkeys(("make", "gmake", "bmake"), ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile"),
    "rake": ("Rakefile",),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
}
_PACKAGERS: Final = frozenset({"npm", "pnpm", "yarn", "bun"})
_LIFE: Final = frozenset({"install", "prepare", "prepublish", "prepublishOnly", "publish", "pack", "version"})
"""Scripts of a package that run beside those that are named."""


def runs_files(words: Sequence[PlainWord]) -> tuple[str, ...]:
    """The words of a command that may name a script which it runs, the script itself first."""
    name = words[0]
    if "/" in name.text:
        return (name.text,)
    if not (is_interpreter(name) or is_shell(name) or name.text in {".", "source"}):
        return ()
    found: list[str] = []
    after = ""
    for word in words[1:]:
        if after == "-m":
            path = word.text.replace(".", "/")
            found += [f"{path}.py", f"{path}/__main__.py"]
        elif not word.text.startswith("-"):
            found.append(word.text)
        after = word.text
    return tuple(found)


def writes_first(words: Sequence[PlainWord], directories: Sequence[Path]) -> bool:
    """Whether the script that a command names is not there yet: the line may write it first."""
    named = runs_files(words)
    if not named or any(word.text.startswith("-m") for word in words):
        return False
    return not any((one / name).exists() for name in named if is_path(name) for one in directories)


def may_start(words: Sequence[PlainWord], prefixes: Prefixes, directories: Sequence[Path]) -> bool:
    """Whether a file that the command runs, or one that this one runs, may start a command that
    begins with one of `prefixes`. Of a script that the command names, the name of the program is
    enough; elsewhere the words have to stand in one line.
    """
    named = [text for text in runs_files(words) if is_path(text)]
    left = [(one / text, at == 0) for at, text in enumerate(named) for one in directories]
    for told in told_files(words):
        left += [(one / told, False) for one in directories]
    if name_of_program(words[0]) in _PACKAGERS and any(_package(one, words, prefixes) for one in directories):
        return True
    seen: set[str] = set()
    while left and len(seen) < _MOST_FILES:
        path, first = left.pop()
        real = os.path.realpath(path)
        if _is_special(path):
            return True
        if real in seen or (text := _text(path)) is None:
            continue
        seen.add(real)
        if any(prefix[0] in _PARTS.split(text) for prefix in prefixes if first) or _says(text, prefixes):
            return True
        left += [(one / piece, False) for piece in _pieces(text) for one in directories if _is_script(one / piece)]
    return bool(left)


def told_files(words: Sequence[PlainWord]) -> Iterator[str]:
    """The files that say what a program such as `make` runs, named or not."""
    if (usual := _MAKERS.get(name_of_program(words[0]))) is not None:
        yield from usual
        for word in words[1:]:
            yield word.text
            yield word.text.removeprefix("-f")


def _package(directory: Path, words: Sequence[PlainWord], prefixes: Prefixes) -> bool:
    """Whether a script of `package.json` that the words name starts one of `prefixes`."""
    try:
        scripts = json.loads(_text(directory / "package.json") or "{}").get("scripts", {})
        texts = {str(name): str(text) for name, text in scripts.items()}
    except (ValueError, AttributeError, RecursionError):
        return False
    named = {word.text for word in words[1:]} | _LIFE
    run: set[str] = set()
    while more := {name for name in texts if name not in run and not named.isdisjoint({name, _plain(name)})}:
        run |= more
        named |= {piece for name in more for piece in texts[name].split()}
    return any(_says(texts[name], prefixes) for name in run)


def _plain(name: str) -> str:
    """The name of the script that this one runs before or after."""
    return name.removeprefix("pre").removeprefix("post")


def _is_special(path: Path) -> bool:
    """Whether the path names the input of a command, or something of the system, and no file."""
    for text in (os.path.normpath(path), os.path.realpath(path)):
        if text.startswith(("/dev/", "//dev/", "/proc/", "//proc/")):
            return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _is_script(path: Path) -> bool:
    """Whether a file that a script mentions looks like one that it runs."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    runs = bool(status.st_mode & stat.S_IXUSR) or _SCRIPT.fullmatch(path.name) is not None
    return stat.S_ISREG(status.st_mode) and runs


def _pieces(text: str) -> Iterable[str]:
    found = dict.fromkeys(one[0] for _, one in zip(range(_MOST_PIECES), _PIECES.finditer(text), strict=False))
    return [piece for piece in found if is_path(piece)]


def _says(text: str, prefixes: Prefixes) -> bool:
    """Whether a line has the words of one of `prefixes`, in their order."""
    for line in text.splitlines():
        words = _PARTS.split(line)
        for prefix in prefixes:
            if prefix[0] in words and _in_order(words[words.index(prefix[0]) :], prefix):
                return True
    return False


def _in_order(words: Sequence[str], prefix: Sequence[str]) -> bool:
    left = iter(words)
    return all(part in left for word in prefix for part in _PARTS.split(word) if part)
