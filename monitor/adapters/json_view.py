"""JSON objects with attributes, as the adapters of the SDKs' objects read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

_PLAIN: Final = frozenset({"args", "input"})
"""Fields that are data of the caller's in the SDKs' objects too: the arguments of calls."""


class JsonView:
    """A JSON object whose fields are attributes. A field that is missing is `None`, as in the SDKs'
    objects.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._fields.get(self._key(name))
        return value if name in _PLAIN else self._viewed(value)

    def to_dict(self, **_options: object) -> dict[str, Any]:
        """The JSON object. The objects of the SDKs have a method of this name too."""
        return dict(self._fields)

    def _key(self, name: str) -> str:
        return name

    def _viewed(self, value: object) -> Any:
        if isinstance(value, dict):
            return type(self)(value)
        if isinstance(value, list):
            return [self._viewed(one) for one in value]
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields!r})"


class CamelView(JsonView):
    """A view of objects of Gemini, whose fields are camel case on the wire and snake case in the
    SDK.
    """

    __slots__ = ()

    def _key(self, name: str) -> str:
        return _camel(name)


@cache  # the names stand in the code of an adapter
def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
