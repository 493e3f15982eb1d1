"""The old addresses of public modules. Each stays for one release, as a module of three lines."""

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
    warnings.warn(f"{module} is {MOVED[module]} now, and goes with {REMOVED_IN}", DeprecationWarning, stacklevel=3)
