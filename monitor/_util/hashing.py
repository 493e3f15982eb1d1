"""Identity of text and of JSON-like data.

Failures answered: two equal tool calls look different, because a model wrote the keys in another
order. Two different calls look equal, because Python says `1 == True`.

Rules of the canonical form:

- The order of keys does not matter; a key that is not a string keeps its type (`1` is not `"1"`).
- Numbers go by value, as in JSON, where `1` and `1.0` are one number (models write both): an
  integral float reads as its integer, `-0.0` as `0`.
- `True` is not `1`, `None` is not `"None"`; tuples and lists are equal.
- Text is compared in NFC: models write `é` as one code point or as two, and mean the same file.
  Nothing else in the text changes: lone surrogates and NUL survive.
- Values that JSON lacks (NaN, infinities, bytes, sets, any object) get a tagged form that no JSON
  value has. A container within itself is identified by how far up it begins.

`canonical_json` never raises.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

import xxhash

MAX_DEPTH = 64
"""Deeper nesting is represented by its `repr`. The limit is far above any tool's schema, and far
below the interpreter's recursion limit.
"""
MAX_INT_BITS = 4_096
"""Longer integers go in hexadecimal: Python refuses to write thousands of decimal digits."""
MAX_PLAIN_INT = 2**63


_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def identity(text: str) -> str:
    """xxh3-64 of `text` as 16 hexadecimal digits, the same in every run and process."""
    return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))


def fingerprint(data: bytes) -> str:
    """xxh3-128 of `data` as 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


def chained(before: int, text: str) -> int:
    """xxh3-64 of `text` and of what came before it, whose hash is `before`; 0: nothing did."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), before)


def canonical_json(value: object) -> str:
    """One line of ASCII JSON, equal for equal values; the rules are above."""
    if _is_simple(value, MAX_DEPTH):
        try:
            said = _write(value)
        except Exception:  # noqa: BLE001 - a container within itself, or a thread that changes it
            said = ESCAPE
        if ESCAPE not in said:
            return said
    return _write(_plain(value, ()))


ESCAPE = "\\u"
"""How the writer escapes what is not ASCII, which has to be put in NFC first."""


def _is_simple(value: object, depth: int) -> bool:
    """Whether the writer by itself writes the canonical form of `value`, if all of its text is
    ASCII. Most arguments are simple, and asking takes a fifth of the time of `_plain`.
    """
    kind = type(value)
    if kind is dict:
        items = cast("dict[object, object]", value)
        if any(type(key) is not str for key in items):
            return False
        inside: Iterable[object] = items.values()
    elif kind is list:
        inside = cast("list[object]", value)
    else:
        return False
    for item in inside:
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not -MAX_PLAIN_INT < cast("int", item) < MAX_PLAIN_INT:
                return False
        elif depth <= 1 or not _is_simple(item, depth - 1):
            return False
    return True


def _plain(value: object, above: tuple[int, ...]) -> Any:
    """`value` in the canonical form. `above`: the ids of the containers around `value`, the
    outermost first.
    """
    if value is None or isinstance(value, (bool, str)):
        return _text(value) if isinstance(value, str) else value
    if isinstance(value, (int, float)):
        return _number(value)
    if len(above) >= MAX_DEPTH:
        return _tagged("deep", _safe_repr(value))
    if id(value) in above:
        return _tagged("circle", above[::-1].index(id(value)))
    try:
        if isinstance(value, Mapping):
            return _mapping(value, (*above, id(value)))
        if isinstance(value, (list, tuple)):
            inside = (*above, id(value))
            return [_plain(item, inside) for item in value]
        if isinstance(value, (bytes, bytearray)):
            return _tagged("bytes", bytes(value).hex())
        if isinstance(value, AbstractSet):
            return _tagged("set", sorted(canonical_json(item) for item in value))
    except Exception:  # noqa: BLE001 - a foreign container may do anything while it is read
        return _tagged(type(value).__name__, _safe_repr(value))
    return _tagged(type(value).__name__, _safe_repr(value))


def _mapping(mapping: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
    items = [(_key(key), _plain(item, above)) for key, item in mapping.items()]
    plain = dict(items)
    if len(plain) < len(items):  # keys that differ only in their Unicode form
        return _tagged("mapping", sorted([key, json.dumps(item, sort_keys=True)] for key, item in items))
    return _tagged("mapping", plain) if TAG in plain else plain


def _key(key: object) -> str:
    return _text(key) if isinstance(key, str) else f"{TAG}{type(key).__name__}:{_safe_repr(key)}"


def _text(value: str) -> str:
    return str(value) if value.isascii() else unicodedata.normalize("NFC", value)


def _integer(value: int) -> Any:
    return value if value.bit_length() <= MAX_INT_BITS else _tagged("int", hex(value))


def _number(value: float) -> Any:
    if isinstance(value, int):
        return _integer(int(value))
    value = float(value)
    if not math.isfinite(value):
        return _tagged("float", repr(value))
    return _integer(int(value)) if value.is_integer() else value


TAG = "\x00"
"""Marks values that JSON lacks. A mapping with this very key is tagged too, so nothing can imitate
a tagged form.
"""


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: kind, "value": value}


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not end the run
        return f"<{type(value).__name__}: repr failed with {type(error).__name__}>"
