"""Summaries by script, and what is to be compacted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import anyio.lowlevel

from monitor import AssistantMessage, UserMessage, Window
from monitor.chunks import AskCost, ToolCall, ToolResult, Usage
from monitor.context import Headroom
from monitor.context import window as headrooms
from monitor.context.compaction.attempts import CompactionInput
from monitor.context.compaction.pinned import PinnedFacts, head_of_messages, read_back
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.proposal import Proposal, propose
from monitor.context.compaction.templates import Template
from monitor.context.compaction.triggers import LOW_WATER, Marks
from monitor.context.history import unread_from
from monitor.context.tokens import message_tokens, size_of_text, size_of_tools
from monitor.errors import CompactionReason
from monitor.guard.streams.ask import ask_turn
from monitor.messages import Message, Text
from monitor.models import Model, ModelRequest, ToolSpec
from monitor.outcome import Turn
from monitor.testing import FakeClock, ScriptedModel

T = TypeVar("T")


def summary_of(template: Template, text: str = "the work goes well") -> str:
    """A well-formed summary."""
    return template.skeleton(dict.fromkeys(template.sections, text))


def summariser(template: Template, *answers: Any, name: str = "scripted:small") -> ScriptedModel:
    """A model that writes one well-formed summary after another, or `answers`."""
    if answers:
        return ScriptedModel(*answers, name=name)
    return ScriptedModel(lambda _: summary_of(template), name=name)


def situation(
    messages: Sequence[Message],
    *,
    window: int | None = 32_000,
    reason: CompactionReason = CompactionReason.CEILING,
    headroom: Headroom = headrooms.DEFAULT,
    low_water: float = LOW_WATER,
    tokens: int | None = None,
    instructions: str | None = None,
    tools: tuple[ToolSpec, ...] = (),
    facts: PinnedFacts | None = None,
    **options: Any,
) -> CompactionInput:
    options["head"] = max(options.get("head", 0), head_of_messages(messages))
    options.setdefault("unread", unread_from(messages, head=options["head"]))
    fixed = (size_of_text(instructions or "") + size_of_tools(tools)).tokens
    return CompactionInput(
        messages=tuple(messages),
        marks=Marks(Window(window), headroom, low_water),
        tokens=fixed + sum(map(message_tokens, messages)) if tokens is None else tokens,
        reason=reason,
        instructions=instructions,
        tools=tools,
        facts=facts or PinnedFacts(),
        **options,
    )


async def proposed(preset: Preset, now: CompactionInput, model: Model | None = None, **options: Any) -> Proposal:
    clock, costs = FakeClock(), [AskCost(Usage(), estimated=False)]

    async def ask(asked: Model, request: ModelRequest) -> Turn:
        return await ask_turn(asked, request, timeout_s=60, clock=clock, close_grace_s=1, charge=costs.append)

    options.setdefault("progress", lambda _: None)
    return await propose(preset, now, model=model, ask=ask, pause=anyio.lowlevel.checkpoint, **options)


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives, in a loop of its own: for laws, whose cases are many."""
    return asyncio.run(coroutine)


def talk(turns: int, *, size: int = 200, calls: int = 3, seed: int = 0) -> tuple[Message, ...]:
    """User turns with calls of tools in them; `size`: words of each result."""
    chance = random.Random(seed)
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(UserMessage((Text(f"Request {turn}: look at module m{turn} and remember rule {turn * 7}."),)))
        for number in range(calls):
            path = f"src/m{turn}/part{number}.py"
            words = " ".join(chance.choice(("value", "returns", "import", "module", "class")) for _ in range(size))
            one = ToolCall(f"c{turn}-{number}", "read_file", {"path": path})
            messages.append(AssistantMessage((Text(f"I read {path}."), one), (ToolResult(one.id, one.name, words),)))
        messages.append(AssistantMessage((Text(f"Module m{turn} is read."),)))
    return tuple(messages)


def first_text(messages: Sequence[Message]) -> str:
    part = messages[0].content[0]
    assert isinstance(part, Text)
    return part.text


def told(messages: Sequence[Message]) -> tuple[str, PinnedFacts]:
    """The summary at the beginning, and what is pinned beside it."""
    back = read_back(first_text(messages))
    assert back is not None
    return back


def asked_of(model: ScriptedModel, index: int = -1) -> str:
    """What a summariser was sent, as one text: its instructions, and what it read."""
    request = model.requests[index]
    texts = [part.text for message in request.messages for part in message.content if isinstance(part, Text)]
    return "\n".join((request.instructions or "", *texts))


Answer = Callable[[ModelRequest], Any]
