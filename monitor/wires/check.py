"""Checks whether a provider accepts a history, before it is sent. One invalid message makes the
provider refuse the whole request, and every later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.errors import ConfigError
from monitor.wires.anthropic import check as anthropic
from monitor.wires.chat import check as chat
from monitor.wires.forms import Form
from monitor.wires.gemini import check as gemini
from monitor.wires.problem import WireProblem
from monitor.wires.responses import check as responses

_VALIDATORS: Final[Mapping[Form, Callable[[Sequence[Mapping[str, Any]]], Iterator[WireProblem]]]] = {
    "gemini": gemini.problems,
    "openai-chat": chat.problems,
    "openai-responses": responses.problems,
    "anthropic": anthropic.problems,
}


def validate(form: Form, messages: Sequence[object]) -> list[WireProblem]:
    """The reasons for which the service would refuse `messages`: contents, messages or items, as
    they are about to be sent.

    The checks cover roles and their order, empty and unknown parts, ids, names and signatures.
    Every call must be answered once and in its place. Rules that depend on the model or on the
    settings are not checked: media types, sizes, whether a signature is genuine.

    Linear in the size of `messages`. Raises `ConfigError` for an unknown form.
    """
    problems = _VALIDATORS.get(form)
    if problems is None:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_VALIDATORS)}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return [WireProblem(index, "shape", f"it is {type(message).__name__}, not an object")]
    found = list(problems([message for message in messages if isinstance(message, Mapping)]))
    return found if messages else [WireProblem(0, "empty", "there are no messages")]
