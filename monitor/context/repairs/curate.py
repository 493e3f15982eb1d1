"""The records of a history that are sent, and those that are kept, by the rules of Gemini CLI.
`repair` pairs calls and results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from monitor.chunks import ToolResult
from monitor.messages import Reasoning, Text
from monitor.wires.raw import RawMessage, RawPart, Unread

SILENT: Final = "(The model said nothing.)"
"""Stands where the model said nothing, so that two messages of the user are not read as one.
"""


def curated(history: Iterable[RawMessage]) -> Iterator[RawMessage]:
    """The records to send: all of the user and of tools, and consecutive records of the model only
    if all of them are valid.

    A record is valid if it has parts, none of them empty or unread. Half of a failed answer is left
    out, because the model would continue it.
    """
    for of_the_model, run in groupby(history, lambda message: message.role == "assistant"):
        records = list(run)
        if not of_the_model or all(_is_valid(record) for record in records):
            yield from records


def _is_valid(record: RawMessage) -> bool:
    empty = any(isinstance(part, Unread) or (isinstance(part, Text) and not part.text) for part in record.parts)
    return bool(record.parts) and not empty


def recorded(history: Iterable[RawMessage]) -> list[RawMessage]:
    """The history to keep.

    A user message that was repeated after a failed call is kept once. Thoughts are dropped, unless
    they are signed and the provider needs them back. Text that came in pieces becomes one text.
    `SILENT` stands where the model said nothing, also between a result and the next user message.
    """
    turns: list[list[RawMessage]] = []
    for message in history:
        last = turns[-1][-1] if turns else None
        goes_on = last is not None and last.role == "assistant" and last.partial and not last.interrupted
        if message.role == "assistant" and goes_on:
            turns[-1].append(message)
        elif message.role == "assistant" or message != last:
            if last is not None and _is_result(last) and message.role == "user" and not _is_result(message):
                turns.append([RawMessage("assistant")])
            turns.append([message])
    return [_record(turn) for turn in turns]


def _is_result(message: RawMessage) -> bool:
    return message.role != "assistant" and any(isinstance(part, ToolResult) for part in message.parts)


def _record(turn: Sequence[RawMessage]) -> RawMessage:
    if turn[-1].role != "assistant":
        return turn[-1]
    parts = [
        part
        for message in turn
        for part in message.parts
        if not (isinstance(part, Reasoning) and part.signature is None)
    ]
    said: list[RawPart] = []
    for is_text, run in groupby(parts, lambda part: isinstance(part, Text)):
        if not is_text:
            said += run
        elif text := "".join(part.text for part in run if isinstance(part, Text)):
            said.append(Text(text))
    return replace(turn[-1], parts=tuple(said) or (Text(SILENT),))
