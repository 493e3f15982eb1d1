"""Calls and their results, while a history is being repaired."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import AssistantMessage, Media, Reasoning, Text, UserMessage
from monitor.reasons import FinishReason


@dataclass(slots=True, eq=False)
class PairedCall:
    """A call, and the result that answers it."""

    call: ToolCall
    turn: PairedTurn
    result: ToolResult | None = None


Content: TypeAlias = "Text | Reasoning | PairedCall"


@dataclass(slots=True, eq=False)
class PairedTurn:
    """An assistant message that is being put together."""

    index: int
    content: list[Content] = field(default_factory=list)
    source: AssistantMessage | None = None
    finish_reason: FinishReason | None = None
    interrupted: bool = False
    partial: bool = False

    @property
    def open(self) -> bool:
        """Whether the next record may be part of this turn."""
        return self.partial and not self.interrupted


@dataclass(slots=True, eq=False)
class UserRecord:
    """A user message that is being put together."""

    index: int
    content: tuple[Text | Media, ...]
    source: UserMessage | None = None


class WaitingCalls:
    """Calls that wait for a result, found by a key of the result. Calls of the newest turn come
    first, in call order.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[Hashable, list[deque[PairedCall]]] = defaultdict(list)

    def add(self, key: Hashable, slot: PairedCall) -> None:
        groups = self._groups[key]
        if not groups or groups[-1][-1].turn is not slot.turn:
            groups.append(deque())
        groups[-1].append(slot)

    def first(self, key: Hashable) -> PairedCall | None:
        """The call that a result with this key answers. A call that has its result is not found
        again.
        """
        groups = self._groups.get(key, [])
        while groups:
            group = groups[-1]
            while len(group) > 1 and group[0].result is not None:
                group.popleft()
            if group[0].result is None:
                return group[0]
            groups.pop()
        return None
