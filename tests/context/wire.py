"""What the adapters send for a history, in each provider's form, and the SDKs' own word on it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from monitor.adapters import to_form
from monitor.context import Form
from monitor.messages import Message

FORMS: tuple[Form, ...] = ("gemini", "openai-chat", "openai-responses", "anthropic")

_SDK_TYPES: Mapping[Form, tuple[str, str]] = {
    "gemini": ("google.genai.types", "Content"),
    "openai-chat": ("openai.types.chat", "ChatCompletionMessageParam"),
    "openai-responses": ("openai.types.responses", "ResponseInputItemParam"),
    "anthropic": ("anthropic.types", "MessageParam"),
}


def builder(form: Form) -> Callable[[Iterable[Message]], list[dict[str, Any]]]:
    """What writes messages in `form`."""
    return functools.partial(to_form, form)


@functools.cache
def _sdk_type(form: Form) -> TypeAdapter[Any]:
    module, name = _SDK_TYPES[form]
    one: Any = getattr(importlib.import_module(module), name)
    return TypeAdapter(list[one])


def sdk_takes(form: Form, sent: list[dict[str, Any]]) -> None:
    """Raises what the SDK's own type of a message raises."""
    _sdk_type(form).validate_python(sent)
