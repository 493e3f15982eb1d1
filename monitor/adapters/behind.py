"""Searches the objects that a suspended generator, a coroutine or an iterator holds, and those that
an exception left in the frames of its traceback.

This works on CPython; elsewhere nothing is found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, TracebackType
from typing import Any, Final

from monitor.adapters.error_causes import attribute

_NESTS: Final = (AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, TracebackType)
_MAX_STEPS: Final = 2_000
"""The most objects that are looked at; about 50 are needed."""


def held_behind(source: object, wanted: Callable[[object], Any]) -> list[Any]:
    """The results of `wanted` for the objects that `source` holds. `source`: a suspended generator
    or coroutine, an iterator of any class, with those nested in it, or a traceback. Empty for any
    other `source`.

    Of a traceback, only finished frames are searched, not the frame that caught the exception, nor
    its callers. Cells are not searched: a function may share them with code that still runs.
    """
    seen, waiting, found = {id(source)}, [source] if _may_hold(source) else [], list[Any]()
    while waiting and len(seen) < _MAX_STEPS:
        holder = waiting.pop()
        caller = holder.f_back if isinstance(holder, FrameType) else None
        fields = [] if isinstance(holder, _NESTS) else [*getattr(holder, "__dict__", {}).values()]
        for held in (*gc.get_referents(holder), *fields):
            if id(held) in seen or held is caller:
                continue
            seen.add(id(held))
            if (one := wanted(held)) is not None:
                found.append(one)
            elif _may_hold(held):
                waiting.append(held)
    return found


def _may_hold(held: object) -> bool:
    """Whether `held` is searched too: a framework wraps a stream in a generator, or in an iterator
    of its own.
    """
    return isinstance(held, _NESTS) or _iterates(type(held))


def _iterates(kind: type) -> bool:
    return hasattr(kind, "__anext__") or hasattr(kind, "__next__")


def stream_of(package: str) -> Callable[[object], Any]:
    """For `held_behind`: finds the streams of an SDK that have a method to close them."""

    def find(held: object) -> object:
        kind = type(held)
        theirs = kind.__module__.partition(".")[0] == package and _iterates(kind)
        return held if theirs and closable(held) else None

    return find


def closable(held: object) -> bool:
    """Whether `held` has `aclose()` or `close()`."""
    return callable(attribute(held, "aclose")) or callable(attribute(held, "close"))
