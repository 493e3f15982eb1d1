"""How the end of a guarded run leaves a framework's loop: as an exception with its reason."""

from __future__ import annotations

from monitor.outcome import StoppedByGuard

__all__ = ["StoppedByGuard"]
