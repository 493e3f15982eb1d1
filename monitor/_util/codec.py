"""One JSON form for the vocabulary: an object with the tag `type` and the fields of the class.

Text is taken as it comes: NUL and lone surrogates survive the round trip, because models do write
them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, KeysView, Mapping
from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from monitor._util.lazy import LazyModule
from monitor.errors import RecordedError, message_of

if TYPE_CHECKING:
    import pydantic
    import pydantic_core
else:
    pydantic = LazyModule("pydantic")
    pydantic_core = LazyModule("pydantic_core")

T = TypeVar("T")


def tag_of(cls: type) -> str:
    """`TextDelta` -> `text_delta`."""
    return _tag(cls.__name__)


@functools.cache
def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


MAX_DEPTH = 450
"""Data nested deeper than this (also data that holds itself) is cut off there: a record must not
break the run.
"""
SAFE_DEPTH = 50
"""The depth that is used instead if the program's own stack is deep already."""


MAX_INT_BITS = 14_000
"""Longer integers go in hexadecimal: Python refuses to write more than 4,300 decimal digits."""


def to_plain(value: Any) -> Any:
    """`value` as data that any JSON can hold.

    Dataclasses become objects, tuples and sets lists. A date or a path becomes its text as pydantic
    writes it. An integer that Python refuses to write becomes hexadecimal digits, anything else its
    `repr`. Never raises: an error while reading a value is named in its place. pydantic is not used
    for all of this: it accepts neither a lone surrogate in a key nor deep nesting.
    """
    try:
        return _plain(value, MAX_DEPTH)
    except RecursionError:
        return _plain(value, SAFE_DEPTH)


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _SIMPLE or (kind is float and math.isfinite(value)) or (kind is int and -_SHORT < value < _SHORT):
        return value
    try:
        if isinstance(value, Enum):
            return _plain(value.value, depth)
        if isinstance(value, float) and not math.isfinite(value):
            return float.__repr__(value)
        if value is None or isinstance(value, str | float | bool):
            return value
        if isinstance(value, int):
            return value if int.bit_length(value) <= MAX_INT_BITS else hex(value)
        return _of_parts(value, depth - 1) if depth else "(nested too deeply)"
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 - an object of the caller's may raise anything while it is read
        return _repr(value)


_SIMPLE = frozenset({str, bool, type(None)})
"""Types whose objects are plain already, whatever their value."""
_SHORT = 1 << 62
"""Integers below this are short, without counting their bits."""


@functools.lru_cache(maxsize=1_024)
def _recorded(cls: type) -> tuple[str, ...] | None:
    """The fields of a dataclass that are written. `None`: it is none."""
    if not dataclasses.is_dataclass(cls):
        return None
    return tuple(field.name for field in dataclasses.fields(cls) if field.metadata.get("record", True))


def _of_parts(value: Any, depth: int) -> Any:
    cls: type = type(value)
    recorded = _recorded(cls)
    if recorded is not None:
        return {name: _plain(getattr(value, name), depth) for name in recorded}
    if isinstance(value, Mapping):
        keys = [key if isinstance(key, str) else _key(key) for key in value]
        return dict(zip(keys, map(_plain, value.values(), repeat(depth)), strict=True))
    if isinstance(value, list | tuple | set | frozenset):
        return list(map(_plain, value, repeat(depth)))
    if isinstance(value, BaseException):
        return error_to_plain(value)
    if isinstance(value, pydantic.BaseModel):
        return _plain(value.model_dump(), depth)
    return _other(value)


def to_brief(value: object) -> dict[str, Any]:
    """The fields of a dataclass as plain data, without those that have their default. The same for
    a field that holds an object of one known dataclass, or a tuple of such objects. So a reader of
    the data finds the same object.
    """
    cls: type = type(value)
    brief: dict[str, Any] = {}
    for name, default, inner in _fields_with_defaults(cls):
        found = getattr(value, name)
        kind = type(found)
        if found is default or (kind is type(default) is not float and found == default):  # -0.0 == 0.0
            continue
        if kind is str:
            brief[name] = found
        elif kind is inner:
            brief[name] = to_brief(found)
        elif inner is not None and kind is tuple and all(type(one) is inner for one in found):
            brief[name] = [to_brief(one) for one in found]
        else:
            brief[name] = to_plain(found)
    return brief


@functools.cache
def _fields_with_defaults(cls: type) -> tuple[tuple[str, Any, type | None], ...]:
    """For each field that is written: its name, its default, and the one dataclass whose objects it
    may hold.
    """
    try:
        hints = get_type_hints(cls)
    except NameError:  # a name that only type checkers know
        hints = {}
    return tuple(
        (one.name, _default_of(one), _inner(hints.get(one.name)))
        for one in dataclasses.fields(cast("Any", cls))
        if one.metadata.get("record", True)
    )


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _inner(hint: Any) -> type | None:
    """The dataclass of a hint that names one. Of several, a reader could not tell which it was."""
    named = [one for one in get_args(hint) if one not in {type(None), Ellipsis}] if get_args(hint) else [hint]
    if len(named) != 1:
        return None
    (one,) = named
    if get_origin(one) is tuple:
        return _inner(one)
    return one if isinstance(one, type) and dataclasses.is_dataclass(one) else None


