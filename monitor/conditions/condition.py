"""The base class of conditions, and how conditions combine.

A condition reads a `RunState` and keeps no state, so any number of runs can share it. Its methods:

- `evaluate(state)`: a `Stop` with reason, limit, value and source if the condition is true now.
- `deadline(state)`: when it would become true if nothing else happened. The harness sleeps until
  the earliest deadline.
- `token_headroom(state)`, `cost_headroom(state)`: how many more tokens or dollars may be used
  before it can become true. The core counts both down.
- `progress(state)`: how far each limit is used up. The core warns before a limit is reached.

`a | b` is true when one of them is. `a & b` is true when all are, and the first gives the reason.
`~a` is true when `a` is not. Every `Stop` of a composition contains the tree of its parts.

When several things are true at the same look, the user's abort wins, then loops, then limits. In `a
| b` the part that became true first gives the reason. A timed part became true at its deadline, any
other part now. If two are equal, the part that is written first wins.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

from monitor._util.codec import tag_of
from monitor._util.explained_options import SHOWN_CHARS
from monitor.errors import ConfigError, TerminateReason
from monitor.events import Limit
from monitor.outcome import RunState
from monitor.verdicts import Met, Stop

# --------------------------------------------------------------------------------------------------
# Conditions as lines to type, for the messages about wrong ones.


def spelled(condition: object) -> str:
    """`condition` as a line of Python, such as `monitor.MaxTurns(30)`."""
    if isinstance(parts := getattr(condition, "parts", None), tuple):
        return f" {getattr(condition, 'symbol', '|')} ".join(map(_inside, parts))
    if (part := getattr(condition, "part", None)) is not None:
        return f"~{_inside(part)}"
    kind = type(condition)
    room = "monitor." if kind.__module__.startswith("monitor.") else ""
    return f"{room}{kind.__name__}({', '.join(_arguments(condition))})"


def joined(conditions: Iterable[object]) -> str:
    """The condition that is true when one of `conditions` is, as a line of Python."""
    return " | ".join(map(_inside, conditions))


def another(condition: object) -> str:
    """A condition to show beside `condition`."""
    return "monitor.MaxTurns(30)" if "Timeout" in type(condition).__name__ else "monitor.Timeout(600)"


def wanted(name: str, given: object, kind: type, example: str) -> str:
    """The message about `given`, which is no condition: what it is, and the line to type.

    `kind`: the base of all conditions. `example`: a condition that fits.
    """
    if isinstance(given, list | tuple | set | frozenset) and given and all(isinstance(part, kind) for part in given):
        return f"{name} takes one condition, not a {type(given).__name__} of {len(given)}: write {name}={joined(given)}"
    if isinstance(given, type) and issubclass(given, kind):
        return f"{name} takes a condition, and {given.__name__} is a class: write {name}=monitor.{given.__name__}(...)"
    if isinstance(given, int | float) and not isinstance(given, bool):
        return (
            f"{name} takes a condition such as {example}, not {given!r}, which may be turns or seconds: write"
            f" {name}=monitor.MaxTurns({given!r}) or {name}=monitor.Timeout({given!r})"
        )
    line = f"monitor.Predicate({getattr(given, '__name__', 'function')})" if callable(given) else example
    line = line.replace("<lambda>", "lambda state: ...")
    return f"{name} takes a condition such as {example}, not {given!r:.{SHOWN_CHARS}}: write {name}={line}"


def _inside(condition: object) -> str:
    """`condition` as a part of a longer line."""
    text = spelled(condition)
    return f"({text})" if isinstance(getattr(condition, "parts", None), tuple) else text


def _arguments(condition: object) -> Iterable[str]:
    if not is_dataclass(condition):
        return
    for at, field in enumerate(fields(condition)):
        value = getattr(condition, field.name)
        if field.init and (field.default is MISSING or value != field.default):
            yield repr(value) if at == 0 else f"{field.name}={value!r}"


_KNOWN: dict[str, type[Condition]] = {}
"""Every condition class by its tag, the caller's own classes included."""


