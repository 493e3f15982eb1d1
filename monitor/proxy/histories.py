"""The histories of earlier requests, so that a request costs what is new in it.

A history is known by a hash of the bytes up to its last record. The hash begins with the client's
key, so nobody finds out what others have asked. The histories have a bound in bytes together. One
that was forgotten is read again, with the same verdict.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from anyio import to_thread

from monitor.budget import Budget
from monitor.chunks import Price, ReasoningDelta, ToolCall, TurnFinished
from monitor.conditions import Condition
from monitor.context.tokens import message_tokens, size_of_text
from monitor.core.counters import ErrorStreak
from monitor.core.detector_bank import DetectorBank, PartCrash, abridged_arguments, abridged_text
from monitor.core.replay.resumed import ResumedRun
from monitor.core.run import RunCore
from monitor.detectors.detector import Detector
from monitor.errors import FinishReason
from monitor.events import Event
from monitor.messages import AssistantMessage, Message, Reasoning, Text, UserMessage, message_codec
from monitor.policy import stop_for
from monitor.proxy.formats.base import Beginning, JudgedRequest, Span, Unjudged
from monitor.proxy.formats.wire import Wire
from monitor.proxy.http_messages import Unpackable, unpacked
from monitor.proxy.runs import signature
from monitor.verdicts import Continue, Detection, Verdict
from monitor.wires.fields import Form, rules_of

# --------------------------------------------------------------------------------------------------
# Reads of the history in a request: which run it is, and what its turns were.
#
# Every request carries its history. So a proxy that was restarted, or one of ten, judges as the
# first one does. A history that is kept saves time, and changes no verdict.
#
# Rules:
#
# - Only the turns after the user's last task count: what came before is over. A message of the user
#   begins a task if the model had finished, that is if its last message made no call.
# - A message behind results may also be a reminder that the client's program adds to every turn. So
#   it begins no task. If the turn before had none, it is news (`has_news`).

_ID_DIGITS: Final = 16


def opening_of(messages: Sequence[Message]) -> bytes:
    """A hash of all up to the first message of the user, which every later request repeats."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(b"\0" + message_codec.dumps(message).encode("utf-8", "surrogatepass"))
        if isinstance(message, UserMessage):
            break
    return digest.digest()


def run_of(instructions: str | None, opening: bytes) -> str:
    """The run of a request that names none: a hash of its instructions and its opening."""
    said = (instructions or "").encode("utf-8", "surrogatepass")
    return hashlib.sha256(hashlib.sha256(said).digest() + opening).hexdigest()[:_ID_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The place in a history up to which it was read."""

    turns: int = 0
    """The turns of the task that goes on."""
    calls: bool = False
    """The last turn made a call, so a message of the user begins no task."""
    text: str = ""
    """The text of the user's last task: their messages before the first of its turns."""
    answered: bool = False
    """The history has a turn."""
    said: bool = False
    """The user has said something since the last turn."""
    said_before: bool = False
    """The user has said something between the last two turns."""

    @property
    def has_news(self) -> bool:
        """Whether a message of the user followed the last turn, and none the turn before."""
        return self.answered and self.said and not self.said_before


def read_task(messages: Iterable[Message], place: TaskPlace) -> tuple[TaskPlace, list[AssistantMessage]]:
    """Read on from `place`. Returns the new place, and those of its task's turns that `messages`
    have, oldest first.
    """
    turns: list[AssistantMessage] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            turns.append(message)
            place = replace(
                place,
                turns=place.turns + 1,
                calls=bool(calls_of(message)),
                answered=True,
                said=False,
                said_before=place.answered and place.said,
            )
        elif place.calls:
            place = replace(place, said=True)
        else:
            turns.clear()
            text = "\n".join([part.text for part in message.content if isinstance(part, Text)])
            place = replace(place, turns=0, text=text, said=True)
    return place, turns


def calls_of(turn: AssistantMessage) -> list[ToolCall]:
    """The calls that the model made in a turn."""
    return [part for part in turn.content if isinstance(part, ToolCall)]


# --------------------------------------------------------------------------------------------------
# The verdict on one request: a run's core, whose detectors have seen the turns in the history.
#
# Rules:
#
# - A loop in the history counts if it was found in the last turn: a run that has left its loop goes
#   on. It does not count if the user has said something new since then. The model gets this turn to
#   follow it, and if it makes the same call, the next request is judged.
# - A loop over turns is judged when the results are known, with the next request. The client's
#   answer can then be ended well: a call that it has seen can only be taken back by an error. A
#   loop within one answer is cut while it is written.
# - Limits on turns, calls and errors count over the task, limits on time and tokens in the answer.

SEEN_TURNS: Final = 200
"""The newest turns that detectors are shown at least. No default detector looks further back."""
_STEP: Final = 100
"""The first turn that they are shown has a number that is a multiple of this. So it is another one
only in every hundredth request, and a state that was kept holds until then.
"""


class HistoryMissing(Exception):
    """The verdict needs turns that stand before the known beginning: read the whole history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The state of a judge behind a history. A later judge goes on with it."""

    place: TaskPlace
    seen_from: int
    """The number of the first turn of the task that the detectors have seen, from 0."""
    tool_calls: int
    tools_called: tuple[str, ...]
    errors: ErrorStreak
    calls_seen: int
    """The calls that the detectors have seen."""
    found: tuple[Detection, ...]
    """The findings in the last turn."""
    detectors: bytes
    """The snapshots of the detectors, as JSON."""

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.detectors) + len(self.place.text) + sum(map(len, self.tools_called))


