"""The options of a part, as JSON data, and the same part made from them again.

A part keeps each option of its constructor in an attribute of the same name, perhaps with an
underscore before it. A part may say otherwise with a method `options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from monitor._util.argument_checks import signature_of
from monitor._util.codec import to_plain
from monitor._util.lazy import LazyModule

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = LazyModule("pydantic")

T = TypeVar("T")
_NONE_SUCH: Any = object()


def options_of(part: object) -> dict[str, Any] | None:
    """The options of `part`. `None`: it has one that JSON cannot hold, such as a function."""
    own = getattr(part, "options", None)
    if callable(own):
        values = cast("dict[str, Any]", own())
    else:
        names = signature_of(type(part)).parameters
        values = {name: getattr(part, f"_{name}", getattr(part, name, _NONE_SUCH)) for name in names}
    if any(value is _NONE_SUCH or _has_code(value) for value in values.values()):
        return None
    return {name: to_plain(value) for name, value in values.items()}


def _has_code(value: object) -> bool:
    """Whether a function stands somewhere in `value`."""
    if isinstance(value, Mapping):
        return any(map(_has_code, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_code, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_code(getattr(value, field.name)) for field in fields(value))
    return callable(value)


def made_again(cls: type[T], options: Mapping[str, Any]) -> T:
    """The part of the class `cls` with these options. Raises `ValueError` if it cannot be made."""
    hints = get_type_hints(cls.__init__)
    try:
        return cls(**{name: _read(value, hints[name]) for name, value in options.items()})
    except (KeyError, TypeError, pydantic.ValidationError) as error:
        raise ValueError(f"{cls.__name__} cannot be made from {dict(options)!r}: {error}") from None


def _read(value: Any, annotation: Any) -> Any:
    try:
        return None if value is None else pydantic.TypeAdapter(annotation).validate_python(value)
    except pydantic.errors.PydanticSchemaGenerationError:  # it is a type of JSON data then
        return value
