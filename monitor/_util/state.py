"""State as a dataclass: a copy of it, and the same as JSON data.

Failure answered: every part with a state had a `save` and a `load` written by hand, and a new field
was easily forgotten in one of them.

A state is a dataclass of plain values: text, numbers, `None`, lists, dicts, tuples, named tuples
and other dataclasses. Dataclasses that are not frozen are copied, with everything in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SHARED = (str, int, float, tuple, NoneType)
"""Values that nobody can change."""


def copied(value: T) -> T:
    """`value`, so that changes of one are not seen in the other. The items of a list are of one
    kind, and so are the values of a dict.
    """
    made: Any = value
    kind: type = type(value)
    match value:
        case list():
            made = value[:] if _is_shared(value[:1]) else [copied(item) for item in value]
        case dict():
            some = next(iter(value.values()), None)
            made = dict(value) if _is_shared([some]) else {key: copied(item) for key, item in value.items()}
        case _ if not _is_shared([value]):
            made = kind(*[copied(getattr(value, name)) for name in _names(kind)])
        case _:
            pass
    return cast("T", made)


def _is_shared(values: list[Any]) -> bool:
    return all(isinstance(value, _SHARED) or value.__dataclass_params__.frozen for value in values)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def to_json(value: object) -> Any:
    """A state as JSON data: of a dataclass, the values of its fields in their order."""
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    kind: type = type(value)
    return [to_json(getattr(value, name)) for name in _names(kind)] if dataclasses.is_dataclass(kind) else value


def from_json(kind: type[T], data: Any) -> T:
    """The state of the class `kind` that `to_json` was given. Raises `ValueError` or `TypeError`
    for other data.
    """
    return cast("T", _made(kind, data))


def _made(hint: Any, data: Any) -> Any:
    origin, of = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if data is None else _made(next(one for one in of if one is not NoneType), data)
    if origin is list:
        return [_made(of[0], item) for item in data]
    if origin is dict:
        return {_made(of[0], key): _made(of[1], item) for key, item in dict(data).items()}
    if origin is tuple:
        kinds_of = (of[0] for _ in data) if of[-1] is Ellipsis else of
        return tuple([_made(one, item) for one, item in zip(kinds_of, data, strict=True)])
    if issubclass(hint, tuple) or dataclasses.is_dataclass(hint):  # a named tuple, or a dataclass
        return hint(*[_made(one, item) for one, item in zip(_kinds(hint).values(), data, strict=True)])
    if hint is float or type(data) is not hint:
        return hint(data)
    return data


class StateOfAttributes:
    """Base of a class whose state is some of its attributes: texts, numbers, and lists of them."""

    __slots__ = ()

    STATE: ClassVar[tuple[str, ...]]
    """The attributes that are kept. The others come from the options."""

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {name: copied(getattr(self, name)) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken, with the same options."""
        for name in self.STATE:
            setattr(self, name, copied(state[name]))


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)
