"""Checks the arguments of a call against the JSON schema of its tool, before anything is done.

The schema of a tool that somebody else wrote (an MCP server, a command, a class of the caller's) is
compiled once, by `jsonschema-rs`. The model reads each fault in words: where it is, what was
sent, and what is expected. Nothing is fetched: a reference to another document is an error of the
schema. A pattern may not look back without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

from monitor._util.cuts import cut_before
from monitor.errors import ConfigError, ToolError, describe, message_of
from monitor.reasons import ToolErrorKind
from monitor.schemas import standard_types
from monitor.tools.base import excerpt

if TYPE_CHECKING:
    import jsonschema_rs

FAULTS_SHOWN: Final = 8
"""The most mistakes of one call that are named to the model."""
FAULT_CHARS: Final = 400
"""The most characters of one mistake: a choice of many values is long."""
BACKTRACKS: Final = 100_000
"""The most steps back of one pattern over one text: a few milliseconds."""
MOST_VALUES: Final = 300
MOST_CHARS: Final = 100_000
"""The size above which only the first mistake of arguments is looked for. The validator makes all
at once. Each holds a copy of what is wrong, which may be the whole: 100,000 wrong names took all
memory.
"""
_BRANCHES_SHOWN: Final = 4
_PLACE: Final = "\0"
"""Stands in the messages of the validator where the value is, which is put in by `excerpt`."""


class UnusableSchema(ConfigError):
    """The schema of a tool is no JSON schema, so the tool cannot be offered."""


class ArgumentSchema:
    """The schema of one tool's arguments, compiled. Raises `UnusableSchema` if it is none."""

    __slots__ = ("_known", "_name", "_validator")

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        """`name`: the tool. A schema without a known draft is one of 2020-12, else of draft 4."""
        self._name = name
        properties = schema.get("properties")
        self._known = tuple(map(str, properties)) if isinstance(properties, Mapping) else ()
        self._validator = _compiled(name, standard_types(schema)) if schema else None

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolError`, which names each fault, if `arguments` do not fit the schema."""
        if self._validator is None:
            return
        try:
            given = dict(arguments)
            whole = _is_small(given)
            faults = list(self._validator.iter_errors(given)) if whole else _first_fault(self._validator, given)
        except Exception as error:  # noqa: BLE001 - too deep, or no JSON data: the reason is in the message
            self._refuse([f"they cannot be read as JSON data: {describe(error)}"])
        if faults:
            lines = dict.fromkeys(line for fault in faults for line in _lines(fault))
            self._refuse([*lines], whole=whole)

    def _refuse(self, lines: list[str], *, whole: bool = True) -> NoReturn:
        more = [f"and {len(lines) - FAULTS_SHOWN} more"] if len(lines) > FAULTS_SHOWN else []
        more = more if whole else [*more, "there may be more"]
        takes = f" Arguments of {self._name}: {', '.join(self._known)}." if self._known else ""
        text = f"invalid arguments: {'; '.join([*lines[:FAULTS_SHOWN], *more])}.{takes}"
        raise ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)


def _is_small(arguments: object) -> bool:
    """Whether arguments have so few values and characters that all mistakes are looked for."""
    values, chars = 0, 0
    left = [arguments]
    while left and values <= MOST_VALUES and chars <= MOST_CHARS:
        one = left.pop()
        values += 1
        if isinstance(one, str):
            chars += len(one)
        elif isinstance(one, Mapping):
            left += [*islice(one, MOST_VALUES), *islice(one.values(), MOST_VALUES)]
            values += len(one) // MOST_VALUES * MOST_VALUES
        elif isinstance(one, list | tuple):
            left += islice(one, MOST_VALUES)
            values += len(one) // MOST_VALUES * MOST_VALUES
    return not left and values <= MOST_VALUES and chars <= MOST_CHARS


def _first_fault(validator: jsonschema_rs.Validator, arguments: object) -> list[jsonschema_rs.ValidationError]:
    import jsonschema_rs as rs  # noqa: PLC0415 - it is loaded already

    try:
        validator.validate(arguments)
    except rs.ValidationError as fault:
        return [fault]
    return []


def argument_check(name: str, schema: Mapping[str, Any], own: Callable[[Mapping[str, Any]], object] | None) -> Any:
    """The check of a tool's arguments: its schema, then the check `own` of the tool itself."""
    check = ArgumentSchema(name, schema).check
    if own is None:
        return check

    def both(arguments: Mapping[str, Any]) -> None:
        check(arguments)
        own(arguments)

    return both


def _compiled(name: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
    import jsonschema_rs as rs  # noqa: PLC0415 - 20 ms, which a program without such tools need not wait

    options: dict[str, Any] = {
        "mask": _PLACE,
        "retriever": _not_fetched,
        "validate_formats": True,
        "pattern_options": rs.FancyRegexOptions(backtrack_limit=BACKTRACKS),
    }
    try:
        return rs.validator_for(schema, **options)
    except Exception as error:  # noqa: BLE001 - a schema of somebody else's may be anything
        bare = {key: value for key, value in schema.items() if key != "$schema"}
        for older in (rs.Draft202012Validator, rs.Draft4Validator):
            try:
                return older(bare, **options)
            except Exception:  # noqa: BLE001, S112 - the first reason is the one to tell
                continue
        why = _clipped(message_of(error).partition("\n\n")[0].replace(_PLACE, "a part of it"))
        raise UnusableSchema(f"the schema of the tool {name!r} is no JSON schema: {why}") from None


def _not_fetched(uri: str) -> NoReturn:
    raise ConfigError(f"{uri} is another document, and a schema is never fetched; write it into $defs")


def _lines(fault: jsonschema_rs.ValidationError, within: str = "") -> Iterator[str]:
    """One fault in words, each with its place."""
    what: Any = fault.kind
    place = [str(part) for part in fault.instance_path]
    match what.name:
        case "required":
            yield f"{'.'.join([*place, str(what.property)])}: is required"
        case "additionalProperties" | "unevaluatedProperties":
            for name in what.unexpected:
                yield f"{_clipped('.'.join([*place, str(name)]))}: is not known"
        case "falseSchema" if not place:  # `additionalProperties: false` where no property is declared
            yield "arguments: none are known"
        case "anyOf" | "oneOf" if getattr(what, "context", None):
            branches = [line for branch in what.context for line in list(_lines(branch[0], "form"))[:1] if branch]
            shown = " or ".join(dict.fromkeys(branches[:_BRANCHES_SHOWN]))
            yield _clipped(f"{'.'.join(place) or 'arguments'}: fits none of its forms: {shown}")
        case _:
            said = fault.message.replace(_PLACE, excerpt(fault.instance))
            yield _clipped(said if within and not place else f"{'.'.join(place) or 'arguments'}: {said}")


def _clipped(text: str) -> str:
    return text if len(text) <= FAULT_CHARS else f"{text[: cut_before(text, FAULT_CHARS)]}..."
