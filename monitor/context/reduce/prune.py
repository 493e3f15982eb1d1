"""Shortens old tool results, and old large arguments of calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from operator import is_
from typing import Any, Final

from monitor._util.argument_checks import check_number
from monitor._util.token_estimate import estimate_tokens
from monitor.chunks import ToolCall, ToolResult
from monitor.context.reduce.reduction import Messages, TextTokens, changed_by
from monitor.context.turns import newest_turns, unread_from
from monitor.messages import AssistantMessage, Message

_CLEARED: Final = re.compile(r"\[Old tool result cleared: \d+ characters[;\]]")
_CLEARED_CHARS: Final = 80
"""The greatest length of the marker, without the reference in it."""


@dataclass(slots=True, frozen=True)
class PruneResults:
    """Each old tool result becomes a marker that says how long it was. If its full text is kept,
    the marker names the reference to read it again. The newest results stay. So do errors, which
    keep the model from trying again.

    The search goes backwards, past the newest turns and the results that the model has not answered
    yet. Behind them the newest `protect_tokens` of results stay, older ones go. It ends at the head
    and at results that were pruned before, so a second pass changes nothing. The defaults are those
    of opencode.
    """

    name = "prune"

    _: KW_ONLY
    protect_turns: int = 2
    """The number of the newest user turns that stay, the running one included."""
    protect_messages: int = 0
    """The number of the newest messages that stay, whatever their turn."""
    protect_tokens: int = 40_000
    """Tokens of results that stay; the result that exceeds them goes."""
    more_than_tokens: int = 20_000
    """The least saving for which results are pruned: each pass costs the provider's cache."""
    keep_chars: int = 0
    """How many characters of each pruned result stay, half from its beginning and half from its
    end.
    """
    protected_tools: frozenset[str] = frozenset({"skill"})
    tokens: TextTokens = field(default=estimate_tokens, repr=False)

    def __post_init__(self) -> None:
        for one in ("protect_turns", "protect_messages", "protect_tokens", "more_than_tokens", "keep_chars"):
            check_number(one, getattr(self, one), 0)
        object.__setattr__(self, "protected_tools", frozenset(self.protected_tools))

    @classmethod
    def gemini_cli(cls) -> PruneResults:
        """The masking of Gemini CLI: 50,000 tokens of results stay, at least 30,000 must go, and
        250 characters of both ends are shown.
        """
        return cls(protect_turns=0, protect_messages=1, protect_tokens=50_000, more_than_tokens=29_999, keep_chars=500)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        seen = gone = 0
        markers: dict[int, dict[int, str]] = {}
        for index, place, result in self._old(messages, head):
            size = self.tokens(result.text)
            seen += size
            marker = self._marker(result)
            if seen > self.protect_tokens and len(marker) < len(result.text):
                gone += size
                markers.setdefault(index, {})[place] = marker
        if not markers or gone <= self.more_than_tokens:
            return messages
        return tuple(
            _with(message, markers[index]) if index in markers else message for index, message in enumerate(messages)
        )

    def _old(self, messages: Messages, head: int) -> Iterator[tuple[int, int, ToolResult]]:
        """The results that may go, newest first, with their message and their place in it."""
        newest = min(newest_turns(messages, self.protect_turns, head=head), len(messages) - self.protect_messages)
        if (unread := unread_from(messages, head=head)) is not None:
            newest = min(newest, unread)
        for index in range(newest - 1, head - 1, -1):
            message = messages[index]
            results = message.results if isinstance(message, AssistantMessage) else ()
            for place in range(len(results) - 1, -1, -1):
                result = results[place]
                if self._is_pruned(result):
                    return
                if not (result.is_error or result.name in self.protected_tools):
                    yield index, place, result

    def _marker(self, result: ToolResult) -> str:
        text = result.text
        kept = f"; kept as artifact {result.artifact}" if result.artifact else ""
        marker = f"[Old tool result cleared: {len(text)} characters{kept}]"
        half = self.keep_chars // 2
        return f"{text[:half]}\n{marker}\n{text[len(text) - half :]}" if half else marker

    def _is_pruned(self, result: ToolResult) -> bool:
        longest = self.keep_chars + _CLEARED_CHARS + len(result.artifact or "")
        return len(result.text) <= longest and _CLEARED.search(result.text) is not None


def _with(message: Message, texts: Mapping[int, str]) -> Message:
    """`message` with other texts of some results, by their place."""
    if not isinstance(message, AssistantMessage):
        return message
    results = (
        replace(result, text=texts[place], media=()) if place in texts else result
        for place, result in enumerate(message.results)
    )
    return replace(message, results=tuple(results))


@dataclass(slots=True, frozen=True)
class PruneArguments:
    """Long texts in the arguments of old, answered calls become their beginning and a marker. The
    model can read a written file again.

    Only direct arguments are shortened, not nested texts. The defaults are those of deepagents.
    """

    name = "prune_arguments"

    _: KW_ONLY
    tools: frozenset[str] | None = frozenset({"write_file", "edit_file"})
    """The tools whose arguments are shortened. `None`: all tools."""
    max_chars: int = 2_000
    """Texts longer than this many characters are shortened."""
    keep_chars: int = 20
    """How many characters of their beginning stay."""
    protect_messages: int = 20
    """The number of the newest messages that stay as they are."""

    def __post_init__(self) -> None:
        check_number("keep_chars", self.keep_chars, 0)
        check_number("protect_messages", self.protect_messages, 0)
        check_number("max_chars", self.max_chars, self.keep_chars + _CLEARED_CHARS)
        if self.tools is not None:
            object.__setattr__(self, "tools", frozenset(self.tools))

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(self._pruned, messages, head, max(head, len(messages) - self.protect_messages))

    def _pruned(self, message: Message) -> Message:
        if not isinstance(message, AssistantMessage) or not message.results:
            return message
        answered = {result.id for result in message.results}
        content = tuple(
            self._shortened(part) if isinstance(part, ToolCall) and part.id in answered else part
            for part in message.content
        )
        return message if all(map(is_, content, message.content)) else replace(message, content=content)

    def _shortened(self, call: ToolCall) -> ToolCall:
        if (self.tools is not None and call.name not in self.tools) or not isinstance(call.arguments, Mapping):
            return call
        if not any(self._is_long(value) for value in call.arguments.values()):
            return call
        arguments = {
            name: self._beginning(value) if self._is_long(value) else value for name, value in call.arguments.items()
        }
        return replace(call, arguments=arguments, raw=None)

    def _is_long(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) > self.max_chars

    def _beginning(self, text: str) -> str:
        return f"{text[: self.keep_chars]}... [{len(text)} characters cleared]"
