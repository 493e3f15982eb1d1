"""The folders in which commands keep what they can make again."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder of one kind of such files, on this machine."""
    from pathlib import Path  # noqa: PLC0415 - a hook is waited for, and needs no `pathlib`

    return Path(cache_path(name))


def cache_path(name: str) -> str:
    """The path of that folder."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return os.path.join(given or os.path.expanduser("~/.cache"), "agent-monitor", name)
