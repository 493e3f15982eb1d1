"""Makes answers and errors of tools the results that the model reads."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from monitor._util.argument_checks import is_finite
from monitor._util.arguments import closest, was_cut_off
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ToolError, describe, leaves_of, message_of
from monitor.messages import CUT_OFF
from monitor.reasons import ToolErrorKind
from monitor.tools.base import excerpt
from monitor.tools.results.tool_answer import ToolAnswer, answered

_ATOMS = frozenset({str, int, float, bool, type(None)})
"""Types of JSON data whose values need no copy."""
NAMES_SHOWN = 30
"""The most tools that are named to a model that called an unknown tool."""


def result_of(call: ToolCall, value: object) -> ToolResult:
    """The result of `call`, made of `value`, which its tool returned. Raises `ToolError` if `value`
    cannot be shown.
    """
    if type(value) is str:  # nearly always
        return ToolResult(call.id, call.name, value)
    try:
        if not isinstance(value, ToolAnswer):
            text, media = answered(value)
            return ToolResult(call.id, call.name, text, media=media)
        text = value.text if value.status is None else f"{value.status}\n{value.text}".rstrip("\n")
        kind = value.error_kind or (ToolErrorKind.EXECUTION_FAILED if value.is_error else None)
        media = answered(list(value.media))[1] if value.media else ()
    except ValueError as error:
        raise ToolError(str(error)) from None
    progress = value.data.get("progress") if isinstance(value.data, Mapping) else None
    number = float(progress) if is_finite(progress) else None
    return ToolResult(
        call.id,
        call.name,
        text,
        value.is_error,
        media,
        error_kind=kind,
        progress=number,
        wrote=() if value.is_error else value.wrote,
        display=value.display,
        ends_run=value.ends_run,
    )


def failed(call: ToolCall, text: str, kind: ToolErrorKind, *, vetoed: bool = False) -> ToolResult:
    """`text` as the result of `call`, which failed."""
    return ToolResult(call.id, call.name, text, is_error=True, vetoed=vetoed, error_kind=kind)


def failed_by(call: ToolCall, error: BaseException, cancelled: type[BaseException]) -> ToolResult:
    """The result of a call that ended with `error`. If that is a group of exceptions, the result
    names those in it: "unhandled errors in a TaskGroup" helps nobody.
    """
    leaves = list(leaves_of(error))
    text = "; ".join(dict.fromkeys(_one_error(leaf, cancelled) for leaf in leaves))
    kinds = {_kind_of(leaf) for leaf in leaves}
    return failed(call, f"Error: {text}", kinds.pop() if len(kinds) == 1 else ToolErrorKind.UNHANDLED)


def unknown_tool(name: str, tools: Collection[str]) -> ToolError:
    """The error for a call of an unknown tool. The detector `UnknownTool` knows its words."""
    text = f"unknown tool {excerpt(name)}."
    if not tools:
        text += " There are no tools; answer without one."
    else:
        if meant := closest(name, tools):
            text += f" Did you mean {meant}?"
        names = sorted(tools)
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        text += f" The tools are: {', '.join(names[:NAMES_SHOWN])}{more}."
    return ToolError(text, kind=ToolErrorKind.UNKNOWN_TOOL)


def arguments_of(given: Any) -> dict[str, Any]:
    """A copy of the arguments, so that a tool that changes them does not change the history. Raises
    `ToolError` if they are not one JSON object: half a call is never carried out.
    """
    if given is None:
        return {}
    if was_cut_off(given):
        raise ToolError(CUT_OFF, kind=ToolErrorKind.INVALID_ARGUMENTS)
    if not isinstance(given, Mapping):
        text = f"the arguments must be one JSON object; these are not: {excerpt(given)}"
        raise ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)
    return {key: _copied(value) for key, value in given.items()}


def _copied(value: Any) -> Any:
    """A copy of JSON data, made in less time than `copy.deepcopy`, which copies the rest."""
    if type(value) in _ATOMS:
        return value
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    if type(value) is list:
        return [_copied(one) for one in value]
    return copy.deepcopy(value)


def _one_error(error: BaseException, cancelled: type[BaseException]) -> str:
    if isinstance(error, cancelled):
        return "something that the tool waited for was cancelled"
    return (message_of(error) if isinstance(error, ToolError) else "") or describe(error)


def _kind_of(error: BaseException) -> ToolErrorKind:
    if isinstance(error, ToolError):
        return error.kind
    for types, kind in _KINDS:
        if isinstance(error, types):
            return kind
    return ToolErrorKind.UNHANDLED


_KINDS = (
    (FileNotFoundError, ToolErrorKind.NOT_FOUND),
    (PermissionError, ToolErrorKind.PERMISSION),
    (TimeoutError, ToolErrorKind.TIMEOUT),
)