class LoopPolicy:
    """A loop ends the answer. In the turns of the history loops are only noted."""

    def __init__(self, allowed: Collection[str], *, observe: bool, patient: bool) -> None:
        """`allowed`: loops that an operator has allowed. `observe`: no loop ends an answer.
        `patient`: a loop over turns does not end an answer either; the next request is judged.
        """
        self.loop: Detection | None = None
        """The loop that was found in the last turn."""
        self.suspicion: Detection | None = None
        """The suspicion of the last turn."""
        self.calls_before = 0
        """The number of calls in the history."""
        self._allowed = allowed
        self._observe = observe
        self._patient = patient

    def note(self, found: Sequence[Detection]) -> None:
        """Take in what was found in the last turn of the history."""
        for detection in found:
            if self._counts(detection):
                self.loop = detection
            elif detection.level == "suspect":
                self.suspicion = detection

    def decide(self, detection: Detection) -> Verdict:
        if self._observe or not self._counts(detection) or (self._patient and self._over_turns(detection)):
            return Continue()
        return stop_for(detection)

    def ends(self, detection: Detection) -> bool:
        """Whether a detection in an answer without a history ends it."""
        return not self._observe and self._counts(detection)

    def reset(self) -> None:
        """A policy belongs to one request."""

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing is kept: the next request brings its history."""

    def _counts(self, detection: Detection) -> bool:
        return detection.level == "loop" and signature(detection) not in self._allowed

    def _over_turns(self, detection: Detection) -> bool:
        if detection.channel == "tools":
            return detection.start_offset < self.calls_before
        return detection.channel == "messages"


class RequestJudge:
    """The core of one request, and what its history says."""

    def __init__(
        self,
        *,
        stop_when: Condition | None,
        detectors: Sequence[Detector],
        policy: LoopPolicy,
        price: Price | None,
        budgets: Sequence[Budget],
        emit: Callable[[Event], None],
    ) -> None:
        self.core = RunCore(
            stop_when=stop_when,
            detectors=detectors,
            policy=policy,
            emit=emit,
            keep_text_chars=0,
            price=price,
            budgets=budgets,
        )
        self._bank = DetectorBank(detectors)
        self._detectors = detectors
        self._policy = policy
        self._place = TaskPlace()
        self._first = 0
        """The number of the first turn that the detectors have seen."""
        self._past = ResumedRun()
        self._found: list[Detection] = []
        """The findings in the last turn."""
        self._state_is_whole = True

    def recall(self, messages: Sequence[Message], now: float, known: TaskState | None = None) -> Detection | None:
        """Show the detectors the history. The loop in which the run is; `None`: it is in none. A
        limit that is exceeded is `core.stop`.

        `known`: the state behind the messages that stand before these. Raises `HistoryMissing`.
        """
        begun = known.place if known is not None else TaskPlace()
        place, turns = read_task(messages, begun)
        first = max(0, place.turns - SEEN_TURNS) // _STEP * _STEP
        if len(turns) == place.turns:
            known = None  # the task begins with these messages
        elif known is None or known.seen_from != first:
            raise HistoryMissing
        self._place, self._first = place, first
        past = self._past
        crash: PartCrash | None = None
        try:
            self._begin(known, place.text)
            for index, turn in enumerate(turns, place.turns - len(turns)):
                self._count(turn)
                if index >= first:
                    self._found.clear()
                    self._see(turn)
        except PartCrash as raised:
            crash = raised
        past.counters.turns = past.counters.model_calls = place.turns
        self.core.take_up(past, "", now)
        if crash is not None:
            self._state_is_whole = False
            self.core.fail(crash.error, crash.name, now)
        if not place.has_news:
            self._policy.note(self._found)
        return self._policy.loop

    @property
    def turns(self) -> int:
        """The turns of the task that goes on, in the history."""
        return self._place.turns

    @property
    def task(self) -> str:
        """The text of the user's last task."""
        return self._place.text

    def state(self) -> TaskState | None:
        """The state behind the history, before anything of the answer has come. `None`: a detector
        has no state that can be kept.
        """
        if not self._state_is_whole or not all(hasattr(one, "snapshot") for one in self._detectors):
            return None
        counters = self._past.counters
        try:
            detectors = json.dumps(self._bank.snapshots(), separators=(",", ":")).encode()
        except (TypeError, ValueError):
            return None
        return TaskState(
            place=self._place,
            seen_from=self._first,
            tool_calls=counters.tool_calls,
            tools_called=counters.tools_called,
            errors=counters.errors,
            calls_seen=self._policy.calls_before,
            found=tuple(self._found),
            detectors=detectors,
        )

    def _begin(self, known: TaskState | None, task: str) -> None:
        """Begin with the state `known`, or with the user's task."""
        self._bank.reset()
        if known is None:
            if task:
                self._bank.request(task)
            return
        counters = self._past.counters
        counters.tool_calls, counters.tools_called = known.tool_calls, known.tools_called
        counters.errors = copy(known.errors)
        self._policy.calls_before = known.calls_seen
        self._found += known.found
        states = json.loads(known.detectors)
        for detector in self._detectors:
            try:
                detector.restore(states[detector.name])
            except Exception as error:
                raise PartCrash(detector.name, error) from error

    def _count(self, turn: AssistantMessage) -> None:
        counters = self._past.counters
        counters.errors.turn_started()
        counters.tool_calls += len(calls_of(turn))
        for result in turn.results:
            counters.tool_answered(result.name)
            if not result.vetoed:
                counters.errors.add(is_error=result.is_error)

    def _see(self, turn: AssistantMessage) -> None:
        bank, found = self._bank, self._found
        for part in turn.content:
            if isinstance(part, Text):
                found += bank.text(part.text)
            elif isinstance(part, Reasoning):
                found += bank.reasoning(ReasoningDelta(part.text))
            else:
                abridged = abridged_arguments(part.arguments)
                call = part if abridged is None else replace(part, arguments=abridged[0])
                self._policy.calls_before += 1
                found += bank.fact(call)
        found += bank.fact(TurnFinished(turn.finish_reason or FinishReason.DONE))
        for result in turn.results:
            found += bank.fact(replace(result, text=abridged_text(result.text)))


