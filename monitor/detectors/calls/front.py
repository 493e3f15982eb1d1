"""Reads each call once, with its result, and hands it to the rules of calls. Turns are kept apart;
calls of a failed attempt are taken back.

Rules:

- The same call delivered twice (same id, same arguments, same turn) is one call; a second result of
  a call is ignored.
- Calls are numbered from 0 over the whole run. A rule gets each result with the number of its call.
- Calls are siblings and form one batch if neither the end of a turn nor a result stands between
  them.
- `StreamRetried` restores the state from before the first call of the turn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from monitor._util.hashing import canonical_json, identity
from monitor._util.state import copied, from_json, to_json
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
)
from monitor.detectors.calls.allowance import Allowance
from monitor.detectors.calls.tool_policy import ToolPolicy, action_of, checked, policy_of
from monitor.detectors.detector import NOTHING, Detector
from monitor.verdicts import Detection

State = TypeVar("State")

EXCERPT_CHARS = 200
"""The length that `Evidence.excerpt` documents."""
TAIL_CHARS = 64
"""Characters kept of the end of a long call, because similar calls often differ at the end."""
CALLS_KEPT = 256
"""The most unanswered calls, and ids of one turn, that are kept: far more than any turn has."""
OFFSETS_SHOWN = 20
"""The number of calls that the evidence lists, the newest ones."""
VERSION = 8
"""The version of the snapshots of all rules of calls."""
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class CallIdentity(NamedTuple):
    """The identity of a call: the hash, then the length and the beginning and end of the text. They
    verify the hash by value, so a collision of hashes is never a loop.
    """

    xxhash: str = ""
    length: int = 0
    text: str = ""

    @classmethod
    def of(cls, text: str) -> CallIdentity:
        """The identity of the call that `text` describes."""
        shown = text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]} ... {text[-TAIL_CHARS:]}"
        return cls(identity(text), len(text), shown)


@dataclass(slots=True, frozen=True)
class SeenCall:
    """A call as the rules receive it."""

    index: int
    name: str
    action: str
    """What the arguments say that the call does, see `action_of`."""
    batch: int
    """The number of its batch: equal for siblings."""
    key: CallIdentity
    """The identity of name and canonical arguments (or what the tool's `loop_key` made of them)."""
    exempt: bool
    arguments: object
    """What the model gave, or the value that identifies the call, where its tool says so."""
    policy: ToolPolicy

    @property
    def arguments_length(self) -> int:
        """Code points of the canonical arguments."""
        return self.key.length - len(self.name) - 2


@dataclass(slots=True, frozen=True)
class UnansweredCall:
    """The facts about a call that are needed when its result comes."""

    index: int
    name: str
    action: str
    batch: int


class CallAnswer:
    """The result of a call as the rules receive it."""

    __slots__ = ("_outcome", "call", "policy", "result")

    def __init__(self, call: UnansweredCall, policy: ToolPolicy, result: ToolResult) -> None:
        self.call = call
        self.policy = policy
        self.result = result
        self._outcome: str | None = None

    @property
    def outcome(self) -> str:
        """The identity of the result, see `ToolPolicy.outcome_of`. It is computed once for all
        rules.
        """
        if self._outcome is None:
            self._outcome = self.policy.outcome_of(self.result)
        return self._outcome


class CallRule(Generic[State]):
    """Base of the rules of calls: a detector that gets whole calls and results. Its state is a
    dataclass (`monitor._util.state`), which is all that a rule changes.
    """

    wants_deltas = False

    __slots__ = ("_before_turn", "_new_state", "_state", "front", "name", "tools")

    def __init__(self, state: type[State], *, tools: Mapping[str, ToolPolicy] | None, name: str) -> None:
        self.name: str = name
        self.tools: Mapping[str, ToolPolicy] = checked(tools)
        self._new_state = state
        self._state: State = state()
        self._before_turn: State | None = None
        self.front: CallFront = CallFront()
        """Reads the calls, for this rule alone or together with others."""

    @abstractmethod
    def called(self, call: SeenCall) -> Sequence[Detection]:
        """Take in a call that was made."""

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        """Take in the result of a call."""
        return NOTHING

    def vetoed(self, call: UnansweredCall) -> Sequence[Detection]:
        """Take in that a call was not carried out."""
        return NOTHING

    def batch_begins(self, batch: int) -> Sequence[Detection]:
        """The next call belongs to the batch `batch`. A retry takes back what this changes."""
        return NOTHING

    def turn_ended(self) -> Sequence[Detection]:
        """Take in the end of the model's turn."""
        return NOTHING

    @property
    def allowed(self) -> Allowance:
        """What the user's request allows."""
        return self.front.allowed

    def keep_state(self) -> None:
        """A turn begins that may be taken back."""
        self._before_turn = copied(self._state)

    def turn_is_over(self, *, retried: bool = False) -> None:
        """The state before the turn is not needed any more. `retried`: it is the state again."""
        if retried and self._before_turn is not None:
            self._state = self._before_turn
        self._before_turn = None

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Count calls, compare results, keep turns apart; other chunks are ignored."""
        return self.front.observe(chunk, (self,))

    def request(self, text: str) -> None:
        """The user's request, at the beginning or later: it says what may be repeated."""
        self.front.request(text)

    def forget_streaks(self) -> None:
        """A person has said something new to the model, which is progress: count anew."""
        self._state = self._new_state()

    def reset(self) -> None:
        """Forget everything."""
        self._state, self._before_turn = self._new_state(), None
        self.front.reset_reading()

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {
            "version": VERSION,
            "front": self.front.save(),
            "state": to_json(self._state),
            "before_turn": to_json(self._before_turn),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {VERSION}")
        self.front.load(state["front"])
        before = state["before_turn"]
        self._state = from_json(self._new_state, state["state"])
        self._before_turn = None if before is None else from_json(self._new_state, before)


@dataclass(slots=True)
class _CallReading:
    """What the front knows of the calls of a run."""

    calls: int = 0
    batch: int = 0
    """Number of the batch to which the next call belongs, while no result of the batch has come."""
    batch_answered: bool = False
    waiting: dict[str, UnansweredCall] = field(default_factory=dict[str, UnansweredCall])
    """Calls without a result, by id."""

    def next_batch(self) -> None:
        self.batch += 1
        self.batch_answered = False


@dataclass(slots=True)
class _CallTurn:
    """What the front knows of the present turn."""

    before: _CallReading | None = None
    """The reading before the first call of this turn."""
    seen: dict[str, str] = field(default_factory=dict[str, str])
    """Calls of this turn: id -> hash."""


Rules: TypeAlias = "Sequence[CallRule[Any]]"


class CallFront:
    """Reads the calls of a run for rules that have the same policies of tools. It holds no rule, so
    rules that are over are freed at once.
    """

    __slots__ = ("_reading", "_turn", "allowed", "asked")

    def __init__(self) -> None:
        self.asked: str = ""
        """The name of the rule that is asked now, or was asked last."""
        self.reset_reading()

    def reset_reading(self) -> None:
        """Begin a new run. The rules keep their state."""
        self._reading: _CallReading = _CallReading()
        self._turn: _CallTurn = _CallTurn()
        self.allowed: Allowance = Allowance()
        """What the user's request allows."""

    def request(self, text: str) -> None:
        """The user's request."""
        self.allowed.add(text)

    def observe(self, chunk: Chunk, rules: Rules) -> Sequence[Detection]:
        """Hand on what `rules` want to know of `chunk`."""
        if isinstance(chunk, _DELTAS):
            return NOTHING
        match chunk:
            case ToolCall():
                return self._take_call(chunk, rules)
            case ToolResult():
                return self._take_result(chunk, rules)
            case TurnFinished():
                self._end_turn(rules)
                if self._reading.calls:
                    self._reading.next_batch()
                    return self._told(rules, "turn_ended")
            case StreamRetried():
                self._reading = self._turn.before or self._reading
                self._end_turn(rules, retried=True)
            case _:
                pass
        return NOTHING

    def _end_turn(self, rules: Rules, *, retried: bool = False) -> None:
        self._turn = _CallTurn()
        for rule in rules:
            rule.turn_is_over(retried=retried)

    def _take_call(self, chunk: ToolCall, rules: Rules) -> Sequence[Detection]:
        reading, turn = self._reading, self._turn
        action, arguments = action_of(chunk.arguments), chunk.arguments
        policy = policy_of(chunk.name, rules[0].tools, action)
        exempt, text = policy.exempt, text_of_call(chunk)
        if policy.loop_key is not None or chunk.loop_key is not None:
            said = policy.key_of(chunk.arguments) if policy.loop_key is not None else canonical_json(chunk.loop_key)
            exempt = exempt or said is None
            if not exempt:
                text, arguments = f"{chunk.name}({said})", said
        key = CallIdentity.of(text)
        if chunk.id and turn.seen.get(chunk.id) == key.xxhash:
            return NOTHING
        if reading.batch_answered:
            reading.next_batch()
        found = self._told(rules, "batch_begins", reading.batch)
        if turn.before is None:
            turn.before = copied(reading)
            for rule in rules:
                rule.keep_state()
        call = SeenCall(reading.calls, chunk.name, action, reading.batch, key, exempt, arguments, policy)
        remember(turn.seen, chunk.id, key.xxhash)
        remember(reading.waiting, chunk.id, UnansweredCall(call.index, call.name, action, call.batch))
        reading.calls += 1
        return (*found, *self._told(rules, "called", call))

    def _take_result(self, chunk: ToolResult, rules: Rules) -> Sequence[Detection]:
        reading = self._reading
        asked = reading.waiting.pop(chunk.id, None)
        if asked is None:
            return NOTHING
        reading.batch_answered |= asked.batch == reading.batch
        if chunk.vetoed:
            return self._told(rules, "vetoed", asked)
        policy = policy_of(asked.name, rules[0].tools, asked.action)
        return self._told(rules, "answered", CallAnswer(asked, policy, chunk))

    def _told(self, rules: Rules, what: str, *said: object) -> Sequence[Detection]:
        """Call the method `what` of each rule, and return all findings."""
        found: Sequence[Detection] = NOTHING
        for rule in rules:
            self.asked = rule.name
            if seen := getattr(rule, what)(*said):
                found = (*found, *seen)
        return found

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {"reading": to_json(self._reading), "turn": to_json(self._turn), "allowed": self.allowed.save()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take over what `save` returned."""
        self._reading = from_json(_CallReading, saved["reading"])
        self._turn = from_json(_CallTurn, saved["turn"])
        self.allowed.load(saved["allowed"])


class JoinedRules:
    """Rules that share one front, so that each call is read once for all of them."""

    __slots__ = ("_front", "_rules")
    wants_deltas = False

    def __init__(self, rules: Sequence[CallRule[Any]]) -> None:
        self._rules: Rules = tuple(rules)
        self._front = rules[0].front
        for rule in rules:
            rule.front = self._front

    @property
    def name(self) -> str:
        """The rule that is asked now, or was asked last."""
        return self._front.asked

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Show `chunk` to all of them."""
        return self._front.observe(chunk, self._rules)


Shown: TypeAlias = Detector | JoinedRules
"""A detector, or several rules of calls in its place."""


def joined(detectors: Iterable[Detector]) -> list[Shown]:
    """`detectors`, in which rules with the same policies of tools stand together, in the place of
    the first of them.
    """
    shown: list[Shown] = []
    together: list[list[CallRule[Any]]] = []
    for detector in detectors:
        if not isinstance(detector, CallRule):
            shown.append(detector)
            continue
        group = next((rules for rules in together if rules[0].tools == detector.tools), None)
        if group is not None:
            group.append(detector)
            continue
        together.append([detector])
        shown.append(detector)
    for rules in together:
        if len(rules) > 1:
            shown[shown.index(rules[0])] = JoinedRules(rules)
    return shown


def text_of_call(call: ToolCall) -> str:
    """The name and the canonical arguments of a call."""
    return f"{call.name}({canonical_json(call.arguments)})"


def remember(kept: dict[str, Any], key: str, value: object, limit: int = CALLS_KEPT) -> None:
    """Keep `value` as the newest, and drop the oldest if there are more than `limit`. An empty key
    is ignored.
    """
    if not key:
        return
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]