def _key(key: object) -> str:
    try:
        return str(key)
    except Exception:  # noqa: BLE001 - as in `_plain`
        return hex(key) if isinstance(key, int) else _repr(key)


def _other(value: Any) -> Any:
    """Dates, paths, decimals and the like as pydantic writes them in JSON; any other object as its
    `repr`.
    """
    if isinstance(value, bytes | bytearray | Iterator):
        return _repr(value)  # pydantic would decode bytes, and exhaust an iterator
    try:
        return pydantic_core.to_jsonable_python(value, fallback=_repr)
    except Exception:  # noqa: BLE001 - whatever an object of the caller's raises when it is written
        return _repr(value)


def _repr(value: object) -> str:
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception as error:  # noqa: BLE001 - as in `_plain`
        return f"<{type(value).__name__}: repr failed with {type(error).__name__}>"


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""Addresses are removed, so that an equal object looks the same when it is made again. Otherwise a
repeated result would look new.
"""


MOST_PARTS = 5_000
"""Data with more keys and items than this is huge."""
MOST_CHARS = 262_144
"""Data whose texts have more code points than this is huge as well."""


def has_more(value: object, parts: int, chars: int) -> bool:
    """Whether JSON-like data has more than `parts` keys and items, or more than `chars` code points
    of text. Stops counting there.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            chars -= len(one)
        elif isinstance(one, dict | list | tuple):
            parts -= len(one)
        if parts < 0 or chars < 0:
            return True
        if isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return False


def text_of(result: object) -> str:
    """A tool's answer as the model reads it: text unchanged, anything else as JSON."""
    if isinstance(result, str):
        return result
    if has_more(result, MOST_PARTS, MOST_CHARS):
        with contextlib.suppress(TypeError, ValueError, RecursionError):  # the result is not JSON data
            return json.dumps(result, ensure_ascii=False, sort_keys=True, allow_nan=False)  # 20 times quicker
    return json.dumps(to_plain(result), ensure_ascii=False, sort_keys=True)


def error_to_plain(error: BaseException) -> dict[str, str]:
    """An exception by its name and message."""
    if isinstance(error, RecordedError):
        return {"type": error.type_name, "message": error.message}
    return {"type": f"{type(error).__module__}.{type(error).__qualname__}", "message": message_of(error)}


class Codec(Generic[T]):
    """JSON for a closed set of dataclasses. Unknown tags and wrong fields raise a `ValueError` that
    names them. `tags`: the tags of classes that had another name when they were first stored.
    """

    def __init__(self, *classes: type[T], tags: Mapping[type[T], str] | None = None) -> None:
        self._tags = {cls: tag_of(cls) for cls in classes} | dict(tags or {})
        self._classes = {tag: cls for cls, tag in self._tags.items()}
        self._adapters: dict[type, pydantic.TypeAdapter[Any]] = {}

    @property
    def tags(self) -> KeysView[str]:
        """The values of `type` that the codec knows."""
        return self._classes.keys()

    def _adapter(self, cls: type) -> pydantic.TypeAdapter[Any]:
        if cls not in self._adapters:
            self._adapters[cls] = pydantic.TypeAdapter(cls)
        return self._adapters[cls]

    def to_dict(self, value: T) -> dict[str, Any]:
        """`value` as plain JSON data."""
        plain: dict[str, Any] = to_plain(value)
        return {"type": self._tags[type(value)], **plain}

    def to_brief(self, value: T) -> dict[str, Any]:
        """`value` without the fields that have their default; see `to_brief`."""
        return {"type": self._tags[type(value)], **to_brief(value)}

    def from_dict(self, data: Mapping[str, Any]) -> T:
        """The object that `to_dict` was given."""
        if not isinstance(data, Mapping):
            raise ValueError(f"expected a JSON object, not {type(data).__name__}")
        fields = dict(data)
        tag = fields.pop("type", None)
        if not isinstance(tag, str) or tag not in self._classes:
            raise ValueError(f"unknown type {tag!r}; known: {', '.join(sorted(self._classes))}")
        unknown = fields.keys() - {field.name for field in dataclasses.fields(cast("Any", self._classes[tag]))}
        if unknown:
            raise ValueError(f"{tag}.{min(map(str, unknown))}: no such field")
        try:
            value: T = self._adapter(self._classes[tag]).validate_python(fields)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "value"
            raise ValueError(f"{tag}.{where}: {first['msg']}") from None
        return value

    def dumps(self, value: T) -> str:
        """`value` as one line of JSON, the same bytes for the same value."""
        return json.dumps(self.to_dict(value), sort_keys=True, separators=(",", ":"))

    def loads(self, line: str) -> T:
        """The inverse of `dumps`."""
        return self.from_dict(json.loads(line))
