"""Fields that hold one word of a few: a record with any other word is not made.

`@checked` stands between `@dataclass` and the class. The words are read once from the type of each
field: those of a `Literal`, and the members of an enum. The text of a member becomes the member.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from monitor.errors import ConfigError

T = TypeVar("T")


def checked(cls: type[T]) -> type[T]:
    """The class `cls`, whose objects raise `ConfigError` if they are made with a wrong word."""
    after: Any = getattr(cls, "__post_init__", None)

    def check(self: Any) -> None:
        kind: type = type(self)
        for name, words, others in words_of(kind):
            given = getattr(self, name)
            try:
                word = words[given]
            except (KeyError, TypeError):  # none of them, or not even hashable
                word = None
            if word is not None and (type(given) is type(word) or isinstance(given, str)):
                if word is not given:
                    object.__setattr__(self, name, word)
            elif not isinstance(given, others):
                shown = ", ".join(repr(one.value if isinstance(one, Enum) else one) for one in words)
                raise ConfigError(f"{name} is one of {shown}, not {given!r}")
        if after is not None:
            after(self)

    cls.__post_init__ = check  # type: ignore[attr-defined]
    return cls


@cache
def words_of(cls: type) -> tuple[tuple[str, dict[Any, Any], tuple[type, ...]], ...]:
    """For each field of a dataclass that holds a word: its name, the words, and the types of other
    values that it may have.
    """
    hints = get_type_hints(cls)
    read = [(one.name, *_words_in(hints[one.name])) for one in fields(cls)]
    return tuple(one for one in read if one[1] and not {object, str}.intersection(one[2]))


def _words_in(kind: Any) -> tuple[dict[Any, Any], tuple[type, ...]]:
    """The words of a type, and the types beside them."""
    words: dict[Any, Any] = {}
    others: list[type] = []
    for one in get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,):
        if get_origin(one) is Literal:
            words.update((word, word) for word in get_args(one))
        elif isinstance(one, type) and issubclass(one, Enum):
            words.update((word, word) for word in one)
        else:
            others.append(one if isinstance(one, type) else get_origin(one) or object)
    return words, tuple(others)
