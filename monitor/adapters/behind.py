"""What a suspended async generator or coroutine holds, and what an exception left in the frames of
its traceback.

Only CPython tells; elsewhere nothing is found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FrameType, TracebackType
from typing import Any, Final

from monitor.adapters.errors import attribute

_NESTS: Final = (AsyncGeneratorType, CoroutineType, FrameType, TracebackType)
_MAX_STEPS: Final = 2_000
"""Objects looked at; about 50 are needed."""


def held_behind(source: object, wanted: Callable[[object], Any]) -> list[Any]:
    """What `wanted` makes of the objects in a nest of suspended generators and coroutines, or in a
    traceback, where that is not `None`.

    Only frames that are over tell: not that of whoever caught the exception, nor his caller's. What
    a function shares with others (a cell) is passed over, because it may be in use. Any other
    `source` than those tells nothing.
    """
    seen, waiting, found = {id(source)}, [source] if isinstance(source, _NESTS) else [], list[Any]()
    while waiting and len(seen) < _MAX_STEPS:
        holder = waiting.pop()
        caller = holder.f_back if isinstance(holder, FrameType) else None
        for held in gc.get_referents(holder):
            if id(held) in seen or held is caller:
                continue
            seen.add(id(held))
            if isinstance(held, _NESTS):
                waiting.append(held)
            elif (one := wanted(held)) is not None:
                found.append(one)
    return found


def closable(held: object) -> bool:
    """Whether it can be told to close."""
    return callable(attribute(held, "aclose")) or callable(attribute(held, "close"))
