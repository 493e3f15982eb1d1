"""The guards of a model whose class is made at run time: it may stand behind several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from monitor.harness.guards.guarding import GuardSource

_PLACE: Final = "agent_monitor_guard_"
ModelT = TypeVar("ModelT")


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


def class_as(of: type, base: type, members: Mapping[str, Any]) -> Any:
    """A class derived from `base`. Logs and traces show it with the name and the module of `of`."""
    return type(of.__name__, (base,), {"__module__": of.__module__, "__qualname__": of.__qualname__, **members})


def under_class(model: ModelT, kind: Any, held: Any) -> ModelT:
    """A pydantic model under `kind`, a class that is made of its own, with the guard that `held`
    has. Both have the same fields: what one of them changes, such as a counter, is changed in the
    other.
    """
    other = kind.__new__(kind)
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__"):
        object.__setattr__(other, slot, getattr(model, slot))
    private = {**(getattr(model, "__pydantic_private__", None) or {}), place_above(type(model)): held}
    object.__setattr__(other, "__pydantic_private__", private)
    made: ModelT = other
    return made
