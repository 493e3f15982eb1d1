"""Judges the call that an agent asks about: does the loop of the session go on with it?

The end of the session is shown to the detectors, and then the call that is asked about. A loop in
which this call has no part holds it up no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.core.findings import DetectorBank, abridged_arguments, abridged_text
from monitor.detectors.calls.call_detector import read_call
from monitor.detectors.detector import Detector
from monitor.transcripts.base import Chunker, RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, Said, TranscriptEntry
from monitor.verdicts import Detection

LAST_CALLS = 64
"""The newest calls that the detectors see: four times as many as the longest loop has steps."""
LAST_REQUESTS = 8
"""The newest requests before these calls that they see."""
STILL_TURNS = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""
REPEATED = 2
"""Each different call of a ring or a repetition came at least so often on average."""


@dataclass(slots=True, frozen=True)
class AskedCall:
    """The call that an agent asks about, as the agent names it."""

    tool: str
    arguments: Any = None
    """`None`: the agent does not say."""
    id: str = ""


@dataclass(slots=True, frozen=True)
class GoingLoop:
    """A loop that goes on with the call that is asked about."""

    detection: Detection
    result: str
    """The result that the loop got last."""


@dataclass(slots=True)
class _NewestMessages:
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
        if _is_request(message):
            self.requests.append(message.text)


class _WatchedEnd:
    """The end of a run, and what the detectors see in it."""

    def __init__(self, end: _NewestMessages, detectors: Sequence[Detector]) -> None:
        self._bank = DetectorBank(detectors)
        self._chunker = Chunker()
        self.loops: list[tuple[int, Detection]] = []
        """The loops of calls that were seen, each with the number of its turn."""
        self.turns = 0
        self.calls: list[RecordedCall] = []
        """The calls, as the detectors count them."""
        self.answered: set[str] = set()
        self.result = ""
        self._bank.reset()
        for text in end.requests:
            self._bank.request(text)
        for message in end.messages:
            self.take(message)

    def take(self, message: RecordedMessage) -> Sequence[Detection]:
        """Watch one more message. Returns the loops of calls that are seen in it."""
        known = len(self.loops)
        if _is_request(message):
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
            case ToolCall() if (abridged := abridged_arguments(chunk.arguments)) is not None:
                return self._bank.fact(replace(chunk, arguments=abridged[0]))
            case ToolResult():
                return self._bank.fact(replace(chunk, text=abridged_text(chunk.text)))
            case _:
                return self._bank.fact(chunk)


class SessionEnd:
    """The end of a session. `detectors`: makes those that watch it; only loops of calls count.
    `is_tool`: whether the tool that the agent calls by the first name is recorded by the second.
    """

    def __init__(self, detectors: Callable[[], Sequence[Detector]], is_tool: Callable[[str, str], bool]) -> None:
        self._detectors, self._is_tool = detectors, is_tool
        self._runs: dict[str, _NewestMessages] = {}

    def take(self, entries: Iterable[TranscriptEntry], requests: Iterable[str] = ()) -> None:
        """Read the main runs among `entries`. `requests`: what the user has said before them."""
        for entry in entries:
            if isinstance(entry, Began) and (entry.parent is None or not self._runs):
                self._runs[entry.run] = _NewestMessages()
                self._runs[entry.run].requests.extend(requests)
            elif (run := self._runs.get(entry.run)) is not None:
                if isinstance(entry, Said):
                    run.take(entry.message)
                elif isinstance(entry, CompactionSeen):
                    run.compacted()

    def loop_with(self, pending: AskedCall | None) -> GoingLoop | None:
        """The loop that goes on with `pending`; `None`: there is none. Without a `pending` call:
        the loop in which the session is.

        Raises `PartCrash` if a detector crashed.
        """
        if not self._runs:
            return None
        run = _WatchedEnd(max(self._runs.values(), key=lambda one: one.last_at), self._detectors())
        loops = [one for turn, one in run.loops if turn >= run.turns - STILL_TURNS]
        result = run.result
        if pending is not None:
            loops = [one for one in loops if self._goes_on(run, one, pending)]
            loops += self._with(run, pending)
        return GoingLoop(loops[-1], result) if loops else None

    def _with(self, run: _WatchedEnd, pending: AskedCall) -> Sequence[Detection]:
        """The loops that are seen with the call itself. None, if the session has it already."""
        call = self._recorded(run, pending)
        is_open = any(
            one.id not in run.answered and (one.id == pending.id or _key(one) == _key(call)) for one in run.calls
        )
        if pending.arguments is None or is_open:
            return ()
        return run.take(RecordedMessage("assistant", tool_calls=(call,)))

    def _recorded(self, run: _WatchedEnd, pending: AskedCall) -> RecordedCall:
        """The call as the agent would record it. Codex asks about other arguments than it records;
        then it is the newest call that has all of their values.
        """
        for one in reversed(run.calls):
            if one.name != pending.tool and self._is_tool(pending.tool, one.name) and _has_all(one, pending):
                return RecordedCall(one.name, one.arguments, pending.id or None)
        return RecordedCall(pending.tool, pending.arguments, pending.id or None)

    def _goes_on(self, run: _WatchedEnd, loop: Detection, pending: AskedCall) -> bool:
        """Whether `pending` is a call of the loop: one of its calls, if these repeat; else a call
        of one of its tools.
        """
        calls = [run.calls[at] for at in loop.evidence.offsets if at < len(run.calls)]
        calls = calls or [call for call in run.calls if call.name in loop.message]
        if not any(self._is_tool(pending.tool, call.name) for call in calls):
            return False
        different = {_key(call) for call in calls}
        if pending.arguments is None or REPEATED * len(different) > len(calls):
            return True
        return _key(self._recorded(run, pending)) in different


def _is_request(message: RecordedMessage) -> bool:
    return message.role == "user" and not message.synthetic and bool(message.text)


def _is_loop_of_calls(detection: Detection) -> bool:
    """A loop of text is over when the model makes a call."""
    return detection.level == "loop" and detection.channel == "tools"


def _key(call: RecordedCall) -> str:
    return read_call(ToolCall("", call.name, call.arguments)).xxhash


def _has_all(call: RecordedCall, pending: AskedCall) -> bool:
    asked = _values(pending.arguments)
    return bool(asked) and asked <= _values(call.arguments)


def _values(arguments: Any) -> set[str]:
    """The texts and numbers of the arguments, whatever their names are."""
    if isinstance(arguments, Mapping):
        return set().union(*map(_values, arguments.values()))
    if isinstance(arguments, list):
        return set().union(*map(_values, arguments), {" ".join(map(str, arguments))})
    return {str(arguments)}
