"""What every recorded stream signed, sent to the others: through the adapter, the history of a run,
and the words of each provider.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from monitor import AssistantMessage, UserMessage
from monitor.adapters import to_form
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall
from monitor.context import Form, repair, validate
from monitor.core.turn import MessageBuilder
from monitor.messages import Message, Reasoning, Text
from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from tests.adapters.test_cut_calls import NO_JSON, WIRES, Wire
from tests.context.wire import FORMS

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
FORM_OF: dict[str, Form] = {
    "anthropic": "anthropic",
    "chat": "openai-chat",
    "responses": "openai-responses",
    "gemini": "gemini",
}
GO = UserMessage((Text("Go on."),))


def recordings(wire: str) -> list[Any]:
    match wire:
        case "anthropic":
            return [
                one.events
                for file in sorted((STREAMS / "anthropic").glob("*.jsonl"))
                for one in anthropic_steps.load_recording(file)
            ]
        case "gemini":
            files = sorted((STREAMS / "google").glob("*.jsonl"))
            return [one.events for file in files for one in gemini_steps.load_recording(file)]
    files = sorted(STREAMS.glob("*-chat/*.jsonl" if wire == "chat" else "openai-responses/*.jsonl"))
    return [script for file in files if file.name != NO_JSON for script in openai_steps.load_recording(file)]


def message_of(chunks: list[Chunk]) -> AssistantMessage:
    reply = MessageBuilder({"text": 0, "reasoning": 0})
    for one in chunks:
        match one:
            case TextDelta(text=text):
                reply.add_text(text)
            case ReasoningDelta():
                reply.add_reasoning(one)
            case ToolCall():
                reply.add_call(one)
    return AssistantMessage(reply.parts())


def history_of(wire: Wire, events: Any) -> tuple[Message, ...]:
    adapter = wire.adapter()
    chunks = [*(one for event in events for one in adapter.decode(wire.item(event))), *adapter.finish()]
    return GO, message_of(chunks), GO


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_what_a_recorded_stream_has_signed_goes_back_to_its_provider_and_to_nobody_else(wire: Wire):
    signed = 0
    for events in recordings(wire.name):
        history = history_of(wire, events)
        pieces = [part for one in history for part in one.content if isinstance(part, Reasoning)]
        assert all(part.origin is not None for part in pieces)
        bare = [part.signature for part in pieces if part.signature and ":" not in part.signature]
        for form in FORMS:
            messages, _ = repair(history, form=form)
            sent = to_form(form, messages)
            own = form == FORM_OF[wire.name]  # somebody who recorded them has changed some signatures
            assert [one for one in validate(form, sent) if not (own and one.rule == "signature")] == []
            text = json.dumps(sent, default=lambda data: b64encode(data).decode())
            if own:
                signed += sum(signature in text for signature in bare)
            elif not form.startswith("openai") or not FORM_OF[wire.name].startswith("openai"):
                assert not [signature for signature in bare if signature in text]
                assert not [
                    word for word in ("redacted_thinking", "encrypted_content", "extra_content") if word in text
                ]
    assert signed or wire.name in ("chat", "responses"), "their signatures are marks"
