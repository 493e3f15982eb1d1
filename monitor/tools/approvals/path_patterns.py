"""Whether a path fits a pattern, by the place that it names and not by its spelling.

`./.env`, `a/../.env`, an absolute path and a link to it are one file. A pattern is compared with
the real path: within the workspace relative to it, elsewhere absolute.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, TypeAlias

from monitor.tools.approvals.known_commands import is_proven, names_of_glob, table_of
from monitor.tools.approvals.plain_words import PlainWord

Match: TypeAlias = Literal["yes", "maybe", ""]
MOST_CHARS: Final = 4_096
"""A longer text is no path."""
MOST_ENTRIES: Final = 20_000
"""The most entries below a folder that are looked at; of a larger folder it is not known."""
_MOST_FOLDERS: Final = 20
"""The most folders of one command that are looked through."""
_LEAST_PART: Final = 3
"""The least characters of a pattern that are looked for within words."""
_WILD: Final = re.compile(r"[*?\[]")
_PARTS: Final = re.compile(r"[=:@,]")
_ELSEWHERE: Final = re.compile(
    r"/proc/(?:self|thread-self|[0-9]+)/(?:task/[0-9]+/)?(?:cwd|root|fd|map_files)(?:/.*)?|/dev/fd/.*"
)
"""Links that lead to another place in each process."""


def is_path(text: str) -> bool:
    """Whether `text` can be a path, and no address or longer text."""
    return 0 < len(text) <= MOST_CHARS and "\n" not in text and "\0" not in text and "://" not in text


def allows(text: str, pattern: str, root: Path) -> bool:
    """Whether the place that `text` names fits `pattern`. A link is the place that it leads to."""
    if not (is_path(text) and is_path(pattern)):
        return fnmatchcase(text, pattern)
    real = os.path.realpath(root / os.path.expanduser(text))  # noqa: PTH111 - of a text
    if _ELSEWHERE.fullmatch(os.path.normpath(root / text)):
        return False
    if _WILD.search(pattern) is None:
        return real == os.path.normpath(root / pattern) or (text == pattern and _within(real, root) == text)
    return any(fnmatchcase(spelling, pattern) for spelling in {_within(real, root), real})


def denies(text: str, pattern: str, root: Path, directories: Sequence[Path]) -> Match:
    """Whether `text` may name a place that fits `pattern`, or lies below such a place, if it is
    read in one of `directories`.
    """
    if fnmatchcase(text, pattern):
        return "yes"
    if not is_path(text):
        return ""
    literal = _WILD.search(pattern) is None
    target = os.path.realpath(root / pattern) if literal else ""
    for directory in directories:
        plain = os.path.normpath(directory / os.path.expanduser(text))  # noqa: PTH111 - of a text
        if _ELSEWHERE.fullmatch(plain):
            return "maybe"
        real = os.path.realpath(plain)
        if target and (real == target or real.startswith(f"{target}/")):
            return "yes"
        for spelling in (real, plain, _within(real, root), _within(plain, root)):
            if any(_same(above, pattern) for above in _above(spelling)):
                return "yes"
    return ""


def denied_words(words: Sequence[PlainWord], pattern: str, root: Path, directories: Sequence[Path]) -> Match:
    """Whether one of the words of a command may name a place that fits `pattern`."""
    found: Match = ""
    for word in words:
        if not word.known or (word.glob and any(names_of_glob(word.text, one) is None for one in directories)):
            found = found or "maybe"
        for text in _meanings(word, directories):
            match = denies(text, pattern, root, directories)
            if match == "yes":
                return "yes"
            found = found or match
    return found


def touches_below(words: Sequence[PlainWord], pattern: str, root: Path, directories: Sequence[Path]) -> bool:
    """Whether a command may read a file that fits `pattern` below a folder that it names. A command
    that is not proven is also searched for the text of the pattern: it may be a program.
    """
    found = table_of(words)
    rest = words[found[0] :] if found is not None else words[1:]
    if not is_proven(words):
        part = max(_WILD.split(pattern.replace("]", "*")), key=len).strip("/")
        if len(part) >= _LEAST_PART and any(part in word.text for word in rest):
            return True
    elif found is not None and not _reads_below(found[1].reads_below, rest):
        return False
    texts = [word.text for word in rest if not word.text.startswith("-")]
    if found is not None and not any((one / text).exists() for one in directories for text in texts if is_path(text)):
        texts.append(".")  # where no folder is named, it begins here
    folders = {one / text for one in directories for text in texts if is_path(text)}
    return len(folders) > _MOST_FOLDERS or any(may_hold(one, pattern, root) for one in folders)


def _reads_below(options: frozenset[str], words: Sequence[PlainWord]) -> bool:
    if "" in options:
        return True
    for word in words:
        name = word.text.partition("=")[0]
        for option in options:
            if option.startswith("--"):
                if len(name) > 2 and option.startswith(name):  # noqa: PLR2004 - options may be abbreviated
                    return True
            elif name.startswith("-") and not name.startswith("--") and option[1] in name:
                return True
    return False


def may_hold(folder: Path, pattern: str, root: Path) -> bool:
    """Whether a file below `folder` fits `pattern`, or may do so."""
    if not folder.is_dir():
        return False
    if _WILD.search(pattern) is None:
        target = Path(os.path.realpath(root / pattern))
        return os.path.lexists(target) and target.is_relative_to(folder.resolve())
    seen = 0
    left = [os.path.realpath(folder)]  # a list, because folders may be nested deeper than calls
    while left:
        place = left.pop()
        try:
            entries = list(os.scandir(place))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # a search by descriptors goes on
                return True
            continue
        for entry in entries:
            seen += 1
            if seen > MOST_ENTRIES or _fits(entry, pattern, root):
                return True
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
    return False


def _fits(entry: os.DirEntry[str], pattern: str, root: Path) -> bool:
    """Whether an entry of a real folder fits `pattern`. The folders above it do not."""
    if entry.is_symlink():
        return denies(entry.name, pattern, root, [Path(entry.path).parent]) != ""
    spellings = (entry.name, entry.path, entry.path.removeprefix(f"{root}/"))
    return any(_same(spelling, pattern) for spelling in spellings)


def _meanings(word: PlainWord, directories: Sequence[Path]) -> Iterator[str]:
    """The texts in a word that may be paths: `--file=.env`, `HEAD:.env`, `@.env`, `-f.env`."""
    texts = [word.text, *_tails(word.text)]
    if word.text.startswith("-") and len(word.text) > 2:  # noqa: PLR2004 - a dash and a letter
        texts.append(word.text[2:])
    for text in texts:
        yield text
        if word.glob and is_path(text):
            home = os.path.expanduser(text)  # noqa: PTH111 - of a text
            for directory in directories:
                yield from names_of_glob(home, directory) or ()


def _tails(text: str) -> list[str]:
    parts = _PARTS.split(text) if len(text) <= MOST_CHARS else []
    return parts if len(parts) > 1 else []


def _above(spelling: str) -> Iterator[str]:
    """`spelling` and the folders above it."""
    yield spelling
    at = spelling.rfind("/")
    while at > 0:
        yield spelling[:at]
        at = spelling.rfind("/", 0, at)


def _same(text: str, pattern: str) -> bool:
    """Whether they fit, also on a file system that does not tell large letters from small ones."""
    return fnmatchcase(text, pattern) or fnmatchcase(text.casefold(), pattern.casefold())


def _within(path: str, root: Path) -> str:
    """`path` relative to `root`, if it lies in it."""
    try:
        return str(Path(path).relative_to(root))
    except ValueError:
        return path