WORTH_BYTES: Final = 16 * 1024
"""A shorter request is read as a whole: that costs less than to look for its beginning."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The bytes of all histories together. A history of a hundred turns takes about 40 KB."""
_HEAD: Final = 64
"""Bytes at the beginning of a body by which candidates are found."""
_TAIL: Final = 32
"""Bytes before the end of a history that are compared before anything is hashed."""
_OVERHEAD: Final = 2_000
"""Bytes of the objects around a history that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistory:
    """The findings in the history of a request."""

    beginning: Beginning
    opening: bytes
    """The hash by which the run is known (`opening_of`)."""
    tokens: int
    """The tokens of its messages, as an estimate."""
    state: TaskState

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        said = len(self.beginning.instructions or "") + sum(map(len, self.beginning.ids))
        return _OVERHEAD + said + self.state.size


_GroupKey: TypeAlias = tuple[Form, str, bytes]
"""The form, the name of the client's key, and the first bytes of the body."""


@dataclass(slots=True)
class Lookup:
    """One look for the beginning of a body."""

    group: _GroupKey
    known: KnownHistory | None = None
    digest: bytes = b""
    """The hash of the known beginning."""
    _hasher: Any = None
    _hashed: int = 0

    def digest_at(self, body: bytes, end: int) -> bytes:
        """The hash of the body up to `end`. Ends that ascend cost one pass over the body."""
        if self._hasher is None or end < self._hashed:
            self._hashed = 0
            form, key, _ = self.group
            self._hasher = hashlib.sha256(f"{form}\0{key}\0".encode())
        self._hasher.update(memoryview(body)[self._hashed : end])
        self._hashed = end
        found: bytes = self._hasher.digest()
        return found


