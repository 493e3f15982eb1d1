"""The running turn: its counts and pieces, its message, its open calls, and the loop in it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeAlias

from monitor._util.arguments import is_blank
from monitor._util.codec import text_of
from monitor._util.hashing import identity
from monitor._util.part_options import frozen
from monitor._util.text import eighths_of_tokens
from monitor.chunks import NO_USAGE, ReasoningDelta, ToolCall, ToolCallDelta, TurnFinished, Usage, UsageReport
from monitor.messages import Reasoning, Text
from monitor.models import ModelError
from monitor.outcome import Turn, TurnDraft
from monitor.verdicts import Channel, Detection, Stop

# --------------------------------------------------------------------------------------------------
# The model's answer in one turn, as the parts of an assistant message, in the order in which they
# came.

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


BLOCK_PIECES = 256
"""Kept text is joined in blocks of this many pieces: a separate piece costs 49 bytes beside its
characters.
"""


class KeptText:
    """The first `most` code points of a text that comes in pieces. Adding a piece costs the same
    however much came before.
    """

    __slots__ = ("_blocks", "_most", "_pieces", "chars")

    def __init__(self, most: float) -> None:
        self._most = most
        self._blocks: list[str] | None = None  # most texts are shorter than one
        self._pieces: list[str] = []
        self.chars = 0
        """Code points that came, whether kept or not."""

    def add(self, piece: str) -> None:
        """Add the next piece of the stream."""
        room = self._most - self.chars
        self.chars += len(piece)
        if room <= 0 or not piece:
            return
        pieces = self._pieces
        pieces.append(piece if len(piece) <= room else piece[: int(room)])
        if len(pieces) >= BLOCK_PIECES:
            self._blocks = blocks = self._blocks or []
            blocks.append("".join(pieces))
            pieces.clear()

    def clear(self) -> None:
        """Forget all text, and start again."""
        self._blocks = None
        self._pieces.clear()
        self.chars = 0

    @property
    def truncated(self) -> bool:
        """Whether more text came than is kept."""
        return self.chars > self._most

    def __str__(self) -> str:
        return "".join((*(self._blocks or ()), *self._pieces))


def keep_limit(keep_text_chars: int | None) -> float:
    """`keep_text_chars` as a number. `None`: infinity."""
    return math.inf if keep_text_chars is None else keep_text_chars


WRITTEN = ("text", "reasoning", "arguments")
"""Channels in which a loop goes on for as long as the stream does."""


def is_written_loop(detection: Detection) -> bool:
    """Whether `detection` is a loop that goes on for as long as the stream does."""
    return detection.level == "loop" and detection.channel in WRITTEN


class RunningTurn:
    """One turn while its stream runs, and until the next turn begins: its counts, its pieces, its
    message, its open calls, and the loop in it.

    `keep_chars`: how much of its visible text is kept. `offsets`: how much each channel had
    delivered before the turn. `keeps_message`: build the turn's message, for a history.
    """

    __slots__ = (
        "_has_report",
        "_ids",
        "_kept",
        "_reply",
        "_reported",
        "_seen",
        "_streamed",
        "_unreported_eighths",
        "_void",
        "_void_estimated",
        "calls",
        "cut",
        "finish",
        "first_chunk_seen",
        "gave",
        "loop",
        "number",
        "offsets",
        "open_calls",
        "parts",
        "reasoning_chars",
        "spoken_over",
        "started_at",
    )

    def __init__(
        self,
        *,
        number: int,
        keep_chars: float,
        started_at: float,
        offsets: dict[Channel, int] | None = None,
        keeps_message: bool = False,
    ) -> None:
        self.number = number
        self.started_at = started_at
        """When the stream was first read, in the harness's clock."""
        self.first_chunk_seen = False
        self.parts: list[str] = []
        """Visible text since the last `take_text`."""
        self.reasoning_chars = 0
        self.calls: list[ToolCall] | tuple[()] = ()
        self.open_calls: list[ToolCall] | tuple[()] = ()
        """Calls that have no result yet, oldest first."""
        self.finish: TurnFinished | None = None
        self.gave: tuple[str, ...] = ()
        """The kinds of parts that came beside text, thinking and calls."""
        self.loop: Detection | None = None
        """The latest loop in text, thinking or arguments."""
        self.cut: Detection | None = None
        """The loop because of which the stream is left."""
        self.spoken_over = False
        """The stream is left for a message to the run."""
        self.offsets: dict[Channel, int] = offsets or {"text": 0, "reasoning": 0}
        self._reply = MessageBuilder(self.offsets) if keeps_message else None
        self._kept = KeptText(keep_chars)
        self._seen = False
        self._void = NO_USAGE
        """Tokens spent on attempts that were rolled back."""
        self._void_estimated = False
        self._reported = NO_USAGE
        self._has_report = False
        self._unreported_eighths = 0
        self._streamed: set[str] | None = None  # an empty set weighs as much as all else here
        self._ids: set[str] | None = None

    # ------------------------------------------------------------------ what comes

    def take_text(self) -> str:
        """Return the visible text since the last call, keep as much of it as `keep_chars` allows,
        and add it to the message.
        """
        text = "".join(self.parts)
        self.parts.clear()
        self._kept.add(text)
        self._seen = self._seen or not is_blank(text)
        if self._reply is not None:
            self._reply.add_text(text)
        return text

    def add_reasoning(self, delta: ReasoningDelta) -> int:
        """Add a piece of the thinking. Answers its eighths of a token."""
        if self._reply is not None:
            self._reply.add_reasoning(delta)
        self.reasoning_chars += len(delta.text)
        return self.count(delta.text)

    def count(self, text: str) -> int:
        """Count output, hidden or visible, that the provider has not reported yet. Answers its
        eighths of a token.
        """
        eighths = eighths_of_tokens(text)
        self._unreported_eighths += eighths
        return eighths

    def count_arguments(self, delta: ToolCallDelta) -> int:
        """Count a piece of a call's arguments. Answers its eighths of a token."""
        if self._streamed is None:
            self._streamed = set()
        self._streamed.add(delta.id)
        return self.count(delta.arguments_text)

    def add_call(self, call: ToolCall, eighths: int | None = None) -> tuple[ToolCall, int]:
        """Add a complete call. Answers the call, with an id if the message needs one, and the
        eighths of a token of its arguments; 0 if they were counted as deltas. `eighths`: that
        number, if the caller knows it.
        """
        if self._reply is not None:
            call = self._with_own_id(call)
            self._reply.add_call(call)
        self.open_calls = waiting = self.open_calls or []
        waiting.append(call)
        self.calls = calls = self.calls or []
        calls.append(call)
        if self._streamed is not None and call.id in self._streamed:
            return call, 0
        if eighths is None:
            return call, self.count(text_of(call.arguments))
        self._unreported_eighths += eighths
        return call, eighths

    def _with_own_id(self, call: ToolCall) -> ToolCall:
        """`call`, with a new id if its own is empty or used by another call of this turn: results
        are matched to calls by id.
        """
        if self._ids is None:
            self._ids = set()
        if not call.id or call.id in self._ids:
            call = replace(call, id=f"{call.id or 'call'}_{self.number}_{len(self.calls)}")
        self._ids.add(call.id)
        return call

    def take_call(self, id: str | None) -> ToolCall | None:
        """Remove and return the open call with this `id`; for `None`, the oldest one. `None`: there
        is no such call.
        """
        call = next((call for call in self.open_calls if id is None or call.id == id), None)
        if call is not None and self.open_calls:
            self.open_calls.remove(call)
        return call

    def report(self, usage: UsageReport) -> None:
        """Take in the provider's own count. It replaces the estimate of what came before it."""
        self._reported = self._reported.merged(usage)
        self._has_report = True
        if usage.output_tokens is not None or usage.total_tokens is not None:
            self._unreported_eighths = 0

    def restart(self) -> None:
        """Drop text and calls: the attempt so far is void. Its tokens stay counted."""
        self._void, self._void_estimated = self.usage, self.usage_estimated
        self._reported, self._has_report, self._unreported_eighths = NO_USAGE, False, 0
        self.parts.clear()
        self.calls = self.open_calls = ()
        self._ids = None
        self._kept.clear()
        self._seen = False
        self.reasoning_chars = 0
        self.finish = self.loop = None
        if self._reply is not None:
            self._reply.restart()

    # ------------------------------------------------------------------ what it is so far

    @property
    def usage(self) -> Usage:
        """Tokens of the turn: the latest report, plus an estimate of what came since."""
        extra = -(-self._unreported_eighths // 8)
        usage = self._reported + Usage(output_tokens=extra, total_tokens=extra) if extra else self._reported
        return self._void + usage if self._void.total_tokens else usage

    @property
    def usage_estimated(self) -> bool:
        """Whether part of `usage` is an estimate, because the provider has not reported it."""
        return self._void_estimated or self._unreported_eighths > 0 or not self._has_report

    def is_blank(self, *, must_finish: bool) -> bool:
        """Whether an answer was expected and nothing in it is visible. Without a kept message (a
        guard) only a provider's stream (`must_finish`) is expected to answer: a caller's own chunks
        may be empty.
        """
        blank = self._reply.blank if self._reply is not None else must_finish and not self._seen and not self.calls
        return blank and not self.gave

    def ended(self, *, stopped: Stop | None, error: BaseException | None, model_error: ModelError | None) -> Turn:
        """The turn as the caller sees it."""
        in_text = self.loop is not None and self.loop.channel == "text"
        draft = TurnDraft(
            number=self.number,
            text=str(self._kept),
            text_chars=self._kept.chars,
            text_truncated=self._kept.truncated,
            tool_calls=tuple(self.calls),
            gave=self.gave,
            usage=self.usage,
            usage_estimated=self.usage_estimated,
            finish_reason=self.finish.finish_reason if self.finish else None,
            raw_finish_reason=self.finish.raw_finish_reason if self.finish else None,
            stopped=stopped,
            loop_offset=loop_start(self.loop, self.offsets["text"]) if self.loop is not None and in_text else None,
            model_error=model_error,
            error=error,
        )
        return frozen(draft, Turn)

    def message(self, looped: LoopedText) -> tuple[Part, ...]:
        """The parts of the turn's message, fit for the history."""
        return () if self._reply is None else self._reply.parts(loop=self.loop, looped=looped)

    def take_message(self, looped: LoopedText) -> tuple[Part, ...]:
        """Return the parts of the turn's message, fit for the history, and clear them."""
        parts = self.message(looped)
        if self._reply is not None:
            self._reply.restart()
        return parts

    @property
    def next_offsets(self) -> dict[Channel, int]:
        """How much each channel has delivered by the end of this turn."""
        return {
            "text": self.offsets["text"] + self._kept.chars,
            "reasoning": self.offsets["reasoning"] + self.reasoning_chars,
        }
