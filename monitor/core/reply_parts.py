"""The model's answer in one turn, as the parts of an assistant message, in the order in which they
came.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from monitor._util.arguments import is_blank
from monitor._util.hashing import identity
from monitor.chunks import ReasoningDelta, ToolCall
from monitor.messages import Reasoning, Text
from monitor.verdicts import Channel, Detection

LoopedText: TypeAlias = Literal["keep", "trim", "discard"]
"""The treatment of repeated text before it goes back into the history. A model that reads its own
loop continues it.
"""

Part: TypeAlias = Text | Reasoning | ToolCall


def loop_start(loop: Detection, began: int) -> int:
    """Where the copies of the looped text begin, in code points since `began`. The first occurrence
    is no copy, and is kept.
    """
    offsets = loop.evidence.offsets
    return max(0, offsets[1] if len(offsets) > 1 else loop.start_offset) - began if loop.start_offset >= began else 0


class MessageBuilder:
    """Builds the parts of a message from the pieces of a stream. `offsets`: how much each channel
    had delivered before this turn.
    """

    __slots__ = ("_began", "_open", "_origin", "_parts", "_pieces", "_signature")

    def __init__(self, offsets: dict[Channel, int]) -> None:
        self._began = offsets
        self.restart()

    def restart(self) -> None:
        """Drop everything: the attempt so far is void."""
        self._parts: list[Part] = []
        self._open: type[Text | Reasoning] | None = None
        self._pieces: list[str] = []
        self._signature: str | None = None
        self._origin: str | None = None

    def add_text(self, text: str) -> None:
        """Add a piece of the visible answer."""
        if text:
            self._begin(Text)
            self._pieces.append(text)

    def add_reasoning(self, delta: ReasoningDelta) -> None:
        """Add a piece of the thinking. A signature closes the part. A signature without text is a
        part of its own, and belongs to what follows.
        """
        if delta.text:
            self._begin(Reasoning)
            self._pieces.append(delta.text)
            self._origin = delta.origin
        if delta.signature is not None:
            if not delta.text:
                self._begin(None)
                self._open = Reasoning
            self._signature, self._origin = delta.signature, delta.origin
            self._close()

    def add_call(self, call: ToolCall) -> None:
        """Add a complete call of a tool."""
        self._close()
        self._parts.append(call)

    @property
    def blank(self) -> bool:
        """Whether nothing is visible: no call, and only space and characters without a width."""
        self._close()
        return all(
            isinstance(part, Reasoning) or (isinstance(part, Text) and is_blank(part.text)) for part in self._parts
        )

    def parts(self, *, loop: Detection | None = None, looped: LoopedText = "trim") -> tuple[Part, ...]:
        """The parts so far. `loop`: the repetition in them; its copies are cut off as `looped`
        says.
        """
        self._close()
        if loop is None or looped == "keep" or loop.channel not in ("text", "reasoning"):
            return tuple(self._parts)
        start = loop_start(loop, self._began[loop.channel]) if looped == "trim" else 0
        return _cut_off(self._parts, Text if loop.channel == "text" else Reasoning, start)

    def _begin(self, kind: type[Text | Reasoning] | None) -> None:
        if self._open is not kind:
            self._close()
            self._open = kind

    def _close(self) -> None:
        if self._open is Text:
            self._parts.append(Text("".join(self._pieces)))
        elif self._open is Reasoning:
            self._parts.append(Reasoning("".join(self._pieces), self._signature, self._origin))
        self._open = self._signature = self._origin = None
        self._pieces.clear()


def _cut_off(parts: list[Part], kind: type[Text | Reasoning], start: int) -> tuple[Part, ...]:
    """`parts` without the text of `kind` from `start` on; a marker stands in its place."""
    kept: list[Part] = []
    gone: list[str] = []
    seen = cut_at = 0
    for part in parts:
        if isinstance(part, ToolCall) or not isinstance(part, kind):
            kept.append(part)
            continue
        head, tail = part.text[: max(0, start - seen)], part.text[max(0, start - seen) :]
        seen += len(part.text)
        if not tail:
            kept.append(part)
        elif head:
            kept.append(kind(head))  # thinking that was cut is not what its signature signed
        if tail and not gone:
            cut_at = len(kept)
        gone.append(tail)
    looped = "".join(gone)
    if looped:
        kept.insert(cut_at, kind(marker(looped)))
    return tuple(kept)


def marker(gone: str) -> str:
    """Stands in the place of repeated text that was cut off. It gives no example to follow, and its
    hash identifies the original.
    """
    return f"[{len(gone):,} repeated characters removed, xxh3 {identity(gone)}]"
