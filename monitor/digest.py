"""The latest messages of a run in short: what a judge reads instead of the history.

Every text stands in it as a JSON string without angle brackets, so that nothing in a tool's result can end the quotation and
speak to the judge. Identities (xxh3) say what is equal without saying it again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from monitor._codec import text_of
from monitor._hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult
from monitor.outcome import Turn

MESSAGES = 20
"""As many messages are kept (Gemini CLI)."""
OPENING_CHARS = 240
"""Of each text, its opening: enough to tell what it is about."""
DIGEST_CHARS = 12_000
"""About 3,000 tokens of English: a question must not cost what the run's own turns cost."""


@dataclass(slots=True)
class _Said:
    """One assistant message with its calls."""

    turn: int
    text: str
    chars: int
    calls: tuple[ToolCall, ...]


@dataclass(slots=True)
class _Answered:
    """What a tool answered."""

    turn: int
    result: ToolResult


class Digest:
    """Takes the messages of a run in, and gives the latest of them in short."""

    __slots__ = ("_messages",)

    def __init__(self, messages: int = MESSAGES) -> None:
        self._messages: deque[_Said | _Answered] = deque(maxlen=messages)

    def add_turn(self, turn: Turn) -> None:
        """The model has answered."""
        if turn.text or turn.tool_calls:
            self._messages.append(_Said(turn.number, turn.text[:OPENING_CHARS], turn.text_chars, turn.tool_calls))

    def add_result(self, turn: int, result: ToolResult) -> None:
        """A tool has answered."""
        self._messages.append(_Answered(turn, result))

    def render(self, max_chars: int = DIGEST_CHARS) -> str:
        """One line a message, the oldest first; as many of the latest as `max_chars` holds, without calls that wait for their answer."""
        lines: list[str] = []
        room = max_chars
        for message in reversed(self._whole()):
            entry = _lines(message)
            room -= sum(map(len, entry)) + len(entry)
            if room < 0:
                break
            lines[:0] = entry
        return "\n".join(lines)

    def _whole(self) -> Sequence[_Said | _Answered]:
        """Without calls that dangle: at the end those that wait for their result, at the beginning results whose call is gone."""
        messages = list(self._messages)
        answered = {message.result.id for message in messages if isinstance(message, _Answered)}
        while messages and isinstance(last := messages[-1], _Said) and last.calls and not any(call.id in answered for call in last.calls):
            messages.pop()
        while messages and isinstance(messages[0], _Answered):
            messages.pop(0)
        return messages


def quoted(text: str) -> str:
    """`text` as a JSON string that holds no angle bracket, its opening only, with its length and identity where it is longer."""
    opening = json.dumps(text[:OPENING_CHARS], ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    return opening if len(text) <= OPENING_CHARS else f"{opening} ... ({len(text):,} characters, xxh3 {identity(text)})"


def _lines(message: _Said | _Answered) -> list[str]:
    if isinstance(message, _Answered):
        result = message.result
        failed = " with an error" if result.is_error else ""
        return [f"[turn {message.turn}] tool {quoted(result.name)} answered{failed}: {quoted(result.text)} [xxh3 {identity(result.text)}]"]
    said = [f"[turn {message.turn}] the agent said: {quoted(message.text)}"] if message.text else []
    calls = [
        f"[turn {message.turn}] the agent called {quoted(call.name)} with {quoted(text_of(call.arguments))}"
        f" [xxh3 {identity(canonical_json(call.arguments))}]"
        for call in message.calls
    ]
    return said + calls
