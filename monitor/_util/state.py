"""State as a dataclass: a copy of it, and the same as JSON data.

Failure answered: every part with a state had a `save` and a `load` written by hand, and a new field
was easily forgotten in one of them.

A state is a dataclass of plain values: text, numbers, `None`, lists, dicts, tuples, named tuples
and other dataclasses. Dataclasses that are not frozen are copied, with everything in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

Copy: TypeAlias = Callable[[Any], Any]


def copied(state: T) -> T:
    """`state`, so that changes of one are not seen in the other."""
    kind: type = type(state)
    values = [
        getattr(state, name) if copy is None else copy(getattr(state, name)) for name, copy in _copies(kind).items()
    ]
    return cast("T", kind(*values))


@cache
def _copies(cls: Any) -> dict[str, Copy | None]:
    """How each field of a dataclass is copied. `None`: nobody can change its value."""
    return {name: _copy(hint) for name, hint in _kinds(cls).items()}


def _copy(hint: Any) -> Copy | None:
    origin, inner = get_origin(hint), [_copy(one) for one in get_args(hint) if one not in {NoneType, Ellipsis}]
    if origin is None:
        return copied if dataclasses.is_dataclass(hint) and not _is_frozen(hint) else None
    if origin not in {list, dict}:
        return None
    copy = inner[-1]
    if copy is None:
        return cast("Copy", origin)
    if origin is list:
        return lambda value: [copy(item) for item in value]
    return lambda value: {key: copy(item) for key, item in value.items()}


def _is_frozen(cls: Any) -> bool:
    return bool(cls.__dataclass_params__.frozen)


def to_json(value: object) -> Any:
    """A state as JSON data: of a dataclass, the values of its fields in their order."""
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return [to_json(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


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
        return cast("Any", hint)(*[_made(one, item) for one, item in zip(_kinds(hint).values(), data, strict=True)])
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
        return {name.removeprefix("_"): to_json(getattr(self, name)) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken, with the same options."""
        for name in self.STATE:
            setattr(self, name, to_json(state[name.removeprefix("_")]))


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)
