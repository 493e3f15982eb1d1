"""Fields of JSON objects whose types nobody has checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


def text(holder: Mapping[str, Any], *names: str) -> str:
    """The first field of these names that is a text; `""` if there is none."""
    return next((value for name in names if isinstance(value := holder.get(name), str)), "")


def object_at(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field; an empty one for anything else."""
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}


def objects_at(holder: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of the list in a field. Anything else in the list is left out."""
    value = holder.get(name)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def objects(value: object) -> list[Mapping[str, Any]] | None:
    """A list of objects; `None` for anything else."""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(one, Mapping) for one in value)
    ):
        return list(value)
    return None


def is_object(written: object) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(written, str) and isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        return False


def snake(fields: object) -> dict[str, Any]:
    """The fields of an object of Gemini, with the SDK's names; the service takes both. Fields that
    are `None` are left out, and anything but an object has no fields.
    """
    if not isinstance(fields, Mapping):
        return {}
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower(): value
        for name, value in fields.items()
        if value is not None
    }
