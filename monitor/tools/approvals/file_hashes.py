"""The files whose content decides what a call does: the script that runs, the file that a write
replaces. An answer holds for their content, so their hashes are a part of the question.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from monitor.tools.approvals.allowed_commands import in_directories
from monitor.tools.approvals.judged_call import JudgedCall, texts_in
from monitor.tools.approvals.known_commands import table_of
from monitor.tools.approvals.path_patterns import is_path
from monitor.tools.approvals.plain_words import PlainCommand
from monitor.tools.secrets.masking import masked

MISSING: Final = "missing"
"""Stands for the hash of a file that is not there."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The size from which size, inode and time of the last change stand for the content of a file."""
_MOST_FILES: Final = 1_000
_PIECES: Final = re.compile(r"[^\s'\"`$();&|<>={}]+")
"""The parts of a line that is not plain, any of which may name a file."""
_IMPLIED: Final = {
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun", "node"), ("package.json", ".npmrc")),
    **dict.fromkeys(("pytest", "py.test", "tox", "nox", "python", "python3", "uv", "pip", "pip3", "poetry", "hatch"),
                    ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "pytest.ini", "conftest.py")),
    **dict.fromkeys(("cargo",), ("Cargo.toml", "build.rs", ".cargo/config.toml")),
    **dict.fromkeys(("go",), ("go.mod",)),
    **dict.fromkeys(("git",), (".git/config",)),
    **dict.fromkeys(("just",), ("justfile", "Justfile")),
    **dict.fromkeys(("docker", "docker-compose"), ("Dockerfile", "compose.yaml", "docker-compose.yml")),
    **dict.fromkeys(("gradle", "mvn", "rake", "bundle"), ("build.gradle", "pom.xml", "Rakefile", "Gemfile")),
}  # fmt: skip
"""Files that a program reads without being told, and that say what it runs."""


def deciding_files(call: JudgedCall) -> dict[str, str]:
    """The hash of each file whose content decides what the call does, by its path: within the
    workspace relative to it. A file that would be made has the hash `MISSING`.
    """
    if call.kind == "read":
        return {}
    paths = _of_line(call) if call.line is not None else _of_texts(call)
    hashes: dict[str, str] = {}
    for path in paths:
        real = Path(os.path.realpath(path))
        name = str(real.relative_to(call.place.root)) if real.is_relative_to(call.place.root) else str(real)
        if name not in hashes and (digest := hash_of(real)) is not None:
            hashes[name] = digest
            if len(hashes) >= _MOST_FILES:
                break
    return hashes


def hash_of(path: Path) -> str | None:
    """32 hexadecimal digits of the content of a file, or `MISSING`. `None`: it is no file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > _MOST_BYTES:
            return f"{status.st_size:x}-{status.st_ino:x}-{status.st_mtime_ns:x}"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except FileNotFoundError:
        return MISSING if path.parent.is_dir() else None
    except (OSError, ValueError):
        return "unreadable"


def _of_texts(call: JudgedCall) -> Iterator[Path]:
    """The places that the texts of a call name. Which of them are paths is not known, so only those
    are bound that are files, or that look like one.
    """
    for text in (*texts_in(masked(call.arguments)), *call.place.changes):
        if is_path(text):
            path = call.place.root / text
            if os.path.lexists(path) or (text.isprintable() and not re.search(r"\s", text)):
                yield path


def _of_line(call: JudgedCall) -> Iterator[Path]:
    if call.plain is None:
        for text in _PIECES.findall(call.line or ""):
            yield from _existing([text], [call.place.directory])
        return
    for command, directories in in_directories(call.plain, call.place.directory):
        known = [one for one in directories if one is not None]
        for redirection in command.redirections:
            if redirection.writes:
                yield from (one / redirection.path.text for one in known if is_path(redirection.path.text))
        if not is_harmless(command):
            implied = _IMPLIED.get(command.texts[0].rpartition("/")[2], ())
            yield from _existing([*_texts(command), *implied], known)


def is_harmless(command: PlainCommand) -> bool:
    """Whether a table says that a command only reads and prints, whatever its files hold."""
    found = table_of(command.words)
    return found is not None and not found[1].runs and found[1].unproven(command.words[found[0] :]) is None


def _texts(command: PlainCommand) -> Iterator[str]:
    for word in command.words:
        yield word.text
        yield from (part for part in re.split(r"[=:@,]", word.text) if part != word.text)


def _existing(texts: Iterable[str], directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        for text in filter(is_path, texts):
            if (directory / text).is_file():
                yield directory / text
            elif not {"*", "?", "["}.isdisjoint(text) and not text.startswith("/"):
                with suppress(ValueError, NotImplementedError):
                    yield from islice(directory.glob(text.replace("**", "*")), _MOST_FILES)  # as bash reads it
