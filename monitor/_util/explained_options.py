"""Wrong arguments: the error names the right line.

A stranger writes `max_turns=30` or `system="..."`, as in another library, or gives the text `"60"`
for seconds. Python's own message says only that the name is wrong, or nothing at all.

An annotation is read as text, because many types are imported for type checkers alone. A value is
checked only where all types of its annotation are plain: numbers, texts, lists, dicts, functions.
A number of another package (`numpy.int64`, `Decimal`) is passed on as Python's own.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Number
from typing import Any, Final, ParamSpec, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, cast

from monitor.errors import ConfigError

SHOWN_CHARS = 80
"""Values whose Python form is longer than this many characters are not shown."""

P = ParamSpec("P")
R = TypeVar("R")

Explain: TypeAlias = Callable[[str, str, object], str | None]
"""Says what to write in place of an option. It is given the name of the function or class, and the
name and the value of the option. `None`: it does not know.
"""


def explains_options(
    *,
    example: str = "",
    words: Mapping[str, str] | None = None,
    explain: Explain | None = None,
    name: str = "",
    has_effects: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: arguments that the function does not take raise `ConfigError` with the right line.
    So does a value that is not of the plain kind that its annotation names, such as a text for a
    number. The function may refuse it first, in its own words.

    `example`: a right call. `words`: the names of options in other libraries, and those of this
    function. `explain`: what only the caller knows. `name`: what the message calls the function, if
    not by its own name. `has_effects`: a refused call must change nothing, so the values are
    checked before the function is called.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        hints = words or {}, explain
        kinds = cache(lambda: _kinds_of(inspect.signature(function)))

        def mistake(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
            called = name or _name_of(function, args)
            unbound = _unbound(function, args, kwargs, called=called, example=example, hints=hints)
            return unbound or _wrong_kind(kinds(), called, args, kwargs, example)

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                if (found := mistake(args, kwargs)) is not None:
                    raise ConfigError(found)
                return await function(*args, **kwargs)

            return cast("Callable[P, R]", awaited)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            given: tuple[tuple[Any, ...], dict[str, Any]] = args, kwargs
            fits = _all_fit(kinds(), args, kwargs)
            if not fits:
                given = _in_own_numbers(kinds(), args, kwargs)
                fits = _all_fit(kinds(), *given)
                if has_effects and not fits:
                    raise ConfigError(mistake(args, kwargs))
            try:
                result = function(*given[0], **given[1])
            except (TypeError, AttributeError, ValueError):
                found = mistake(args, kwargs)
                if found is None:  # the error comes from inside
                    raise
                raise ConfigError(found) from None
            if not fits:
                raise ConfigError(mistake(*given))
            return result

        return cast("Callable[P, R]", checked)

    return decorate


def explained(*, example: str, words: Mapping[str, str] | None = None, name: str = "") -> Callable[[type[R]], type[R]]:
    """`explains_options` for the arguments of a class that does not write its `__init__` itself."""

    def decorate(kind: type[R]) -> type[R]:
        made: Any = kind
        made.__init__ = explains_options(example=example, words=words, name=name)(made.__init__)
        return kind

    return decorate


def _unbound(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    called: str,
    example: str,
    hints: tuple[Mapping[str, str], Explain | None],
) -> str | None:
    """The difference between the arguments and the signature of `function`, with the way out."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        wrong = str(error)
    else:
        return None
    known = [option for option in signature.parameters if option != "self"]
    unknown = next((option for option in kwargs if option not in known), None)
    if unknown is None:
        return f"{called}: {wrong}; write {example}" if example else f"{called}: {wrong}; it takes {', '.join(known)}"
    value = kwargs[unknown]
    words, explain = hints
    says = f"{called} has no option {unknown!r}"
    if (right := words.get(unknown)) in known:
        return f"{says}: write {right}={in_a_line(value)}"
    if explain is not None and (line := explain(called, unknown, value)) is not None:
        return f"{says}: {line}"
    from difflib import get_close_matches  # noqa: PLC0415 - only for a wrong name

    if closest := get_close_matches(unknown, known, 1):
        return f"{says}: write {closest[0]}={in_a_line(value)}"
    return f"{says}; give one of these: {', '.join(known)}"


