"""The turn that runs: its numbers, its message, its open calls, and the loop in it."""

from __future__ import annotations

from monitor.chunks import ReasoningDelta, ToolCall
from monitor.models import ModelError
from monitor.outcome import Turn
from monitor.reply import LoopedText, Part, Reply, loop_start
from monitor.tally import TurnTally
from monitor.verdicts import Channel, Detection, Stop

WRITTEN = ("text", "reasoning", "arguments")
"""Channels in which a loop goes on for as long as the stream does."""


def is_written_loop(detection: Detection) -> bool:
    """A loop that goes on for as long as the stream does."""
    return detection.level == "loop" and detection.channel in WRITTEN


class RunningTurn:
    """One turn while its stream runs, and until the next one begins.

    `offsets`: what the channels had delivered before it. `keeps_message`: its message is put together, for a history.
    """

    __slots__ = ("_keeps_message", "_reply", "cut", "loop", "offsets", "open_calls", "parts", "tally")

    def __init__(self, tally: TurnTally, offsets: dict[Channel, int], *, keeps_message: bool) -> None:
        self.tally = tally
        self.parts = tally.parts
        """Visible text that nobody has seen yet."""
        self.open_calls: list[ToolCall] = []
        """Calls that have no result yet, oldest first."""
        self.loop: Detection | None = None
        """The loop in what is written, whatever follows from it."""
        self.cut: Detection | None = None
        """The loop for which the stream is left."""
        self.offsets = offsets
        self._keeps_message = keeps_message
        self._reply = Reply(offsets)

    def take_text(self) -> str:
        """The visible text since the last time."""
        text = self.tally.take()
        if self._keeps_message:
            self._reply.add_text(text)
        return text

    def add_reasoning(self, delta: ReasoningDelta) -> int:
        """A piece of the thinking; answers its eighths of a token."""
        if self._keeps_message:
            self._reply.add_reasoning(delta)
        self.tally.reasoning_chars += len(delta.text)
        return self.tally.count(delta.text)

    def add_call(self, call: ToolCall) -> tuple[ToolCall, int]:
        """A complete call, with an id if the message needs one; and its eighths of a token."""
        if self._keeps_message:
            call = self.tally.with_own_id(call)
            self._reply.add_call(call)
        self.open_calls.append(call)
        return call, self.tally.add_call(call)

    def take_call(self, id: str | None) -> ToolCall | None:
        """The open call that a result belongs to, which is open no more. `None`: to the oldest; there is none."""
        call = next((call for call in self.open_calls if id is None or call.id == id), None)
        if call is not None:
            self.open_calls.remove(call)
        return call

    def restart(self) -> None:
        """The attempt so far is void."""
        self.open_calls.clear()
        self.tally.roll_back()
        self._reply.restart()
        self.loop = None

    @property
    def blank(self) -> bool:
        """Nothing can be seen of its message."""
        return self._keeps_message and self._reply.blank

    def ended(self, *, stopped: Stop | None, error: BaseException | None, model_error: ModelError | None) -> Turn:
        """The turn as the caller sees it."""
        in_text = self.loop is not None and self.loop.channel == "text"
        loop_offset = loop_start(self.loop, self.offsets["text"]) if self.loop is not None and in_text else None
        return self.tally.ended(stopped=stopped, error=error, model_error=model_error, loop_offset=loop_offset)

    def take_message(self, looped: LoopedText) -> tuple[Part, ...]:
        """The parts of its message, fit for the history, once."""
        parts = self._reply.parts(loop=self.loop, looped=looped)
        self._reply.restart()
        return parts

    @property
    def next_offsets(self) -> dict[Channel, int]:
        """Where the channels stand after it."""
        return {
            "text": self.offsets["text"] + self.tally.text_chars,
            "reasoning": self.offsets["reasoning"] + self.tally.reasoning_chars,
        }
