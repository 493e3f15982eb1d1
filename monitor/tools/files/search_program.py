"""Looks through the files of a folder. Uses the standard library only, because it is also run as a
program: `python -I -S _search.py REQUEST` prints what `grep` finds.

A pattern that a model wrote may take exponential time, and a thread cannot be stopped. So `grep`
runs in a process of its own, which is killed when its time is over.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

IGNORED = (
    *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache"),
    *(".ruff_cache", ".pytest_cache", ".gradle", "target/debug", "target/release", ".next", ".idea"),
)
"""Folders that are looked into only if they are asked for by name."""
ALTERNATIVES = 64
"""The most patterns that braces may stand for."""
FILE_BYTES = 8 * 1024 * 1024
"""A file with more bytes is not searched."""
LINE_CHARS = 400
"""If a line is longer, only the part around the match is shown."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0) | _NO_LINK
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def walk(root: str, start: str, ignored: Sequence[str] = IGNORED) -> Iterator[tuple[str, list[str], list[str], int]]:
    """The folders from `start` down, in order of name: path relative to `root` with a slash, names
    of folders and of files, and a descriptor of the folder. Links are named and not followed.
    """
    inner = os.path.relpath(Path(root, start), root)
    first: tuple[str, ...] = () if inner == "." else tuple(inner.split("/"))
    waiting = [first]
    last: tuple[tuple[str, ...], int] | None = None
    try:
        while waiting:
            parts = waiting.pop()
            from_last = last is not None and parts[:-1] == last[0] and parts != first
            descriptor = _folder(root, parts) if not from_last or last is None else _below(last[1], "".join(parts[-1:]))
            if descriptor is None:
                continue
            if last is not None:
                os.close(last[1])
            last = parts, descriptor
            prefix = "".join(f"{part}/" for part in parts)
            below, names = _entries(descriptor)
            below = sorted(name for name in below if not _is_ignored(prefix + name, ignored))
            yield prefix, below, sorted(names), descriptor
            waiting += [(*parts, name) for name in reversed(below)]
    finally:
        if last is not None:
            os.close(last[1])


def _folder(root: str, parts: Sequence[str]) -> int | None:
    """A descriptor of a folder, each part opened from the one before. `None`: it cannot be read."""
    descriptor = _below(None, root)
    for part in parts:
        if descriptor is None:
            return None
        above, descriptor = descriptor, _below(descriptor, part)
        os.close(above)
    return descriptor


def _below(parent: int | None, name: str) -> int | None:
    try:
        return os.open(name, _FOLDER if parent is not None else _FOLDER & ~_NO_LINK, dir_fd=parent)
    except OSError:
        return None


def _entries(descriptor: int) -> tuple[list[str], list[str]]:
    """The names of the folders in a folder, and those of everything else in it."""
    below: list[str] = []
    names: list[str] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            try:
                is_folder = entry.is_dir(follow_symlinks=True)
            except OSError:
                is_folder = False
            (below if is_folder else names).append(entry.name)
    return below, names


def _is_ignored(path: str, ignored: Sequence[str]) -> bool:
    return any(path == name or path.endswith(f"/{name}") for name in ignored)


def alternatives(pattern: str) -> list[str]:
    """The patterns that the braces in a pattern stand for: `*.{py,md}` is `*.py` and `*.md`. Raises
    `ValueError` for more than `ALTERNATIVES`.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        one = waiting.pop(0)
        end = one.find("}")
        start = one.rfind("{", 0, end) if end >= 0 else -1
        if start < 0 or "," not in one[start:end]:
            done.append(one)
        else:
            waiting += [one[:start] + choice + one[end + 1 :] for choice in one[start + 1 : end].split(",")]
        if len(done) + len(waiting) > ALTERNATIVES:
            raise ValueError(f"the braces stand for more than {ALTERNATIVES} patterns")
    return done


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern: `*` and `?` within one part, `**` any number of parts."""
    names, wanted = tuple(path.rstrip("/").split("/")), _parts(pattern)
    reached = {0}
    for part in wanted:
        if part == "**":
            reached = set(range(min(reached), len(names) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatch.fnmatchcase(names[at], part)}
    return len(names) in reached


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[str, ...]:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if parts[-1:] == ["**"]:  # what is in the folder, and not the folder
        parts.append("*")
    return tuple(part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"])


def compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    """The pattern that a model wrote, compiled. Raises `ValueError` if it is no pattern."""
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def grep(request: dict[str, Any], out: TextIO) -> None:
    """Print each line that matches as JSON: path, number, text. The last line is the count: lines
    that match, files with one, files searched, files too large.
    """
    pattern = compiled(request["pattern"], ignore_case=request["ignore_case"])
    found = hits = searched = large = 0
    for path, name, folder in _chosen(request):
        text = _text(name, folder)
        if text is None:
            continue
        if not text:
            large += 1
            continue
        searched += 1
        before = found
        for number, line in enumerate(text.split("\n"), 1):
            match = pattern.search(line.removesuffix("\r"))
            if match is not None:
                found += 1
                if found <= request["most"]:
                    out.write(json.dumps([path, number, _shown(line, match.start())]) + "\n")
        out.flush()
        hits += found > before
    out.write(json.dumps({"lines": found, "hits": hits, "searched": searched, "large": large}) + "\n")


def _chosen(request: dict[str, Any]) -> Iterator[tuple[str, str, int | None]]:
    """Path, name, and a descriptor of the folder of each file that is to be searched."""
    root, start = request["root"], request["start"]
    if (one := Path(root, start)).is_file():
        yield start, str(one), None
        return
    wanted = alternatives(request["files"]) if request["files"] else []
    for prefix, _, names, folder in walk(root, start, request["ignored"]):
        for name in names:
            if not wanted or any(matches(prefix + name if "/" in one else name, one) for one in wanted):
                yield prefix + name, name, folder


def _text(name: str, folder: int | None) -> str | None:
    """The text of an ordinary file. `""`: the file is too large. `None`: it has no text."""
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > FILE_BYTES:
            return ""
        content = file.read(FILE_BYTES)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace") or None
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig") or None
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _shown(line: str, at: int) -> str:
    if len(line) <= LINE_CHARS:
        return line
    start = max(0, min(at - LINE_CHARS // 4, len(line) - LINE_CHARS))
    before, after = "..." if start else "", "..." if start + LINE_CHARS < len(line) else ""
    return f"{before}{line[start : start + LINE_CHARS]}{after}"


if __name__ == "__main__":
    grep(json.loads(sys.argv[1]), sys.stdout)
