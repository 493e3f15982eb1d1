"""A tool call whose arguments google-genai streams, put together from its pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

from monitor.errors import AdapterError

_Path: TypeAlias = tuple[str | int, ...]
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_MAX_DEPTH: Final = 100
_MAX_GAP: Final = 1000
_EXACT_FLOAT: Final = 2**53


class StreamedCall:
    """A function call whose arguments come piece by piece. Work and memory per piece do not grow
    with the call.
    """

    def __init__(self, id_: str, name: str, raw: object) -> None:
        self.id = id_
        self.name = name
        self.raw = raw
        self.in_string = False
        self._leaves: dict[_Path, Any] = {}
        """Value by path, in order of arrival; a string as the list of its pieces."""
        self._json_path: object = None
        self._path: _Path = ()
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The JSON text of the arguments so far."""
        return "".join(self._texts)

    def take(self, piece: object) -> str:
        """Add one `PartialArg`; the JSON text that it adds. The end of a text that has ended
        already adds nothing: it came twice.
        """
        json_path = getattr(piece, "json_path", None)
        goes_on = self.in_string and json_path == self._json_path
        path = self._path if goes_on else _parsed_path(json_path)
        self._json_path = json_path
        words = getattr(piece, "string_value", None)
        if words is None:
            found, value = _scalar(piece)
            return self._put(path, value) if found else ""
        if not isinstance(words, str):
            raise AdapterError(f"a streamed argument is {type(words).__name__}, not str")
        if not words and not goes_on and isinstance(self._leaves.get(path), _Pieces):
            return ""
        return self._put_string(path, words, goes_on=goes_on, more=getattr(piece, "will_continue", None) is True)

    def take_whole(self, arguments: Mapping[Any, Any]) -> Iterator[str]:
        """Add arguments that came complete beside the streamed ones."""
        for key, value in arguments.items():
            yield self._put((str(key),), value)

    def assembled(self) -> dict[str, Any]:
        """The arguments object."""
        root: dict[str, Any] = {}
        for path, leaf in self._leaves.items():
            holder: Any = root
            for key, inner in pairwise(path):
                holder = _entered(holder, key, list if isinstance(inner, int) else dict)
            _set(holder, path[-1], "".join(leaf) if isinstance(leaf, _Pieces) else leaf)
        return root

    def closing(self) -> str:
        """The closing brackets that complete the JSON text."""
        return self._wrote(self._end_string() + _brackets(self._path) if self._path else "{}")

    def _put(self, path: _Path, value: Any) -> str:
        lead = self._move(path)
        self._leaves[path] = value
        return self._wrote(lead + json.dumps(value, ensure_ascii=False))

    def _put_string(self, path: _Path, words: str, *, goes_on: bool, more: bool) -> str:
        lead = "" if goes_on else self._move(path) + '"'
        if goes_on:
            self._leaves[path].append(words)
        else:
            self._leaves[path] = _Pieces([words])
        self.in_string = more
        return self._wrote(lead + json.dumps(words, ensure_ascii=False)[1:-1] + ("" if more else '"'))

    def _move(self, path: _Path) -> str:
        """Move from the last path to this one: close containers that do not hold it, open those
        that do, write its key.
        """
        last = self._path
        shared = next(
            (at for at, (one, other) in enumerate(zip(last, path, strict=False)) if one != other),
            min(len(last), len(path)) - 1,
        )
        lead = self._end_string() + (_brackets(last[shared:])[:-1] + "," if last else "{")
        self._path = path
        for depth in range(max(shared, 0), len(path)):
            key = path[depth]
            if depth > max(shared, 0):
                lead += "[" if isinstance(key, int) else "{"
            if isinstance(key, str):
                lead += json.dumps(key, ensure_ascii=False) + ":"
        return lead

    def _end_string(self) -> str:
        ended, self.in_string = '"' if self.in_string else "", False
        return ended

    def _wrote(self, text: str) -> str:
        self._texts.append(text)
        return text


class _Pieces(list[str]):
    """A string in pieces; its own type, because a list is a possible value too."""


def _brackets(path: _Path) -> str:
    """Closes every container on the way to a leaf, the inner ones first."""
    return "".join("]" if isinstance(key, int) else "}" for key in reversed(path))


def _scalar(piece: object) -> tuple[bool, Any]:
    """Whether a `PartialArg` without a string has a value, and which. A whole number is an int, as
    in a complete call.
    """
    number, truth = getattr(piece, "number_value", None), getattr(piece, "bool_value", None)
    if isinstance(truth, bool):
        return True, truth
    if isinstance(number, int | float):
        return True, int(number) if number == number // 1 and abs(number) < _EXACT_FLOAT else number
    return getattr(piece, "null_value", None) is not None, None


def _parsed_path(json_path: object) -> _Path:
    """`$.items[0].name` -> ("items", 0, "name"). The root is an object, so it starts with a
    name.
    """
    if not isinstance(json_path, str) or not json_path.startswith("$"):
        raise AdapterError(f"the path of a streamed argument is {json_path!r}, not a JSON path")
    keys: list[str | int] = []
    at = 1
    while at < len(json_path):
        step = _STEP.match(json_path, at)
        if step is None or len(keys) == _MAX_DEPTH:
            raise AdapterError(f"the path of a streamed argument cannot be read: {json_path[:200]!r}")
        name, index, single, double = step.groups()
        quoted = single if single is not None else double
        keys.append(
            int(index)
            if index is not None
            else name
            if quoted is None
            else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        at = step.end()
    if not keys or isinstance(keys[0], int):
        raise AdapterError(f"the path of a streamed argument names no key: {json_path!r}")
    return tuple(keys)


def _entered(holder: Any, key: str | int, kind: type[list[Any] | dict[str, Any]]) -> Any:
    """The container at `key`, which is made if there is none."""
    known = holder.get(key) if isinstance(holder, dict) else holder[key] if len(holder) > _index(key) else None
    if known is None:
        known = kind()
        _set(holder, key, known)
    if not isinstance(known, kind):
        raise AdapterError(f"streamed arguments contradict one another at {key!r}")
    return known


def _set(holder: Any, key: str | int, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
        return
    gap = _index(key) - len(holder)
    if gap > _MAX_GAP:
        raise AdapterError(f"streamed arguments leave out {gap} elements of a list")
    holder.extend([None] * (gap + 1))
    holder[key] = value


def _index(key: str | int) -> int:
    if isinstance(key, str):
        raise AdapterError(f"streamed arguments contradict one another at {key!r}")
    return key
