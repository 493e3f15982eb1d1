"""The old addresses of public modules and names, which stay for one release.

A module has three lines at its old address. A name is listed in `monitor/__init__.py`.
"""

from __future__ import annotations

import warnings
from typing import Final

REMOVED_IN: Final = "0.4.0"
"""The version in which the old addresses are gone."""
MOVED: Final = {
    "monitor.calls": "monitor.messages",
    "monitor.compaction": "monitor.context",
    "monitor.harness": "monitor.guard",
    "monitor.reasons": "monitor.errors",
    "monitor.schemas": "monitor.models",
    "monitor.state": "monitor.outcome",
    "monitor.usage": "monitor.chunks",
}
"""The old address of each module, and its new one."""


def has_moved(module: str) -> None:
    """Warn the importer of `module` that its names stand elsewhere."""
    warn(module, MOVED[module], stacklevel=4)


def warn(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` is `new` now."""
    warnings.warn(f"{old} is {new} now, and goes with {REMOVED_IN}", DeprecationWarning, stacklevel=stacklevel)