def _all_fit(kinds: Mapping[str, _PlainKind], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether each argument is of its plain kind. Called with each good call, so it is quick."""
    for name, value in kwargs.items():
        kind = kinds.get(name)
        if kind is not None and kind.names and value is not kind.default and not kind.fits(value):
            return False
    for kind, value in zip(kinds.values(), args, strict=False):  # noqa: SIM110 - a generator takes a microsecond
        if kind.names and not kind.fits(value):
            return False
    return True


def _in_own_numbers(
    kinds: Mapping[str, _PlainKind], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with the numbers of other packages as Python's own."""
    placed = tuple(kind.number(value) for kind, value in zip(kinds.values(), args, strict=False))
    named = {name: kinds[name].number(value) if name in kinds else value for name, value in kwargs.items()}
    return (*placed, *args[len(placed) :]), named


def _wrong_kind(
    kinds: Mapping[str, _PlainKind], called: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], example: str
) -> str | None:
    """The first argument that is not of its plain kind, with the way out. `None`: there is none."""
    for name, value in (*zip(kinds, args, strict=False), *kwargs.items()):
        if name in kinds and not kinds[name].fits(value):
            shown = value.__name__ if isinstance(value, type) else f"{value!r:.{SHOWN_CHARS}}"
            right = kinds[name].right(value)
            way_out = f"write {name}={right!r}" if right is not None else f"as in {example}"
            return f"{called}.{name} takes {kinds[name]}, not {shown}: {way_out}"
    return None


def _name_of(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name of a function, or of the class whose object is made."""
    return type(args[0]).__name__ if function.__name__ == "__init__" else function.__qualname__


def in_a_line(value: object) -> str:
    """`value` in a line to type. A value without a short form in Python is left out."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS and not text.startswith("<") else "..."


@dataclass(slots=True, frozen=True)
class _PlainKind:
    """The kinds that an argument may have, one of them or `None`."""

    names: tuple[str, ...]
    """Keys of `_KINDS`. Empty: everything fits."""
    optional: bool = False
    """Whether `None` fits, too."""
    default: Any = inspect.Parameter.empty
    """The default, which fits whatever it is."""

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(_KINDS[name][1] for name in self.names))

    def fits(self, value: object) -> bool:
        """Whether `value` is of one of these kinds."""
        if not self.names or value is self.default or (value is None and self.optional):
            return True
        return any(_KINDS[name][0](value) for name in self.names)

    def number(self, value: Any) -> Any:
        """`value` as an `int` or a `float`, where it is a number of another package and fits."""
        if not isinstance(value, Number) or isinstance(value, bool | complex) or self.fits(value):
            return value
        if "int" in self.names and isinstance(value, SupportsIndex):
            return operator.index(value)
        return float(value) if "float" in self.names and isinstance(value, SupportsFloat) else value

    def right(self, value: object) -> Any:
        """The value that was probably meant. `None`: that is not known."""
        if "bool" in self.names:
            return bool(value)
        if self.names[0] in _LISTS and isinstance(value, str):
            return [value]
        number = _NUMBER.fullmatch(value.strip().replace("_", "")) if isinstance(value, str) else None
        if number is not None and {"int", "float"} & {*self.names}:
            return float(number[1]) if "." in number[1] else int(number[1])
        if "float" in self.names and callable(seconds := getattr(value, "total_seconds", None)):
            return seconds()
        if self.names == ("int",) and isinstance(value, float) and math.isfinite(value):
            return int(value)
        return None


_NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?s?")
_LISTS: Final = ("Sequence", "Collection", "tuple")


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


_KINDS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "float": (_is_number, "a number"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "PathLike": (lambda value: isinstance(value, str) or hasattr(type(value), "__fspath__"), "a path"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a dict"),
    "Callable": (callable, "a function"),
    **dict.fromkeys(_LISTS, (_is_list, "a list")),
}
"""For the name of a kind in an annotation: whether a value has the kind, and words for it."""


def _kinds_of(signature: inspect.Signature) -> dict[str, _PlainKind]:
    """The kind of each parameter of `signature`, in their order."""
    return {name: _kind(parameter) for name, parameter in signature.parameters.items()}


def _kind(parameter: inspect.Parameter) -> _PlainKind:
    text = parameter.annotation if isinstance(parameter.annotation, str) else ""
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD} or not text:
        return _PlainKind(())
    names = [part.partition("[")[0].strip().rpartition(".")[2] for part in _alternatives(text)]
    known = tuple(name for name in names if name != "None" and not (name == "str" and "PathLike" in names))
    optional = "None" in names or parameter.default is None
    return _PlainKind(known if all(name in _KINDS for name in known) else (), optional, parameter.default)


def _alternatives(text: str) -> list[str]:
    """The parts between the bars of a union, not those inside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
