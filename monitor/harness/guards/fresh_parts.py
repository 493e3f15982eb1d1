"""The parts of a guard for another agent: its own detectors and policy, that have seen nothing."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any


def fresh_parts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a guard for another agent of its run. Detectors and policy are copied, because
    they have a state; everything else is shared.
    """
    detectors, policy = options["detectors"], options["policy"]
    if isinstance(detectors, Sequence):
        detectors = [_copied(one) for one in detectors]
    return {**options, "detectors": detectors, "policy": _copied(policy)}


def _copied(part: Any) -> Any:
    """A copy that shares only what cannot be copied, such as a lock or a client."""
    try:
        return copy.deepcopy(part)
    except Exception:  # noqa: BLE001 - a part may be the caller's code, and whatever it holds may refuse
        made = copy.copy(part)
        for name, value in getattr(part, "__dict__", {}).items():
            with contextlib.suppress(Exception):
                setattr(made, name, copy.deepcopy(value))
        return made
