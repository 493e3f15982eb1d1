"""What a user message carries beside its content stays with it, whatever is done to the history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from monitor import UserMessage
from monitor.context import History, repair
from monitor.context.reduce import ClipResults, DropMedia, PruneArguments, PruneResults, Reducer, without_media
from monitor.messages import Message, Text, message_codec
from monitor.sessions.nodes import message, said_codec
from monitor.wires.fields import Form
from tests.context.talk import IMAGE, ran, said

META = {"agent": "build", "model": "m", "format": {"type": "json"}, "tools": ["read"], "system": "Go."}
MESSAGES: tuple[Message, ...] = (
    *(
        part
        for text in ("one\ud800", "two", "  ")
        for part in (
            UserMessage((Text(text), IMAGE), metadata=META),
            ran("word " * 2_000),
            said("done"),
        )
    ),
    UserMessage((Text("last"), IMAGE), synthetic=True, metadata=META),
)
REDUCERS: list[Reducer] = [
    DropMedia(0),
    PruneArguments(),
    PruneResults(protect_tokens=0, more_than_tokens=0, protect_turns=0),
    ClipResults.oversized(1_000),
]
CHANGES: dict[str, Callable[[tuple[Message, ...]], tuple[Message, ...]]] = {
    "without media": lambda messages: tuple(map(without_media, messages)),
    "stored": lambda messages: tuple(message_codec.from_dict(message_codec.to_dict(one)) for one in messages),
    **{one.name: lambda messages, one=one: one.reduce(messages, head=0) for one in REDUCERS},  # type: ignore[misc]
    **{
        f"repaired for {form}": lambda messages, form=form: repair(messages, form=form)[0]  # type: ignore[misc]
        for form in (None, *get_args(Form))
    },
    "appended": lambda messages: History(messages).messages,
}


@pytest.mark.feature("OC-10")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_metadata_and_the_mark_of_the_monitor_survive_every_change(
    change: Callable[[tuple[Message, ...]], tuple[Message, ...]],
):
    messages = tuple(one for one in MESSAGES if change is not CHANGES["stored"] or "\ud800" not in str(one))
    users = [one for one in change(messages) if isinstance(one, UserMessage)]
    assert users
    for one in users:
        assert one.metadata == META
    assert users[-1].synthetic


@pytest.mark.feature("OC-10")
def test_a_message_without_metadata_is_stored_in_the_same_bytes_as_before():
    plain = UserMessage((Text("hello"),))
    assert message(plain).body == '{"content":[{"text":"hello"}],"type":"user_message"}'
    carried = said_codec.from_dict(json.loads(message(replace(plain, metadata=META)).body))
    assert isinstance(carried, UserMessage)
    assert carried.metadata == META
