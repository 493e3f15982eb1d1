"""Finds the cause when the context is full again soon after a compaction. Failure answered: a
guard blames the last tool's output, although instructions were added again (Claude Code #85489).

    after = snapshot(request, turn)          # right after a compaction
    attributed(after, snapshot(request, turn))
    # "results of read_file: 31,000 tokens in 2 turns, 84% of what was added"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from monitor.context.measure.tokens import Size, size_of_message, size_of_result, sizes_by_source
from monitor.messages import AssistantMessage, UserMessage
from monitor.models import ModelRequest

WITHIN_TURNS: Final = 5
"""A context that fills more slowly is in ordinary use. Claude Code speaks of 3 turns."""
MOST: Final = 0.5
"""A source with this share of the context from the beginning has filled it, whatever was added."""

INSTRUCTIONS: Final = "instructions"
TOOLS: Final = "tool definitions"
SUMMARY: Final = "the summary"
OWN_WORDS: Final = "messages of the monitor or of hooks"
TAIL: Final = "the kept tail"
_NAMES: Final[Mapping[str, str]] = {
    "system": INSTRUCTIONS,
    "tools": TOOLS,
    "user": "user messages",
    "assistant": "answers",
    "reasoning": "reasoning",
    "calls": "arguments of calls",
    "media": "media",
}
_ALWAYS_THERE: Final = (INSTRUCTIONS, TOOLS, SUMMARY)


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The estimated tokens of a request by source."""

    turn: int
    sizes: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """The sum over all sources."""
        return sum(self.sizes.values())


def snapshot(request: ModelRequest, turn: int) -> Snapshot:
    """The sources of a request that is made in turn `turn`. Linear in its size.

    A first message that nobody said is the summary; results go by the name of their tool.
    """
    whole = sizes_by_source(request)
    del whole["results"]
    sizes: dict[str, Size] = {_NAMES[source]: size for source, size in whole.items()}
    for index, message in enumerate(request.messages):
        if isinstance(message, UserMessage) and message.synthetic:
            own = size_of_message(message)
            sizes[_NAMES["user"]] -= own
            source = OWN_WORDS if index else SUMMARY
            sizes[source] = sizes.get(source, Size()) + own
        elif isinstance(message, AssistantMessage):
            for result in message.results:
                source = f"results of {result.name}"
                sizes[source] = sizes.get(source, Size()) + size_of_result(result)
    return Snapshot(turn, {source: size.tokens for source, size in sizes.items()})


def attributed(after: Snapshot, now: Snapshot) -> str | None:
    """One line that says what filled the context between the end of a compaction and `now`, when
    the mark is reached again. `None`: that took more than `WITHIN_TURNS` turns, or nothing has
    grown.

    Instructions, tools, a summary or a kept tail that are most of the context have filled it from
    the beginning. Else it is the source that has added most; of two that added the same, the one
    that is first in the request.
    """
    turns = now.turn - after.turn
    if not 0 <= turns <= WITHIN_TURNS or not now.tokens:
        return None
    stood = {source: min(after.sizes.get(source, 0), now.sizes.get(source, 0)) for source in _ALWAYS_THERE}
    stood[TAIL] = sum(
        min(size, now.sizes.get(source, 0)) for source, size in after.sizes.items() if source not in _ALWAYS_THERE
    )
    source = max(stood, key=stood.__getitem__)
    if stood[source] >= MOST * now.tokens:
        return _line(source, stood[source], turns, stood[source] / now.tokens, "the context from the beginning")
    added = {
        source: size - after.sizes.get(source, 0)
        for source, size in now.sizes.items()
        if size > after.sizes.get(source, 0)
    }
    if not added:
        return None
    source = max(added, key=added.__getitem__)
    return _line(source, added[source], turns, added[source] / sum(added.values()), "what was added")


def _line(source: str, tokens: int, turns: int, share: float, of: str) -> str:
    return f"{source}: {tokens:,} tokens in {turns} turn{'s' if turns != 1 else ''}, {share:.0%} of {of}"
