"""The options of a command as dataclasses: typer gets one parameter for each field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the fields of a dataclass in the place of each parameter that is one.

    The help has the options in the order of the parameters, and of the fields in them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat: list[Parameter] = []
    for one in signature(command).parameters.values():
        if one.name in groups:
            flat += _parameters(groups[one.name])
        else:
            flat.append(one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    called.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    return called


def _parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=_default(one), annotation=hints[one.name])
        for one in fields(group)
    ]


def _default(field: Field[Any]) -> Any:
    return Parameter.empty if field.default is MISSING else field.default
