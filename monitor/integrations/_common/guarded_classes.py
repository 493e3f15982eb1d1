"""The guards of a model whose class is made at run time: it may stand behind several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.harness.guards.guarding import GuardSource

_PLACE: Final = "agent_monitor_guard_"


def place_above(base: type) -> str:
    """The attribute in which a model keeps the guard of the class that is made of `base`. Each
    guard adds a class, so each has a place of its own.
    """
    return f"{_PLACE}{len(base.__mro__)}"


def is_behind(fields: Mapping[str, Any] | None, guard: GuardSource) -> bool:
    """Whether a model with these attributes is guarded by `guard` already. A second time would
    count each of its responses twice.
    """
    return any(name.startswith(_PLACE) and held.guard is guard for name, held in (fields or {}).items())