class Condition(ABC):
    """Base of all conditions. Built-in ones are frozen, picklable and have a JSON form."""

    _tag: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._tag = tag_of(cls)
        known = _KNOWN.get(tag_of(cls))
        # A class of the same name elsewhere must not replace the JSON form of the first.
        if known is None or known.__module__ == cls.__module__:
            _KNOWN[tag_of(cls)] = cls

    @property
    def name(self) -> str:
        """The name that stands as `source` in reasons."""
        return self._tag

    @abstractmethod
    def evaluate(self, state: RunState) -> Stop | None:
        """A `Stop` if the condition is true of `state`, else `None`."""

    def deadline(self, state: RunState) -> float | None:
        """The earliest moment, in seconds since the run began, at which the condition can become
        true by time alone. `None`: never.
        """
        return None

    def token_headroom(self, state: RunState) -> int | None:
        """Tokens that may still come before the condition can become true. `None`: it does not
        depend on tokens.
        """
        return None

    def cost_headroom(self, state: RunState) -> float | None:
        """US dollars that may still be spent before the condition can become true. `None`: it does
        not depend on the cost.
        """
        return None

    def progress(self, state: RunState) -> Sequence[Met]:
        """How far each limit is used up, as `value` of `limit`: always the same limits in the same
        order. Empty: there is nothing to warn of.
        """
        return ()

    # What begins with `_known` is worked out once: a condition does not change, and many runs share
    # one.

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_known")}

    @cached_property
    def _known_limits(self) -> tuple[Limit, ...]:
        used = self.progress(RunState())
        return tuple(Limit(met.condition, met.limit) for met in used if isinstance(met.limit, int | float))

    @cached_property
    def _known_leaves(self) -> tuple[Condition, ...]:
        return (self,)

    def met(self, state: RunState) -> Met:
        """Whether the condition is true, as a node of the tree in a `Stop`."""
        stop = self.evaluate(state)
        return Met(
            self.name, met=stop is not None, value=stop.value if stop else None, limit=stop.limit if stop else None
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; `condition_from_dict` is the inverse."""
        if not _is_dataclass(type(self)):
            raise ConfigError(f"condition {self.name!r} is not a dataclass and so has no JSON form")
        values = {name: getattr(self, name) for name in _field_names(type(self))}
        return {
            "type": tag_of(type(self)),
            **{name: v.value if isinstance(v, Enum) else v for name, v in values.items()},
        }

    def __or__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            raise _not_joined(self, "|", other)
        return AnyOf((*parts_of(self, AnyOf), *parts_of(other, AnyOf)))

    def __and__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            raise _not_joined(self, "&", other)
        return AllOf((*parts_of(self, AllOf), *parts_of(other, AllOf)))

    def __ror__(self, other: object) -> NoReturn:
        raise _not_joined(self, "|", other)

    def __rand__(self, other: object) -> NoReturn:
        raise _not_joined(self, "&", other)

    def __add__(self, other: object) -> NoReturn:
        """Conditions are joined by `|` and `&`."""
        raise _not_joined(self, "|", other, "+ does not join conditions, | does")

    __radd__ = __add__

    def __invert__(self) -> Condition:
        return Not(self)

    def __bool__(self) -> NoReturn:
        """A condition has no truth value: `a or b` would be `a` alone."""
        raise ConfigError(
            f"a condition is neither true nor false, so `or`, `and`, `not` and `if` cannot join it; `|` is or, `&` is"
            f" and, `~` is not: write {spelled(self)} | {another(self)}"
        )


def check_condition(name: str, given: object, example: str) -> None:
    """Raise `ConfigError` for what is neither `None` nor a condition. `example`: one that fits."""
    if given is not None and not isinstance(given, Condition):
        raise ConfigError(wanted(name, given, Condition, example))


def _not_joined(condition: Condition, symbol: str, other: object, why: str = "") -> ConfigError:
    if isinstance(other, Condition):
        return ConfigError(f"{why}: write {spelled(condition)} {symbol} {spelled(other)}")
    if isinstance(other, type) and issubclass(other, Condition):
        right, why = f"monitor.{other.__name__}(...)", f"{other.__name__} is a class"
    else:
        right, why = another(condition), f"{other!r} is none"
    return ConfigError(f"{symbol} joins two conditions, and {why}: write {spelled(condition)} {symbol} {right}")


def leaves(condition: Condition) -> tuple[Condition, ...]:
    """The simple conditions of which `condition` is composed."""
    return condition._known_leaves  # noqa: SLF001 - of this module's class


def limits_of(condition: Condition) -> tuple[Limit, ...]:
    """The limits of `condition` that can be used up, as `progress` has them."""
    return condition._known_limits  # noqa: SLF001 - of this module's class


def parts_of(condition: Condition, kind: type[AnyOf | AllOf]) -> tuple[Condition, ...]:
    """The parts of `condition` if it is a composition of `kind`: `a | b | c` is one composition of
    three.
    """
    return condition.parts if isinstance(condition, kind) else (condition,)


_NAME = attrgetter("name")


@dataclass(frozen=True)
class _Composition(Condition, ABC):
    parts: tuple[Condition, ...]

    symbol: ClassVar[str]

    @property
    def name(self) -> str:
        return self._known_name

    @cached_property
    def _known_name(self) -> str:
        return "(" + f" {self.symbol} ".join(map(_NAME, self.parts)) + ")"

    @cached_property
    def _known_leaves(self) -> tuple[Condition, ...]:
        return tuple(leaf for part in self.parts for leaf in leaves(part))

    def met(self, state: RunState) -> Met:
        return Met(self.name, met=self.evaluate(state) is not None, parts=tuple(part.met(state) for part in self.parts))

    def progress(self, state: RunState) -> Sequence[Met]:
        return [met for part in self.parts for met in part.progress(state)]

    def to_dict(self) -> dict[str, Any]:
        return {"type": tag_of(type(self)), "parts": [part.to_dict() for part in self.parts]}

    def _with_tree(self, stop: Stop, state: RunState, source: str) -> Stop:
        tree = Met(self.name, met=True, parts=tuple(part.met(state) for part in self.parts))
        return Stop(stop.reason, stop.detail, source, stop.limit, stop.value, tree)


@dataclass(frozen=True)
class AnyOf(_Composition):
    """True when one of its parts is true: `a | b`."""

    symbol: ClassVar[str] = "|"

    def evaluate(self, state: RunState) -> Stop | None:
        first: Stop | None = None
        first_at = math.inf
        for part in self.parts:
            stop = part.evaluate(state)
            if stop is None:
                continue
            timed = part.deadline(state)
            since = state.elapsed_s if timed is None else min(timed, state.elapsed_s)
            if since < first_at:
                first, first_at = stop, since
        return None if first is None else self._with_tree(first, state, first.source)

    # This runs at every look: loops are faster than generators.

    def deadline(self, state: RunState) -> float | None:
        earliest: float | None = None
        for part in self.parts:
            due = part.deadline(state)
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def token_headroom(self, state: RunState) -> int | None:
        least: int | None = None
        for part in self.parts:
            room = part.token_headroom(state)
            if room is not None and (least is None or room < least):
                least = room
        return least

    def cost_headroom(self, state: RunState) -> float | None:
        least: float | None = None
        for part in self.parts:
            room = part.cost_headroom(state)
            if room is not None and (least is None or room < least):
                least = room
        return least


@dataclass(frozen=True)
class AllOf(_Composition):
    """True when all of its parts are true: `a & b`."""

    symbol: ClassVar[str] = "&"

    def evaluate(self, state: RunState) -> Stop | None:
        first: Stop | None = None
        for part in self.parts:
            stop = part.evaluate(state)
            if stop is None:
                return None
            first = first or stop
        return first and self._with_tree(first, state, self.name)

    def deadline(self, state: RunState) -> float | None:
        latest: float | None = None
        for part in self.parts:
            timed = part.deadline(state)
            if part.evaluate(state) is not None:
                timed = -math.inf if timed is None else min(timed, state.elapsed_s)
            if timed is None:
                return None
            latest = timed if latest is None else max(latest, timed)
        if latest is None:
            return None
        return max(latest, 0.0)

    def token_headroom(self, state: RunState) -> int | None:
        return min(
            (
                h
                for part in self.parts
                if part.evaluate(state) is None and (h := part.token_headroom(state)) is not None
            ),
            default=None,
        )

    def cost_headroom(self, state: RunState) -> float | None:
        return min(
            (h for part in self.parts if part.evaluate(state) is None and (h := part.cost_headroom(state)) is not None),
            default=None,
        )


@dataclass(frozen=True)
class Not(Condition):
    """`~a`. It has no deadline and no headroom: it is evaluated only when something happens in the
    run.
    """

    part: Condition

    @property
    def name(self) -> str:
        return f"~{self.part.name}"

    @cached_property
    def _known_leaves(self) -> tuple[Condition, ...]:
        return leaves(self.part)

    def evaluate(self, state: RunState) -> Stop | None:
        if self.part.evaluate(state) is not None:
            return None
        tree = Met(self.name, met=True, parts=(self.part.met(state),))
        return Stop(TerminateReason.CONDITION_MET, f"{self.part.name} is not true", self.name, evidence=tree)

    def met(self, state: RunState) -> Met:
        inner = self.part.met(state)
        return Met(self.name, met=not inner.met, parts=(inner,))

    def to_dict(self) -> dict[str, Any]:
        return {"type": tag_of(type(self)), "part": self.part.to_dict()}


def _is_dataclass(cls: type) -> bool:
    return is_dataclass(cls)


def _field_names(cls: Any) -> set[str]:
    return {field.name for field in fields(cls) if field.init}


def condition_from_dict(data: Mapping[str, Any]) -> Condition:
    """The condition that `to_dict` was called on. Raises `ConfigError` for anything else."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"a condition is a JSON object, not {type(data).__name__}")
    tag = data.get("type")
    cls = _KNOWN.get(tag) if isinstance(tag, str) else None
    if cls is None or not _is_dataclass(cls) or cls is _Composition:
        raise ConfigError(f"unknown condition {tag!r}")
    values = {key: value for key, value in data.items() if key != "type"}
    unknown = values.keys() - _field_names(cls)
    if unknown:
        raise ConfigError(f"condition {tag!r} has no {', '.join(map(repr, sorted(map(str, unknown))))}")
    if issubclass(cls, AnyOf | AllOf):
        parts = values.get("parts")
        if not isinstance(parts, list | tuple) or not parts:
            raise ConfigError(f"{tag!r} needs a list of conditions in 'parts'")
        return cls(tuple(condition_from_dict(part) for part in parts))
    if cls is Not:
        return Not(condition_from_dict(values.get("part", {})))
    try:
        return cls(**values)  # conditions check their own arguments
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"condition {tag!r}: {error}") from None
