"""A recorded run of an agent, from a file of any format, and its conversion to chunks.

Recordings shorten tool results. The chunks of two results are equal only if the full results were:
to a shortened text, the length and hash of the full result are appended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from monitor.chunks import Chunk, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.reasons import FinishReason

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(slots=True, frozen=True)
class RecordedCall:
    """A tool call that the model made."""

    name: str
    arguments: Any


@dataclass(slots=True, frozen=True)
class RecordedResult:
    """A tool's answer, perhaps shortened."""

    name: str
    text: str
    is_error: bool = False
    length: int | None = None
    """Code points of the full result."""
    sha1: str | None = None
    """The first hexadecimal digits of the full result's SHA-1."""

    @property
    def whole(self) -> bool:
        """Whether `text` is the full result, as far as the recording says."""
        if self.sha1 is not None:
            digest = hashlib.sha1(self.text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
            return digest.startswith(self.sha1.lower())
        return self.length is None or self.length == len(self.text)

    @property
    def distinct_text(self) -> str:
        """The text. If it is shortened, the length and the hash of the full result are appended."""
        if self.whole:
            return self.text
        known = [f"{self.length} characters"] if self.length is not None else []
        known += [f"sha1 {self.sha1}"] if self.sha1 is not None else []
        return f"{self.text}\n[not the whole result: {', '.join(known)}]"


@dataclass(slots=True, frozen=True)
class RecordedMessage:
    """One message. The results stand in it, or in a `tool` message that follows."""

    role: Role
    text: str = ""
    tool_calls: tuple[RecordedCall, ...] = ()
    tool_results: tuple[RecordedResult, ...] = ()


@dataclass(slots=True, frozen=True)
class LoopLabel:
    """The place of a loop, labelled by people. Every `turn` is an index in the run's messages."""

    kind: str
    turn: int | None = None
    """The first repeated element."""
    turn_3: int | None = None
    """The end of the third repetition."""
    turn_5: int | None = None
    """The end of the fifth."""
    period: int | None = None
    """The length of one round, in calls; for text, in characters."""
    repeats: float | None = None
    same_results: bool | None = None
    char: int | None = None
    """For text: where in the message the exact repetition starts."""
    chars: int | None = None
    """For text: how long the whole message is."""


@dataclass(slots=True, frozen=True)
class RecordedRun:
    """One run, with its label."""

    id: str
    messages: tuple[RecordedMessage, ...]
    source: str = ""
    label: str | None = None
    loop: LoopLabel | None = None
    model: str = ""

    @property
    def task(self) -> str | None:
        """The first request of the user. `None`: the recording does not have it."""
        return next((message.text for message in self.messages if message.role == "user" and message.text), None)

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """The run as a stream, each chunk with the index of its message.

        Calls get the ids `call_0`, `call_1`, ... A result answers the oldest open call of its name,
        among the calls of the last message with calls; else the oldest open call. A result without
        any call gets its own id.
        """
        calls = results_without_call = 0
        open_calls: list[ToolCall] = []
        for index, message in enumerate(self.messages):
            if message.role == "assistant":
                if message.text:
                    yield index, TextDelta(message.text)
                if message.tool_calls:
                    open_calls = [
                        ToolCall(f"call_{calls + i}", call.name, call.arguments)
                        for i, call in enumerate(message.tool_calls)
                    ]
                    calls += len(open_calls)
                    for call in open_calls:
                        yield index, call
                yield index, TurnFinished(FinishReason.DONE)
            for result in message.tool_results:
                answered = _take(open_calls, result.name)
                if answered is None:
                    id = f"result_{results_without_call}"
                    results_without_call += 1
                else:
                    id = answered.id
                name = result.name or (answered.name if answered else "")
                yield index, ToolResult(id, name, result.distinct_text, result.is_error)


def _take(calls: list[ToolCall], name: str) -> ToolCall | None:
    for index, call in enumerate(calls):
        if call.name == name:
            return calls.pop(index)
    return calls.pop(0) if calls else None
