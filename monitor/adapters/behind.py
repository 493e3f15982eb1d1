"""Searches the objects that a suspended async generator or coroutine holds, or that an exception
left in the frames of its traceback.

This works on CPython; elsewhere nothing is found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FrameType, TracebackType
from typing import Any, Final

from monitor.adapters.error_causes import attribute

_NESTS: Final = (AsyncGeneratorType, CoroutineType, FrameType, TracebackType)
_MAX_STEPS: Final = 2_000
"""The most objects that are looked at; about 50 are needed."""


def held_behind(source: object, wanted: Callable[[object], Any]) -> list[Any]:
    """The results of `wanted` for the objects that `source` holds. `source`: a suspended generator
    or coroutine, with those nested in it, or a traceback. Empty for any other `source`.

    Of a traceback, only finished frames are searched, not the frame that caught the exception, nor
    its callers. Cells are not searched: a function may share them with code that still runs.
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


def stream_of(package: str) -> Callable[[object], Any]:
    """For `held_behind`: finds the streams of an SDK that have a method to close them."""

    def find(held: object) -> object:
        kind = type(held)
        theirs = kind.__module__.partition(".")[0] == package and hasattr(kind, "__anext__")
        return held if theirs and closable(held) else None

    return find


def closable(held: object) -> bool:
    """Whether `held` has `aclose()` or `close()`."""
    return callable(attribute(held, "aclose")) or callable(attribute(held, "close"))
