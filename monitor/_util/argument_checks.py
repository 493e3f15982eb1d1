"""Checks of arguments, at the place where the caller gives them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, TypeGuard, get_args

from monitor.errors import ConfigError

if sys.version_info >= (3, 14):
    from annotationlib import Format

ROUNDING_USD = 1e-9
"""Costs are sums of floats: a limit is passed by more than this, a tenth of what a token costs at a
cent a million.
"""


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number. `True` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that a float can hold, neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_number(name: str, given: object, least: int) -> None:
    """Raise `ConfigError` if `given` is not a whole number, `least` or more."""
    if not is_whole(given) or given < least:
        raise ConfigError(f"{name} is {given!r}; it must be a whole number, {least} or more")


def check_seconds(name: str, given: object) -> None:
    """Raise `ConfigError` if `given` is not a finite number of seconds above 0."""
    if not is_finite(given) or given <= 0:
        raise ConfigError(f"{name} is a number of seconds above 0, not {given!r}")


def check_word(name: str, given: object, words: Any) -> None:
    """Raise `ConfigError` if `given` is none of `words`, a `Literal`."""
    if given not in get_args(words):
        raise ConfigError(f"{name} is one of {', '.join(map(repr, get_args(words)))}, not {given!r}")


def check_kind(name: str, given: object, kind: type | UnionType, takes: str) -> None:
    """Raise `ConfigError` for what is neither `None` nor a `kind`; `takes` says what is wanted."""
    if given is not None and not isinstance(given, kind):
        raise ConfigError(f"{name} takes {takes}, not {given!r}")


def check_parts(name: str, given: object, *methods: str) -> Sequence[Any]:
    """`given` as a list of detectors or sinks, checked where it is given. Each has one of
    `methods`.
    """
    if type(given) not in _LISTS and (not isinstance(given, Sequence) or isinstance(given, str)):
        one = type(given).__name__
        line = f"[{one}(...)]" if any(callable(getattr(given, each, None)) for each in methods) else "[...]"
        if inspect.isfunction(given) and not _needs_arguments(given):
            one, line = f"the function {given.__name__}", f"{given.__module__.partition('.')[0]}.{given.__name__}()"
        raise ConfigError(f"{name} takes a list, not {one}: write {name}={line}")
    parts: Sequence[Any] = given  # type: ignore[assignment]
    for part in parts:
        check_part(name, part, *methods)
    return parts


def _needs_arguments(kind: Callable[..., Any]) -> bool:
    """Whether an object of `kind` cannot be made, or the function `kind` called, without
    arguments.
    """
    try:
        parameters = signature_of(kind).parameters.values()
    except (TypeError, ValueError):  # a class without a signature
        return False
    named = (parameter for parameter in parameters if parameter.kind not in _ANY_NUMBER)
    return any(parameter.default is parameter.empty for parameter in named)


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_LISTS = (list, tuple)
"""Known at a glance: to ask whether an object is a sequence takes a microsecond."""


def check_part(name: str, part: object, *methods: str) -> None:
    """Raise `ConfigError` for a class in place of an object, and for an object without any of
    `methods`.
    """
    if isinstance(part, type):
        inside = "..." if _needs_arguments(part) else ""
        raise ConfigError(f"{name} takes objects, and {part.__name__} is a class: write {part.__name__}({inside})")
    if not any(callable(getattr(part, method, None)) for method in methods):
        a = "an" if name[0] in "aeio" else "a"
        way_out = f"give {a} {name.removesuffix('s')} object"
        if name == "detectors" and inspect.isroutine(part):
            way_out = f"write @monitor.detectors.as_detector above def {part.__name__}"
        raise ConfigError(f"{name}: {part!r} has no {methods[-1]}(): {way_out}")


def check_model(name: str, model: object) -> None:
    """Raise `ConfigError` for what is no model: its name, a client of an SDK, nothing."""
    if isinstance(model, str):
        wanted = model if ":" in model else named_by_provider(model)
        raise ConfigError(f"{name}: {model!r} is a name; write {name}=monitor.model({wanted!r})")
    known = None if isinstance(model, type) else _MODELS.get(type(model).__module__.partition(".")[0])
    if known is not None and not callable(getattr(model, "stream", None)):
        kind = type(model).__name__
        raise ConfigError(f"{name}: {kind} is a client; write {name}=monitor.model({known!r}, client=client)")
    if model is None:
        raise ConfigError(f"{name}: None is no model; write {name}=monitor.model({_MODELS['google']!r})")
    check_part(name, model, "stream")


def named_by_provider(model: str) -> str:
    """The name with the provider that has such names, as `monitor.model` takes it."""
    made_by = next((provider for start, provider in _STARTS.items() if model.startswith(start)), None)
    return f"{made_by}:{model}" if made_by else _MODELS["google"]


_STARTS = {"claude": "anthropic", "gemini": "google", **dict.fromkeys(("chatgpt", "gpt", "o1", "o3", "o4"), "openai")}
"""How the names of a provider's models begin."""
_MODELS = {"anthropic": "anthropic:claude-sonnet-5", "google": "google:gemini-2.5-flash", "openai": "openai:gpt-5"}
"""For each SDK, a model as an example."""


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of somebody's function. A type that only a type checker knows stays a name:
    from 3.14 on Python evaluates annotations when they are read, and would raise `NameError`.
    Raises `TypeError` and `ValueError` as `inspect.signature` does.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def with_context(name: str, function: Callable[..., Any], line: str) -> Callable[[Any, Any], Any]:
    """`function`, called with a value and its context, or with the value alone if it needs no more.

    Raises `ConfigError` for a function that can be called with neither one nor two arguments;
    `line` shows what may be written.
    """
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # a function in C may not say
        return lambda value, _: function(value)
    for given, call in (((1,), lambda value, _: function(value)), ((1, 2), function)):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return call
    raise ConfigError(f"{name}: a function{signature} cannot be called with one or two arguments; write {name}={line}")
