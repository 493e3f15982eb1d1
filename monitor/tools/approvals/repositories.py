"""What git would run besides itself in a folder: settings, hooks and submodules can name programs.

Nobody is trusted by a name. The settings that git would read there are read here, and each of them
must be one that is known to run nothing. So a folder that was made to look like a repository
(`sub/HEAD`, `sub/config`) is judged like any other. Settings of the user and of the system are the
user's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

_MOST_BYTES: Final = 1_000_000
"""Larger settings are not read."""
_GITLINK: Final = b"\x00\x00\xe0\x00"
"""The mode of a submodule in the index, octal 160000."""
_MOST_ENTRIES: Final = 20_000
"""The most entries below a folder that are looked at."""
_HEAD: Final = re.compile(r"ref: refs/[!-~]+\n?|[0-9a-f]{40}\n?|[0-9a-f]{64}\n?")
"""A HEAD that git takes for one, whatever its version."""
_FOLDER: Final = re.compile(r"/?([A-Za-z0-9._-]+)/?")
"""A line of `.gitignore` that means a folder of this very name."""
_SECTION: Final = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"(?:[^"\\]|\\["\\])*")?\][ \t]*')
_SETTING: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=.*)?")
_HARMLESS: Final = (
    *(f"core.{name}" for name in ("repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase")),
    *(
        f"core.{name}"
        for name in ("precomposeunicode", "symlinks", "autocrlf", "safecrlf", "eol", "quotepath", "abbrev")
    ),
    *(f"core.{name}" for name in ("untrackedcache", "preloadindex", "compression", "longpaths", "protecthfs")),
    *(f"core.{name}" for name in ("sparsecheckout", "sparsecheckoutcone", "whitespace", "commentchar", "protectntfs")),
    *("remote.url", "remote.fetch", "remote.pushurl", "remote.prune", "remote.tagopt", "remote.gh-resolved"),
    *(
        "branch.*",
        "user.name",
        "user.email",
        "submodule.url",
        "submodule.active",
        "pull.rebase",
        "pull.ff",
        "push.default",
    ),
    *("push.autosetupremote", "fetch.prune", "init.defaultbranch", "rerere.enabled", "color.*", "advice.*", "gc.auto"),
    *("extensions.objectformat", "extensions.worktreeconfig", "extensions.refstorage", "lfs.repositoryformatversion"),
    *("rebase.autostash", "rebase.autosquash", "merge.conflictstyle", "diff.algorithm", "diff.renames", "log.date"),
)
"""Settings that run no program, in small letters."""


def unproven_repository(directory: Path, use: Literal["read", "commit"]) -> str | None:
    """Why git may run a program besides itself in `directory`. `None`: it runs none there. A folder
    that does not exist yet is judged by the one above it.
    """
    try:
        while not directory.exists() and directory != directory.parent:
            directory = directory.parent
        for own in _repositories_of(directory.resolve(strict=True)):
            if (why := _unproven(own, use)) is not None:
                return why
    except (OSError, ValueError) as error:
        return f"the repository cannot be read: {type(error).__name__}"
    return None


def holds_repository(directory: Path) -> bool:
    """Whether another repository may lie in the files of the repository of `directory`. Folders at
    its top that its `.gitignore` names are not looked into: they are not added.
    """
    above = (directory, *directory.parents)
    top = next((one for one in above if (one / ".git").is_file() or _is_repository(one / ".git")), directory)
    ignored = _ignored(top)
    left, seen = [str(top)], 0
    while left:
        place = left.pop()
        try:
            entries = list(os.scandir(place))
        except OSError:
            return True
        seen += len(entries)
        if seen > _MOST_ENTRIES or (place != str(top) and any(entry.name.casefold() == ".git" for entry in entries)):
            return True
        names = ignored if place == str(top) else ()
        left += [one.path for one in entries if one.name not in names and one.is_dir(follow_symlinks=False)]
    return False


def _ignored(top: Path) -> set[str]:
    """The folders directly in `top` that git does not add."""
    path = top / ".gitignore"
    try:
        lines = [] if path.is_symlink() else path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        lines = []
    if any(line.startswith("!") for line in lines):
        lines = []
    return {".git", *(found[1] for line in lines if (found := _FOLDER.fullmatch(line)) is not None)}


def _unproven(own: Path, use: Literal["read", "commit"]) -> str | None:
    common = own
    if (own / "commondir").exists():
        common = (own / (own / "commondir").read_text().strip()).resolve(strict=True)
    for settings in {own / "config", common / "config", own / "config.worktree", common / "config.worktree"}:
        if settings.exists() and (setting := _unknown_setting(settings)) is not None:
            return f"the repository's setting {setting} may run a program"
    for hooks in {own / "hooks", common / "hooks"}:
        for hook in hooks.iterdir() if hooks.is_dir() else ():
            if hook.name == "post-index-change" or (use == "commit" and hook.suffix != ".sample"):
                return f"the repository's hook {hook.name} is a program"
    index = own / "index"
    if any(own.glob("sharedindex.*")) or (index.exists() and _GITLINK in index.read_bytes()):
        return "the settings of a submodule may run a program"
    return None


def _repositories_of(directory: Path) -> Iterator[Path]:
    """The folders in which git may look for settings: those of each folder above that looks like a
    repository, up to the first one that is one for sure. Git passes by what is none.
    """
    for folder in (directory, *directory.parents):
        marker = folder / ".git"
        if marker.is_file():
            kind, _, where = marker.read_text().partition(":")
            if kind != "gitdir":
                raise ValueError(marker)
            yield (folder / where.strip()).resolve(strict=True)
            return
        for own in (marker, folder):
            if os.path.lexists(own / "HEAD"):
                yield own
                if _is_repository(own):
                    return


def _is_repository(own: Path) -> bool:
    """Whether git takes the folder for a repository for sure."""
    head = own / "HEAD"
    parts = (own / "objects", own / "refs")
    if not all(part.is_dir() for part in parts) or head.is_symlink() or not head.is_file():
        return False
    return not (own / "commondir").exists() and _HEAD.fullmatch(head.read_text(encoding="ascii")) is not None


def _unknown_setting(path: Path) -> str | None:
    """The first setting in `path` that is not known to be harmless."""
    if path.stat().st_size > _MOST_BYTES:
        return path.name
    section = ""
    for line in path.read_text().replace("\r\n", "\n").split("\n"):
        text = line.strip(" \t")
        if not text or text[0] in "#;":
            continue
        if found := _SECTION.fullmatch(text):
            section = found[1].casefold()
        elif not (found := _SETTING.fullmatch(text)) or text.endswith("\\"):
            return text[:40]
        elif not any(fnmatchcase(f"{section}.{found[1].casefold()}", harmless) for harmless in _HARMLESS):
            return f"{section}.{found[1]}"
    return None
