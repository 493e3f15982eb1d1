"""One JSON form for the vocabulary: an object with the tag `type` and the fields of the class.

Text is taken as it comes: NUL and lone surrogates survive the round trip, because models do write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def tag_of(cls: type) -> str:
    """`TextDelta` -> `text_delta`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


class Codec(Generic[T]):
    """JSON for a closed set of dataclasses. Unknown tags and wrong fields are a `ValueError` that says which."""

    def __init__(self, *classes: type[T]) -> None:
        self._tags = {cls: tag_of(cls) for cls in classes}
        self._classes = {tag: cls for cls, tag in self._tags.items()}
        self._adapters: dict[type, TypeAdapter[Any]] = {}

    def _adapter(self, cls: type) -> TypeAdapter[Any]:
        if cls not in self._adapters:
            self._adapters[cls] = TypeAdapter(cls)
        return self._adapters[cls]

    def to_dict(self, value: T) -> dict[str, Any]:
        """`value` as plain JSON data."""
        cls = type(value)
        return {"type": self._tags[cls], **self._adapter(cls).dump_python(value, mode="json")}

    def from_dict(self, data: Mapping[str, Any]) -> T:
        """The object that `to_dict` was given."""
        if not isinstance(data, Mapping):
            raise ValueError(f"expected a JSON object, not {type(data).__name__}")
        fields = dict(data)
        tag = fields.pop("type", None)
        if not isinstance(tag, str) or tag not in self._classes:
            raise ValueError(f"unknown type {tag!r}; known: {', '.join(sorted(self._classes))}")
        try:
            value: T = self._adapter(self._classes[tag]).validate_python(fields)
        except ValidationError as error:
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
