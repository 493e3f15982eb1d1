"""What git would run besides itself in a folder: settings, hooks and submodules can name programs.

Nobody is trusted by a name. The settings that git would read there are read here, and each of them
must be one that is known to run nothing. So a folder that was made to look like a repository
(`sub/HEAD`, `sub/config`) is judged like any other. Settings of the user and of the system are the
user's own.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

_MOST_BYTES: Final = 1_000_000
"""Larger settings are not read."""
_GITLINK: Final = b"\x00\x00\xe0\x00"
"""The mode of a submodule in the index, octal 160000."""
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
        found = _repository_of(directory.resolve(strict=True))
        if found is None:
            return None  # git says so, and ends
        return _unproven(found, use)
    except (OSError, ValueError) as error:
        return f"the repository cannot be read: {type(error).__name__}"


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


def _repository_of(directory: Path) -> Path | None:
    """The folder in which git looks for settings, as git finds it."""
    for folder in (directory, *directory.parents):
        marker = folder / ".git"
        if marker.is_dir():
            return marker
        if marker.exists():
            kind, _, where = marker.read_text().partition(":")
            if kind != "gitdir":
                raise ValueError(marker)
            return (folder / where.strip()).resolve(strict=True)
        if (folder / "HEAD").exists() and ((folder / "objects").exists() or (folder / "commondir").exists()):
            return folder
    return None


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
