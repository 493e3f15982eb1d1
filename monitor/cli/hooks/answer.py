"""The answer to a coding agent that asks before a tool call, where a loop is possible.

The agent waits for it. So nothing is imported here that takes long and is not needed: no typer, no
rich; and pydantic only where settings are given. Of a long session the end is read, and the
requests before it.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from monitor._util.hashing import identity
from monitor._util.printable import on_one_line, printable_json
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.cli.hooks.agents import ANSWERS, HOOKS, Hook, LoopAnswer
from monitor.cli.hooks.session_lines import BEGINNING_BYTES, has_settings
from monitor.core.detector_bank import DetectorBank, PartCrash, abridged_arguments, abridged_text
from monitor.detectors.calls.allowance import REQUEST_CHARS
from monitor.detectors.calls.front import text_of_call
from monitor.detectors.defaults import OF_CALLS
from monitor.detectors.detector import Detector
from monitor.errors import MonitorError
from monitor.transcripts.base import (
    Began,
    Chunker,
    CompactionSeen,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    Said,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import LineReader, TranscriptReader
from monitor.transcripts.source import Source
from monitor.verdicts import Detection

if TYPE_CHECKING:
    from pathlib import Path

LAST_CALLS = 64
"""The newest calls that the detectors see: four times as many as the longest loop has steps."""
LAST_REQUESTS = 8
"""The newest requests before these calls that they see."""
LONGEST_RING = 8
"""The longest ring of calls that is tried as a continuation."""
MOST_FREE = 8
"""The most calls that are tried as a continuation."""


class NewestMessages:
    """The newest messages of a run, since its last compaction. `requests`: what the user has asked
    for before them.
    """

    def __init__(self, requests: Iterable[str] = ()) -> None:
        self.messages = deque[RecordedMessage]()
        self.requests = deque(requests, LAST_REQUESTS)
        self.calls = 0
        self.last_at = 0.0
        self.is_full = False
        """Messages before these would change nothing but the requests."""

    def take(self, message: RecordedMessage) -> None:
        self.messages.append(message)
        self.calls += len(message.tool_calls)
        self.last_at = message.at or self.last_at
        while self.calls > LAST_CALLS and len(self.messages) > 1:
            self._drop(self.messages.popleft())

    def compacted(self) -> None:
        self.is_full = True
        while self.messages:
            self._drop(self.messages.popleft())

    def _drop(self, message: RecordedMessage) -> None:
        self.is_full = True
        self.calls -= len(message.tool_calls)
        if is_request(message):
            self.requests.append(message.text)


class WatchedEnd:
    """The end of a run, and what the detectors see in it."""

    def __init__(self, end: NewestMessages) -> None:
        self._chunker = Chunker()
        self._shown: list[tuple[int, str | Chunk]] = []
        """The requests and chunks that each detector is shown, with the numbers of their turns."""
        self._detectors: list[Detector] = []
        """The detectors that were asked."""
        self._banks: list[DetectorBank] = []
        """For each of them, a bank of its own."""
        self.turns = 0
        self.calls: list[RecordedCall] = []
        """The calls, as the detectors count them."""
        self._keys: list[str] = []
        """The identity of each of them."""
        self.answered: set[str] = set()
        self.result = ""
        self._open: dict[str, str] = {}
        """The identity of each call without a result, by the id that the detectors see."""
        self._results: dict[str, ToolResult] = {}
        """The newest result of each call, by the identity of the call."""
        self._shown += [(0, text) for text in end.requests]
        for message in end.messages:
            self.take(message)

    def ask(self, detector: Detector) -> list[tuple[int, Detection]]:
        """Show the run to one more detector. Returns the loops of calls that it sees, each with the
        number of its turn.
        """
        bank = DetectorBank([detector])
        bank.reset()
        self._detectors.append(detector)
        self._banks.append(bank)
        return [(turn, one) for turn, shown in self._shown for one in _loops_of_calls(bank, shown)]

    def take(self, message: RecordedMessage) -> list[Detection]:
        """Take in one more message. Returns the loops of calls that are seen in it."""
        known = len(self._shown)
        self.turns += message.role == "assistant"
        self.calls += message.tool_calls
        if is_request(message):
            self._shown.append((self.turns, message.text))
        self._shown += [(self.turns, self._noted(chunk)) for chunk in self._chunker.chunks(message)]
        for result in message.tool_results:
            self.answered.add(result.call_id or "")
            self.result = self.result if result.vetoed else result.text
        return [one for _, shown in self._shown[known:] for bank in self._banks for one in _loops_of_calls(bank, shown)]

    def _noted(self, chunk: Chunk) -> Chunk:
        """Note a call or its result. Returns it as the detectors are shown it."""
        if isinstance(chunk, ToolCall):
            self._keys.append(identity(text_of_call(chunk)))
            self._open[chunk.id] = self._keys[-1]
            abridged = abridged_arguments(chunk.arguments)
            return chunk if abridged is None else replace(chunk, arguments=abridged[0])
        if isinstance(chunk, ToolResult):
            if (key := self._open.pop(chunk.id, None)) is not None:
                self._results[key] = chunk
            return replace(chunk, text=abridged_text(chunk.text))
        return chunk

    def branch(self) -> WatchedEnd:
        """A copy that goes another way from here. It does not know what was shown before."""
        other = copy.copy(self)
        vars(other).update(
            {name: value.copy() for name, value in vars(self).items() if isinstance(value, list | dict | set)},
            _shown=[],
            _banks=copy.deepcopy(self._banks),
            _chunker=copy.deepcopy(self._chunker),
        )
        return other

    def free_calls(self) -> int:
        """The number of calls that may follow the last one before the detectors see a loop,
        whatever they are. At most `MOST_FREE`. Nothing else can be asked of the run after that.
        """
        known = [getattr(one, "steps_left", None) for one in self._detectors]
        steps: list[int] = [left for left in known if left is not None]
        rings = [ring for ring in range(1, LONGEST_RING + 1) if self._may_be_ring(ring)]
        ways = [self, *(self.branch() for _ in rings[1:])]
        tried = [way.calls_to_loop(ring) for way, ring in zip(ways, rings, strict=False)]
        return max(0, min(MOST_FREE, *(left - 1 for left in steps), *tried))

    def _may_be_ring(self, length: int) -> bool:
        """Whether the last calls are a ring of `length`, most of them in most of two rounds. A
        shorter ring comes to a loop no earlier than the last call alone.
        """
        if length == 1:
            return bool(self.calls)
        compared = max(1, 2 * length - 4)
        keys = self._keys[-length - compared :]
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
    return identity(text_of_call(ToolCall("", call.name, call.arguments)))


def _loops_of_calls(bank: DetectorBank, shown: str | Chunk) -> list[Detection]:
    """The loops of calls that `bank` sees with a request or a chunk. A loop of text is over when
    the model makes a call.
    """
    match shown:
        case str():
            bank.request(shown)
            return []
        case TextDelta():
            seen = bank.text(shown.text)
        case ReasoningDelta():
            seen = bank.reasoning(shown)
        case _:
            seen = bank.fact(shown)
    return [one for one in seen if one.level == "loop" and one.channel == "tools"]


# --------------------------------------------------------------------------------------------------
# Judges the call that an agent asks about: does the loop of the session go on with it?
#
# The end of the session is shown to the detectors, and then the call that is asked about. A loop
# in which this call has no part holds it up no more.

STILL_TURNS = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""
REPEATED = 2
"""Each different call of a ring or a repetition came at least so often on average."""


class AskedCall(NamedTuple):
    """The call that an agent asks about, as the agent names it."""

    tool: str
    arguments: Any = None
    """`None`: the agent does not say."""
    id: str = ""


class GoingLoop(NamedTuple):
    """A loop that goes on with the call that is asked about."""

    detection: Detection
    result: str
    """The result that the loop got last."""


class Judged(NamedTuple):
    """What the detectors say of a call that is asked about."""

    loop: GoingLoop | None = None
    """The loop that goes on with it."""
    free_calls: int = 0
    """Without a loop: the number of calls after this one for which they need not be asked."""


class SessionEnd:
    """The end of a session. `detectors`: makes those that are asked, one after the other; only
    loops of calls count. `is_tool`: whether the tool that the agent calls by the first name is
    recorded by the second.
    """

    def __init__(self, detectors: Callable[[], Iterable[Detector]], is_tool: Callable[[str, str], bool]) -> None:
        self._detectors, self._is_tool = detectors, is_tool
        self._runs: dict[str, NewestMessages] = {}

    def take(self, entries: Iterable[TranscriptEntry], requests: Iterable[str] = ()) -> None:
        """Read the main runs among `entries`. `requests`: what the user has said before them."""
        for entry in entries:
            if isinstance(entry, Began) and (entry.parent is None or not self._runs):
                self._runs[entry.run] = NewestMessages(requests)
            elif (run := self._runs.get(entry.run)) is not None:
                if isinstance(entry, Said):
                    run.take(entry.message)
                elif isinstance(entry, CompactionSeen):
                    run.compacted()

    @property
    def is_full(self) -> bool:
        """Whether what stands before the entries would change nothing but the requests."""
        return bool(self._runs) and self._newest.is_full

    @property
    def _newest(self) -> NewestMessages:
        return max(self._runs.values(), key=lambda one: one.last_at)

    def judge(self, pending: AskedCall | None) -> Judged:
        """Find the loop that goes on with `pending`. Without a `pending` call: the loop in which
        the session is. The first detector that sees one has the say.

        Raises `PartCrash` if a detector crashed.
        """
        if not self._runs:
            return Judged()
        run = WatchedEnd(self._newest)
        result, turns, calls = run.result, run.turns, [*run.calls]
        if pending is not None and not self._has(run, pending):
            run.take(RecordedMessage("assistant", tool_calls=(self._recorded(calls, pending),)))
        for detector in self._detectors():
            loops = [
                one
                for turn, one in run.ask(detector)
                if turn > turns
                or (turn >= turns - STILL_TURNS and (pending is None or self._goes_on(calls, one, pending)))
            ]
            if loops:
                return Judged(GoingLoop(loops[-1], result))
        return Judged(free_calls=run.free_calls())

    def _has(self, run: WatchedEnd, pending: AskedCall) -> bool:
        """Whether the session has the call already, or the agent does not say enough to add it."""
        key = key_of(self._recorded(run.calls, pending))
        return pending.arguments is None or any(
            one.id not in run.answered and (one.id == pending.id or key_of(one) == key) for one in run.calls
        )

    def _recorded(self, calls: Sequence[RecordedCall], pending: AskedCall) -> RecordedCall:
        """The call as the agent would record it. Codex asks about other arguments than it records;
        then it is the newest call that has all of their values.
        """
        for one in reversed(calls):
            if one.name != pending.tool and self._is_tool(pending.tool, one.name) and _has_all(one, pending):
                return RecordedCall(one.name, one.arguments, pending.id or None)
        return RecordedCall(pending.tool, pending.arguments, pending.id or None)

    def _goes_on(self, made: Sequence[RecordedCall], loop: Detection, pending: AskedCall) -> bool:
        """Whether `pending` is a call of the loop: one of its calls, if these repeat; else a call
        of one of its tools.
        """
        calls = [made[at] for at in loop.evidence.offsets if at < len(made)]
        calls = calls or [call for call in made if call.name in loop.message]
        if not any(self._is_tool(pending.tool, call.name) for call in calls):
            return False
        different = {key_of(call) for call in calls}
        if pending.arguments is None or REPEATED * len(different) > len(calls):
            return True
        return key_of(self._recorded(made, pending)) in different


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


# --------------------------------------------------------------------------------------------------
# The answer to a coding agent that asks before a tool call, where a loop is possible.

RESULT_CHARS: Final = 200
END_BYTES: Final = (400_000, 1_000_000, 4_000_000)
"""The part of a session, from its end, that is read: the first one that has enough calls."""
Ranges: TypeAlias = Sequence[Sequence[int]]


@dataclass(slots=True)
class HookCall:
    """The command line of a hook."""

    hook: Hook
    on_loop: LoopAnswer = "ask"
    config: Path | None = None
    detectors: str | None = None
    settings: Sequence[str] = ()

    @classmethod
    def of(cls, arguments: Sequence[str]) -> HookCall:
        """The command line that the settings of an agent have."""
        given = list(zip(arguments[1::2], arguments[2::2], strict=True))
        last = dict(given)
        on_loop: LoopAnswer | None = next((one for one in ANSWERS if one == last.get("--on-loop")), None)
        config = None
        if "--config" in last:
            from pathlib import Path  # noqa: PLC0415 - takes long, and is seldom needed

            config = Path(last["--config"])
        settings = [value for option, value in given if option == "--set"]
        return cls(HOOKS[arguments[0]], on_loop or "ask", config, last.get("--detectors"), settings)

    def answer(self, question: bytes, requests: Ranges | None = None) -> tuple[str, Judged | None]:
        """The answer to `question`, in one line, and what it rests on. Reasons for no answer go to
        stderr, and hold up nobody: then nothing is known, so it is `None`. `requests`: the parts of
        the session in which a person says something; `None`: not known.
        """
        found: Mapping[str, Any] = {}
        try:
            event = _event(question)
            judged = self._judge(event, requests)
            if judged.loop is not None:
                found = self.hook.answered(_text(event, "hook_event_name"), _reason(judged.loop), self.on_loop)
        except (MonitorError, OSError, ValueError) as error:
            return _unwatched(error)
        except PartCrash as crash:
            return _unwatched(f"{crash.name} raised {type(crash.error).__name__}: {crash.error}")
        return printable_json(json.dumps(found)), judged

    def _judge(self, event: Mapping[str, Any], requests: Ranges | None) -> Judged:
        """What the detectors say of the call that is asked about."""
        path = _text(event, "transcript_path")
        if not os.path.isfile(path):
            return Judged()
        session = SessionEnd(self._detectors(), self.hook.is_tool)
        _read_end(path, session, self.hook.reader(), requests or [[0, BEGINNING_BYTES]])
        tool = _text(event, "tool_name")
        pending = AskedCall(tool, event.get("tool_input"), _text(event, "tool_use_id")) if tool else None
        return session.judge(pending)

    def _detectors(self) -> Callable[[], Iterable[Detector]]:
        if not (self.config or self.detectors or self.settings or has_settings()):
            return OF_CALLS.make
        from monitor.cli.options.shared import settings_of  # noqa: PLC0415 - with pydantic and typer, only where needed

        return settings_of(self.config, self.detectors, self.settings).detectors


def _read_end(path: str, session: SessionEnd, usual: TranscriptReader, requests: Ranges) -> None:
    """Give the end of the session in `path` to `session`, with the requests before it. `usual`: the
    reader of the agent's own sessions.
    """
    size = os.path.getsize(path)
    whole = Source(path, lambda: open(path, "rb"), size=size)  # noqa: SIM115 - who reads it closes it
    beginning = whole if whole.is_packed else whole.part(0, min(size, BEGINNING_BYTES))
    reader = usual if usual.fits(beginning) else _reader_of(Source.of_path(path))
    if reader is None:
        return
    if size <= END_BYTES[0] or whole.is_packed or not isinstance(reader, LineReader):
        session.take(reader.read(whole, ReadReport()))
        return
    for length in END_BYTES:
        start = _line_start(path, size - length)
        before = [whole.part(begin, min(end, start)) for begin, end in requests if begin < start]
        said = [text for part in before for text in _requests(reader, part)]
        session.take(reader.read(whole.part(start, size), ReadReport()), said)
        if session.is_full or start == 0:
            return


def _line_start(path: str, at: int) -> int:
    """Where the first line begins that begins behind `at`."""
    if at <= 0:
        return 0
    with open(path, "rb") as file:
        file.seek(at)
        return at + len(file.readline())


def _reader_of(source: Source) -> TranscriptReader | None:
    from monitor.transcripts.readers.registry import reader_of  # noqa: PLC0415 - all readers, seldom needed

    return reader_of(source)


def _requests(reader: TranscriptReader, part: Source) -> Iterator[str]:
    """What the user asks for in a part of a session."""
    for entry in reader.read(part, ReadReport()):
        if isinstance(entry, Said) and entry.message.role == "user" and not entry.message.synthetic:
            yield entry.message.text[:REQUEST_CHARS]


def _unwatched(why: object) -> tuple[str, None]:
    """The answer where nothing is known of the session, and why on stderr."""
    sys.stderr.write(f"{on_one_line(f'agent-monitor: the session could not be watched: {why}')}\n")
    return "{}", None


def _event(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except RecursionError:
        raise ValueError("stdin is nested too deeply") from None
    if not isinstance(event, dict):
        raise ValueError("stdin is no JSON object")
    return event


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _reason(loop: GoingLoop) -> str:
    said = f"agent-monitor: {loop.detection.message}."
    result = " ".join(loop.result.split())[:RESULT_CHARS]
    return on_one_line(f"{said} The result: {result}" if result else said)
