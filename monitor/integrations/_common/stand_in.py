"""A wrapper that a framework, and its user, take for the thing that it wraps.

Frameworks ask `isinstance(model, TheirConcreteModel)`, and users read and set fields of their
model. A wrapper that is neither is noticed in a good run.
"""

from __future__ import annotations

import copy
import inspect
from functools import cache
from typing import Any, NoReturn, Self

from monitor.integrations._common.guarded_requests import class_as


class StandIn:
    """The base of a wrapper of `wrapped`. It comes before the framework's class among the bases.

    - `isinstance` is true for the classes of the wrapped thing, and for those of the wrapper.
    - Its type has the name and the module of the wrapped thing's: logs and traces show them.
    - `repr`, and attributes that the wrapper does not define, are those of the wrapped thing. An
      attribute that is set is set there, unless the wrapper has set it before `wrapped`.
    - `forwards`, an argument of the class: a base whose public attributes are those of the wrapped
      thing, unless a class below it has its own. So are those that later versions add.
    - `copy.copy` and `copy.deepcopy` copy the wrapped thing. The copy has the same guard.
    - A wrapper cannot be pickled: its guard belongs to this process.
    """

    wrapped: Any

    def __init_subclass__(cls, *, forwards: type | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in forwards.__mro__[:-1] if forwards is not None else ():
            for name, value in vars(base).items():
                if not name.startswith("_") and inspect.getattr_static(cls, name) is value:
                    setattr(cls, name, _Forwarded(name, value))

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.wrapped.__class__ if "wrapped" in self.__dict__ else type(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "wrapped" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "wrapped":
            kinds: tuple[Any, Any] = type(self), type(value)
            vars(object)["__class__"].__set__(self, _named(*kinds))
        if name in self.__dict__ or "wrapped" not in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.wrapped, name, value)

    def __repr__(self) -> str:
        return repr(self.wrapped)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.wrapped)})

    def __copy__(self) -> Self:
        return self._around(copy.copy(self.wrapped))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._around(copy.deepcopy(self.wrapped, memo))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a guarded {type(self.wrapped).__name__} cannot be pickled: its guard belongs to this process")

    @staticmethod
    def _without(wrapped: Any, guard: Any) -> Any:
        """`wrapped` without a wrapper of the same guard, which would count each response twice."""
        while issubclass(type(wrapped), StandIn) and wrapped.__dict__["_requests"].guard is guard:
            wrapped = wrapped.wrapped
        return wrapped

    def _around(self, wrapped: Any) -> Self:
        """The same wrapper around another thing."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, wrapped=wrapped)
        return other


@cache
def _named(wrapper: Any, of: Any) -> Any:
    """The class of a wrapper under the name of the class that it stands for."""
    base = wrapper.__bases__[0] if "_stands_for" in vars(wrapper) else wrapper
    return class_as(of, base, {"_stands_for": of})


class _Forwarded:
    """An attribute of a framework's base class that is taken from the wrapped thing."""

    def __init__(self, name: str, of_base: Any) -> None:
        self._name = name
        self._of_base = of_base

    def __get__(self, wrapper: StandIn | None, owner: type) -> Any:
        if wrapper is not None:
            return getattr(wrapper.wrapped, self._name)
        bind = getattr(self._of_base, "__get__", None)
        return self._of_base if bind is None else bind(None, owner)