@dataclass(slots=True)
class _Candidates:
    """The ends of the histories of bodies that begin alike."""

    ends: list[int] = field(default_factory=list[int])
    """The lengths of the histories, in ascending order."""
    tails: dict[tuple[int, bytes], int] = field(default_factory=dict[tuple[int, bytes], int])
    """How many histories have this end with these bytes before it."""


@dataclass(frozen=True, slots=True)
class _KeptHistory:
    """A history, and where it is noted."""

    history: KnownHistory
    group: _GroupKey
    tail: bytes
    """The bytes before its end."""
    before: bytes
    """The hash of the history that it continues."""


class KnownHistories:
    """The newest histories, up to a bound in bytes."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._known: OrderedDict[bytes, _KeptHistory] = OrderedDict()
        """The histories by their hashes. The one that was used last stands at the end."""
        self._groups: dict[_GroupKey, _Candidates] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        return self._size

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._groups.clear()
        self._size = 0

    def find(self, form: Form, key: str, body: bytes) -> Lookup:
        """The longest known beginning of the body."""
        lookup = Lookup((form, key, body[:_HEAD]))
        group = self._groups.get(lookup.group)
        if group is None:
            return lookup
        for end in group.ends[: bisect_right(group.ends, len(body))]:
            if (end, body[end - _TAIL : end]) not in group.tails:
                continue
            digest = lookup.digest_at(body, end)
            found = self._known.get(digest)
            if found is not None:
                lookup.known, lookup.digest = found.history, digest
        if lookup.digest:
            self._known.move_to_end(lookup.digest)
        return lookup

    def add(self, lookup: Lookup, body: bytes, history: KnownHistory) -> None:
        """Keep what was found in the body. Of its own beginnings only the last is still kept."""
        end = history.beginning.records.end
        digest = lookup.digest_at(body, end)
        if digest in self._known:
            self._known.move_to_end(digest)
            return
        if lookup.digest in self._known:
            self._forget(self._known[lookup.digest].before)
        tail = body[end - _TAIL : end]
        self._known[digest] = _KeptHistory(history, lookup.group, tail, lookup.digest)
        self._size += history.size
        group = self._groups.setdefault(lookup.group, _Candidates())
        insort(group.ends, end)
        group.tails[end, tail] = group.tails.get((end, tail), 0) + 1
        while self._size > self._most:
            self._forget(next(iter(self._known)))

    def _forget(self, digest: bytes) -> None:
        kept = self._known.pop(digest, None)
        if kept is None:
            return
        end, tail = kept.history.beginning.records.end, kept.tail
        self._size -= kept.history.size
        group = self._groups[kept.group]
        del group.ends[bisect_right(group.ends, end) - 1]
        group.tails[end, tail] -= 1
        if not group.tails[end, tail]:
            del group.tails[end, tail]
        if not group.ends:
            del self._groups[kept.group]


# --------------------------------------------------------------------------------------------------
# Reads a request and judges its history, at the cost of what is new in it.

LARGE_BYTES: Final = 64 * 1024
"""New bytes that are read and judged in a thread: they would hold up the other streams for 10 ms.
"""


@dataclass(slots=True, kw_only=True)
class RequestReading:
    """A request whose body was read."""

    wire: Wire
    path: str
    """With the query."""
    body: bytes
    """Unpacked."""
    asked: JudgedRequest
    lookup: Lookup | None = None
    """The known beginning of its history. `None`: it is too short to be kept."""
    input_tokens: int = 0
    """The tokens of the history and of the instructions, as an estimate, once it is judged."""

    @property
    def known(self) -> KnownHistory | None:
        """The known beginning behind which the messages stand."""
        return self.lookup.known if self.lookup is not None and self.asked.goes_on else None

    @property
    def records(self) -> Span | None:
        """The place of the known records in the body."""
        return self.known.beginning.records if self.known is not None else None

    @property
    def new_bytes(self) -> int:
        """The bytes that were not known."""
        return len(self.body) - (self.records.end if self.records is not None else 0)

    @property
    def opening(self) -> bytes:
        """The hash of how the history begins."""
        return self.known.opening if self.known is not None else opening_of(self.asked.messages)

    @property
    def run(self) -> str:
        """The name of the run, if the client gives it none."""
        return run_of(self.asked.instructions, self.opening)

    def forget(self) -> None:
        """Drop the body and the messages: the request was judged and sent."""
        self.body, self.lookup = b"", None
        self.asked = replace(self.asked, messages=(), instructions=None)


class HistoryReader:
    """Reads requests, and keeps what their histories have shown."""

    def __init__(self, histories: KnownHistories, *, most_body: int, worth_bytes: int = WORTH_BYTES) -> None:
        """`most_body`: bytes of an unpacked request. `worth_bytes`: a shorter one is not kept."""
        self._worth_bytes = worth_bytes
        self._histories = histories
        self._most_body = most_body

    def forget(self) -> None:
        """Forget all histories: they were judged by other detectors."""
        self._histories.clear()

    async def read(self, wire: Wire, path: str, body: bytes, *, coding: str, key: str) -> RequestReading | Unjudged:
        """Read a body. `coding`: how it is packed. `key`: the name of the client's key."""

        def read() -> RequestReading | Unjudged:
            try:
                plain = unpacked(body, coding, self._most_body) if coding else body
            except Unpackable as error:
                return Unjudged(f"the request is {error}")
            lookup = self._histories.find(wire.form, key, plain) if len(plain) >= self._worth_bytes else None
            known = lookup.known.beginning if lookup is not None and lookup.known is not None else None
            asked = wire.asked(path, plain, known)
            if isinstance(asked, Unjudged):
                return asked
            return RequestReading(wire=wire, path=path, body=plain, asked=asked, lookup=lookup)

        return read() if len(body) < LARGE_BYTES and not coding else await to_thread.run_sync(read)

    async def recall(self, judge: RequestJudge, reading: RequestReading, now: float) -> Detection | None:
        """The loop in which the run is, by its history, which is kept. `None`: it is in none."""

        def recall() -> Detection | None:
            known = reading.known
            try:
                return judge.recall(reading.asked.messages, now, known.state if known is not None else None)
            except HistoryMissing:
                asked = reading.wire.asked(reading.path, reading.body)
                assert isinstance(asked, JudgedRequest)  # noqa: S101 - it was read before
                reading.asked = asked
                return judge.recall(asked.messages, now)

        loop = recall() if reading.new_bytes < LARGE_BYTES else await to_thread.run_sync(recall)
        known, asked = reading.known, reading.asked
        tokens = sum(map(message_tokens, asked.messages), known.tokens if known is not None else 0)
        reading.input_tokens = tokens + size_of_text(asked.instructions or "").tokens
        if reading.lookup is not None and (history := self._history(judge, reading, tokens)) is not None:
            self._histories.add(reading.lookup, reading.body, history)
        return loop

    def _history(self, judge: RequestJudge, reading: RequestReading, tokens: int) -> KnownHistory | None:
        """The findings in the history. `None`: the next request cannot begin behind it."""
        asked, known = reading.asked, reading.known
        if asked.records is None or not _is_closed(asked, known):
            return None
        state = judge.state()
        if state is None:
            return None
        ids = known.beginning.ids if known is not None else frozenset[str]()
        if rules_of(asked.form).unique_ids:
            turns = [message for message in asked.messages if isinstance(message, AssistantMessage)]
            ids |= {part.id for turn in turns for part in turn.content if isinstance(part, ToolCall)}
        beginning = Beginning(asked.records, asked.system_messages, ids)
        return KnownHistory(beginning=beginning, opening=reading.opening, tokens=tokens, state=state)


def _is_closed(asked: JudgedRequest, known: KnownHistory | None) -> bool:
    """Whether no later message can become a part of the last one."""
    if not asked.messages:
        return known is not None
    last = asked.messages[-1]
    return isinstance(last, UserMessage) or (bool(last.results) and not any(result.vetoed for result in last.results))
