"""What a suspended async generator holds. Only CPython tells; elsewhere nothing is found."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from typing import Any, Final

from monitor.adapters._errors import attribute

_MAX_STEPS: Final = 2_000
"""Objects looked at; about 50 are needed."""


def held_behind(source: object, wanted: Callable[[object], Any]) -> list[Any]:
    """What `wanted` makes of the objects that a nest of suspended generators holds, where that is not `None`."""
    seen, waiting, found = {id(source)}, [source], list[Any]()
    while waiting and len(seen) < _MAX_STEPS:
        for held in gc.get_referents(waiting.pop()):
            if id(held) in seen:
                continue
            seen.add(id(held))
            if inspect.isasyncgen(held) or inspect.isframe(held):
                waiting.append(held)
            elif (one := wanted(held)) is not None:
                found.append(one)
    return found


def closable(held: object) -> bool:
    """Whether it can be told to close."""
    return callable(attribute(held, "aclose")) or callable(attribute(held, "close"))
