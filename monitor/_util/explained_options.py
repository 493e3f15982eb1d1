"""Options that a function does not have: the error names the right one.

A stranger writes `max_turns=30` or `system="..."`, as in another library. Python's own message says
only that the name is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

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
    *, example: str = "", words: Mapping[str, str] | None = None, explain: Explain | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: arguments that the function does not take raise `ConfigError` with the right line.

    `example`: a right call. `words`: the names of options in other libraries, and those of this
    function. `explain`: what only the caller knows.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:
                mistake = _mistake(checked, args, kwargs, example=example, words=words or {}, explain=explain)
                if mistake is None:  # the error comes from inside
                    raise
                raise ConfigError(mistake) from None

        return checked

    return decorate


def explained(*, example: str, words: Mapping[str, str] | None = None) -> Callable[[type[R]], type[R]]:
    """`explains_options` for the arguments of a class that does not write its `__init__` itself."""

    def decorate(kind: type[R]) -> type[R]:
        made: Any = kind
        made.__init__ = explains_options(example=example, words=words)(made.__init__)
        return kind

    return decorate


def _mistake(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    example: str,
    words: Mapping[str, str],
    explain: Explain | None,
) -> str | None:
    """The difference between the arguments and the signature of `function`, with the way out."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        wrong = str(error)
    else:
        return None
    name = function.__qualname__.removesuffix(".__init__")
    known = [option for option in signature.parameters if option != "self"]
    unknown = next((option for option in kwargs if option not in known), None)
    if unknown is None:
        return f"{name}: {wrong}; write {example}" if example else f"{name}: {wrong}; it takes {', '.join(known)}"
    value = kwargs[unknown]
    says = f"{name} has no option {unknown!r}"
    if (right := words.get(unknown)) in known:
        return f"{says}: write {right}={_shown(value)}"
    if explain is not None and (line := explain(name, unknown, value)) is not None:
        return f"{says}: {line}"
    if closest := get_close_matches(unknown, known, 1):
        return f"{says}: write {closest[0]}={_shown(value)}"
    return f"{says}; give one of these: {', '.join(known)}"


def _shown(value: object) -> str:
    """`value` in a line to type. A value without a short form in Python is left out."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS and not text.startswith("<") else "..."
