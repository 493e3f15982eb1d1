"""The kinds of events, items, blocks and parts in the types of the installed SDKs."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import anthropic.types as stable
from anthropic.types import beta
from google.genai.types import Part
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic import BaseModel


def kinds() -> Iterator[tuple[str, str, str]]:
    """SDK, where it stands, and kind."""
    named: list[tuple[str, str, Any]] = [
        ("openai", "events of responses", ResponseStreamEvent),
        ("openai", "output items of responses", ResponseOutputItem),
        ("anthropic", "events", stable.RawMessageStreamEvent | beta.BetaRawMessageStreamEvent),
        ("anthropic", "deltas", stable.RawContentBlockDelta | beta.BetaRawContentBlockDelta),
        ("anthropic", "blocks", _block(stable.RawContentBlockStartEvent) | _block(beta.BetaRawContentBlockStartEvent)),
    ]
    for sdk, where, union in named:
        for kind in sorted({kind_of(one) for one in classes(union)}):
            yield sdk, where, kind
    for name in ChoiceDelta.model_fields:
        yield "openai", "the delta of chat completions", name
    for name in Part.model_fields:
        yield "google-genai", "parts", name


def classes(union: Any) -> Iterator[type[BaseModel]]:
    """The classes of a union, also inside `Annotated`."""
    origin = typing.get_origin(union)
    if origin is typing.Annotated:
        yield from classes(typing.get_args(union)[0])
    elif origin in {typing.Union, types.UnionType}:
        for one in typing.get_args(union):
            yield from classes(one)
    elif inspect.isclass(union) and issubclass(union, BaseModel):
        yield union


def kind_of(one: type[BaseModel]) -> str:
    """The value of the field `type`."""
    return str(typing.get_args(one.model_fields["type"].annotation)[0])


def _block(event: type[BaseModel]) -> Any:
    return event.model_fields["content_block"].annotation
