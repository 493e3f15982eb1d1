"""Automatic function calling of google-genai: the results of the calls that the SDK has carried out
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from monitor._util.codec import text_of
from monitor.adapters.behind import held_behind
from monitor.adapters.error_causes import attribute
from monitor.adapters.parts import list_at
from monitor.chunks import ToolResult


def results_in(contents: Sequence[Any]) -> list[ToolResult]:
    """The results at the end of a call history, in their order."""
    found: list[ToolResult] = []
    for content in reversed(contents):
        answers = [getattr(part, "function_response", None) for part in list_at(content, "parts")]
        if not any(answers):
            break
        found = [*(_result(one) for one in answers if one is not None), *found]
    return found


def answer_behind(source: object, called: AbstractSet[str]) -> object:
    """The message with the results of the functions `called`, which the SDK has sent in its newest
    request. The SDK shows it to nobody in a chat, nor with `ignore_call_history`. So it is taken
    from the SDK's generators behind `source`. `None`: it is not found.
    """

    def answers(held: object) -> object:
        if type(held).__module__ != "google.genai.types":
            return None
        parts = attribute(held, "parts")
        names = {attribute(attribute(part, "function_response"), "name") for part in parts or ()}
        return held if names and names <= called else None

    return next(iter(held_behind(source, answers)), None)


def _result(answer: object) -> ToolResult:
    given = getattr(answer, "response", None)
    is_error = isinstance(given, Mapping) and "error" in given
    if isinstance(given, Mapping) and len(given) == 1:
        given = next(iter(given.values()))
    return ToolResult(
        getattr(answer, "id", None) or "", getattr(answer, "name", None) or "", text_of(given), is_error=is_error
    )
