"""One run of which several proxies have answered requests, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_SUMS: Final = ("requests", "answer_bytes", "tokens", "stops", "active")
_NEWEST: Final = ("last_stop", "task", "unwatched")
"""Fields of which the newest one that is not empty counts."""


def merged(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose `parts` each proxy gives as `ProxiedRun.to_dict()`. Counts are added. All else
    is that of the proxy that was asked last. Raises `KeyError` or `TypeError` for what is no run.
    """
    newest_first = sorted(parts, key=lambda part: part["last_s"], reverse=True)
    newest = newest_first[0]
    costs = [part["cost_usd"] for part in parts]
    states = [part["state"] for part in newest_first]
    return {
        **{name: value for name, value in newest.items() if name != "allowed"},
        **{name: sum(part[name] for part in parts) for name in _SUMS},
        "state": next((one for one in ("held", "running") if one in states), states[0]),
        "began_s": min(part["began_s"] for part in parts),
        "cost_usd": None if None in costs else sum(costs),
        "estimated": any(part["estimated"] for part in parts),
        **{name: next((part[name] for part in newest_first if part[name]), newest[name]) for name in _NEWEST},
    }
