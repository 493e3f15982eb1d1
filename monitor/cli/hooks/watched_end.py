"""The end of a session, as the detectors see it, and how many calls may follow before they see a
loop.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.core.findings import DetectorBank, abridged_arguments, abridged_text
from monitor.detectors.calls.call_detector import read_call
from monitor.detectors.calls.novelty.state_novelty import StateNovelty
from monitor.detectors.detector import Detector
from monitor.transcripts.base import Chunker, RecordedCall, RecordedMessage, RecordedResult
from monitor.verdicts import Detection

LAST_CALLS = 64
"""The newest calls that the detectors see: four times as many as the longest loop has steps."""
LAST_REQUESTS = 8
"""The newest requests before these calls that they see."""
LONGEST_RING = 8
"""The longest ring of calls that is tried as a continuation."""
MOST_FREE = 8
"""The most calls that are tried as a continuation."""


@dataclass(slots=True)
class NewestMessages:
    """The newest messages of a run, since its last compaction."""

    messages: deque[RecordedMessage] = field(default_factory=deque[RecordedMessage])
    requests: deque[str] = field(default_factory=lambda: deque[str](maxlen=LAST_REQUESTS))
    """What the user has asked for before these messages."""
    calls: int = 0
    last_at: float = 0.0

    def take(self, message: RecordedMessage) -> None:
        self.messages.append(message)
        self.calls += len(message.tool_calls)
        self.last_at = message.at or self.last_at
        while self.calls > LAST_CALLS and len(self.messages) > 1:
            self._drop(self.messages.popleft())

    def compacted(self) -> None:
        while self.messages:
            self._drop(self.messages.popleft())

    def _drop(self, message: RecordedMessage) -> None:
        self.calls -= len(message.tool_calls)
        if is_request(message):
            self.requests.append(message.text)


class WatchedEnd:
    """The end of a run, and what the detectors see in it."""

    def __init__(self, end: NewestMessages, detectors: Sequence[Detector]) -> None:
        self._detectors, self._bank = detectors, DetectorBank(detectors)
        self._chunker = Chunker()
        self.loops: list[tuple[int, Detection]] = []
        """The loops of calls that were seen, each with the number of its turn."""
        self.turns = 0
        self.calls: list[RecordedCall] = []
        """The calls, as the detectors count them."""
        self.answered: set[str] = set()
        self.result = ""
        self._open: dict[str, str] = {}
        """The identity of each call without a result, by the id that the detectors see."""
        self._results: dict[str, ToolResult] = {}
        """The newest result of each call, by the identity of the call."""
        self._bank.reset()
        for text in end.requests:
            self._bank.request(text)
        for message in end.messages:
            self.take(message)

    def take(self, message: RecordedMessage) -> Sequence[Detection]:
        """Watch one more message. Returns the loops of calls that are seen in it."""
        known = len(self.loops)
        if is_request(message):
            self._bank.request(message.text)
        self.turns += message.role == "assistant"
        self.calls += message.tool_calls
        for chunk in self._chunker.chunks(message):
            self.loops += [(self.turns, one) for one in self._seen(chunk) if _is_loop_of_calls(one)]
        for result in message.tool_results:
            self.answered.add(result.call_id or "")
            self.result = self.result if result.vetoed else result.text
        return [one for _, one in self.loops[known:]]

    def _seen(self, chunk: Chunk) -> Sequence[Detection]:
        match chunk:
            case TextDelta():
                return self._bank.text(chunk.text)
            case ReasoningDelta():
                return self._bank.reasoning(chunk)
            case ToolCall():
                self._open[chunk.id] = read_call(chunk).xxhash
                abridged = abridged_arguments(chunk.arguments)
                return self._bank.fact(chunk if abridged is None else replace(chunk, arguments=abridged[0]))
            case ToolResult():
                if (key := self._open.pop(chunk.id, None)) is not None:
                    self._results[key] = chunk
                return self._bank.fact(replace(chunk, text=abridged_text(chunk.text)))
            case _:
                return self._bank.fact(chunk)

    def free_calls(self) -> int:
        """The number of calls that may follow the last one before the detectors see a loop,
        whatever they are. At most `MOST_FREE`.
        """
        steps = [one.steps_left for one in self._detectors if isinstance(one, StateNovelty)]
        rings = [ring for ring in range(1, LONGEST_RING + 1) if self._may_be_ring(ring)]
        free = [MOST_FREE, *(left - 1 for left in steps), *(copy.deepcopy(self).calls_to_loop(ring) for ring in rings)]
        return max(0, min(free))

    def _may_be_ring(self, length: int) -> bool:
        """Whether the last calls are a ring of `length`, most of them in most of two rounds. A
        shorter ring comes to a loop no earlier than the last call alone.
        """
        if length == 1:
            return bool(self.calls)
        compared = max(1, 2 * length - 4)
        keys = [key_of(call) for call in self.calls[-length - compared :]]
        equal = sum(one == before for one, before in zip(keys[length:], keys, strict=False))
        return len(keys) == length + compared and 2 * equal >= compared

    def calls_to_loop(self, ring: int) -> int:
        """Go on with the last `ring` calls, again and again. Returns the number of calls before the
        one with which a loop is seen.
        """
        calls = self.calls[-ring:]
        if self._open:
            self._answer(self.calls[-1])
        for at in range(MOST_FREE):
            call = replace(calls[at % ring], id=f"{TRIED}{at}")
            if self.take(RecordedMessage("assistant", tool_calls=(call,))):
                return at
            self._answer(call)
        return MOST_FREE

    def _answer(self, call: RecordedCall) -> None:
        """Give `call` the result that it had last. A call without one gets the newest result."""
        known = self._results.get(key_of(call))
        text, failed = (known.text, known.is_error) if known else (self.result, False)
        result = RecordedResult(call.name, text, failed, call_id=call.id)
        self.take(RecordedMessage("tool", tool_results=(result,)))


TRIED = "agent-monitor tries call "
"""Begins the id of a call that is tried as a continuation."""


def is_request(message: RecordedMessage) -> bool:
    """Whether a person asks for something in the message."""
    return message.role == "user" and not message.synthetic and bool(message.text)


def key_of(call: RecordedCall) -> str:
    """The identity of a call, as the detectors have it."""
    return read_call(ToolCall("", call.name, call.arguments)).xxhash


def _is_loop_of_calls(detection: Detection) -> bool:
    """A loop of text is over when the model makes a call."""
    return detection.level == "loop" and detection.channel == "tools"
