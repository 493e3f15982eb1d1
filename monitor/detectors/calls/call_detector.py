"""The common base of all detectors of calls. Each call is seen once, with its result; turns are
kept apart; calls of a failed attempt are taken back.

Rules:

- The same call delivered twice (same id, same arguments, same turn) is one call; a second result of
  a call is ignored.
- Calls are numbered from 0 over the whole run. A detector gets each result with the number of its
  call.
- Calls are siblings and form one batch if neither the end of a turn nor a result stands between
  them.
- `StreamRetried` restores the state from before the first call of the turn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, TypeAlias

from monitor._util.hashing import canonical_json, identity
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
from monitor.detectors.detector import NOTHING
from monitor.verdicts import Detection

EXCERPT_CHARS = 200
"""The length that `Evidence.excerpt` documents."""
TAIL_CHARS = 64
"""Characters kept of the end of a long call, because similar calls often differ at the end."""
CALLS_KEPT = 256
"""The most unanswered calls, and ids of one turn, that are kept: far more than any turn has."""
OFFSETS_SHOWN = 20
"""The number of calls that the evidence lists, the newest ones."""
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class CallKey(NamedTuple):
    """The identity of a call: the hash, then the length and the beginning of the text. It is a
    tuple because keys are compared often.
    """

    xxhash: str = ""
    length: int = 0
    text: str = ""


@dataclass(slots=True)
class DetectorCall:
    """A call that waits for its result, or has just received it. It is a value, but not frozen:
    each detector makes one for each call.
    """

    index: int
    name: str
    action: str
    batch: int
    """The number of its batch: equal for siblings."""


@dataclass(slots=True)
class Called:
    """A call as detectors of calls receive it. It is a value, but not frozen: each detector makes
    one for each call.
    """

    index: int
    name: str
    batch: int
    text: str
    """Name and canonical arguments (or what the tool's `loop_key` made of them)."""
    xxhash: str
    policy: ToolPolicy
    exempt: bool
    arguments: object
    """What the model gave, or the value that identifies the call, where its tool says so."""

    def key(self, chars: int) -> CallKey:
        """The identity of the call. The first `chars` characters and the end of the text verify the
        hash by value, so a collision of hashes is never a loop.
        """
        text = self.text
        return CallKey(
            self.xxhash, len(text), text if len(text) <= chars else f"{text[:chars]} ... {text[-TAIL_CHARS:]}"
        )

    @property
    def arguments_length(self) -> int:
        """Code points of the canonical arguments."""
        return len(self.text) - len(self.name) - 2


class CallDetector:
    """Base of the detectors of calls. A subclass keeps its own state and implements the methods
    below.
    """

    wants_deltas = False

    __slots__ = (
        "_allowed",
        "_batch",
        "_batch_answered",
        "_before_turn",
        "_begun",
        "_calls",
        "_seen",
        "_tools",
        "_waiting",
        "name",
    )
    _allowed: Allowance
    """What the user's request allows."""
    _begun: bool
    """There has been a call. Before the first one there is no state: most streams have none."""
    _calls: int
    _batch: int
    """Number of the batch to which the next call belongs, while no result of the batch has come."""
    _batch_answered: bool
    _before_turn: dict[str, Any] | None
    """The state before the first call of this turn."""
    _seen: dict[str, str]
    """Calls of this turn: id -> hash."""
    _waiting: dict[str, DetectorCall]
    """Calls without a result, by id."""

    VERSION = 7

    def __init__(self, *, tools: Mapping[str, ToolPolicy] | None, name: str) -> None:
        self.name: str = name
        self._tools = checked(tools)
        self._begun = False

    def _policy_of(self, tool: str, action: str = "") -> ToolPolicy:
        return policy_of(tool, self._tools, action)

    def _before_call(self, batch: int) -> Sequence[Detection]:
        """A call of the batch `batch` comes next. The state that a retry brings back has what this
        changes.
        """
        return NOTHING

    @abstractmethod
    def _called(self, call: Called) -> Sequence[Detection]:
        """Take in a call that was made."""

    def _answered(self, asked: DetectorCall, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        """Take in the result of a call."""
        return NOTHING

    def _vetoed(self, asked: DetectorCall) -> Sequence[Detection]:
        """Take in that a call was not carried out."""
        return NOTHING

    def _turn_ended(self) -> Sequence[Detection]:
        """Take in the end of the model's turn."""
        return NOTHING

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """A copy of the subclass's state, taken before each turn: JSON data, or data that
        `_as_json` converts to it.
        """

    def _as_json(self, saved: dict[str, Any]) -> dict[str, Any]:
        """The state that `_save` returned, as JSON data."""
        return saved

    @abstractmethod
    def _load(self, state: Mapping[str, Any] | None) -> None:
        """Take over a state that `_save` or `_as_json` returned. `None`: a new run."""

    def request(self, text: str) -> None:
        """The user's request, at the beginning or later: it says what may be repeated."""
        if not self._begun:
            self._begin()
        self._allowed.add(text)

    def forget_streaks(self) -> None:
        """A person has said something new to the model, which is progress: count anew."""
        if self._begun:
            self._load(None)

    def reset(self) -> None:
        """Forget everything."""
        if self._begun:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        self._calls = self._batch = 0
        self._batch_answered = False
        self._before_turn = None
        self._seen = {}
        self._waiting = {}
        self._allowed = Allowance()
        self._load(None)

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Count calls, compare results, keep turns apart; other chunks are ignored."""
        if isinstance(chunk, _DELTAS):
            return NOTHING
        if not self._begun:
            if not isinstance(chunk, ToolCall):
                return NOTHING
            self._begin()
        match chunk:
            case ToolCall():
                return self._take_call(chunk)
            case ToolResult():
                return self._take_result(chunk)
            case TurnFinished():
                self._before_turn, self._seen = None, {}
                if self._calls:
                    self._next_batch()
                return self._turn_ended()
            case StreamRetried():
                if self._before_turn is not None:
                    self._put_back(self._before_turn)
                self._before_turn, self._seen = None, {}
            case _:
                pass
        return NOTHING

    def _take_call(self, chunk: ToolCall) -> Sequence[Detection]:
        action, text, xxhash = read_call(chunk)
        policy = self._policy_of(chunk.name, action)
        exempt, arguments = policy.exempt, chunk.arguments
        if policy.loop_key is not None or chunk.loop_key is not None:
            key = policy.key_of(chunk.arguments) if policy.loop_key is not None else canonical_json(chunk.loop_key)
            exempt = exempt or key is None
            if not exempt:
                text, arguments = f"{chunk.name}({key})", key
                xxhash = identity(text)
        if chunk.id and self._seen.get(chunk.id) == xxhash:
            return NOTHING
        if self._batch_answered:
            self._next_batch()
        found = self._before_call(self._batch)
        if self._before_turn is None:
            self._before_turn = self._everything()
        call = Called(self._calls, chunk.name, self._batch, text, xxhash, policy, exempt, arguments)
        remember(self._seen, chunk.id, xxhash)
        remember(self._waiting, chunk.id, DetectorCall(call.index, chunk.name, action, call.batch))
        self._calls += 1
        return (*found, *self._called(call)) if found else self._called(call)

    def _take_result(self, chunk: ToolResult) -> Sequence[Detection]:
        asked = self._waiting.pop(chunk.id, None)
        if asked is None:
            return NOTHING
        self._batch_answered |= asked.batch == self._batch
        if chunk.vetoed:
            return self._vetoed(asked)
        return self._answered(asked, self._policy_of(asked.name, asked.action), chunk)

    def _next_batch(self) -> None:
        self._batch += 1
        self._batch_answered = False

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data of at most a few KB."""
        if not self._begun:
            self._begin()
        before = self._before_turn
        return {
            "version": self.VERSION,
            **self._everything_as_json(self._everything()),
            "before_turn": None if before is None else self._everything_as_json(before),
            "seen": dict(self._seen),
            "allowed": self._allowed.save(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != self.VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {self.VERSION}")
        self._begin()
        self._put_back(state)
        self._before_turn = state["before_turn"]
        self._allowed.load(state["allowed"])
        self._seen = {str(id): str(xxhash) for id, xxhash in state["seen"].items()}

    def _everything(self) -> dict[str, Any]:
        return {
            "calls": self._calls,
            "batch": [self._batch, self._batch_answered],
            "waiting": dict(self._waiting),
            "own": self._save(),
        }

    def _everything_as_json(self, state: dict[str, Any]) -> dict[str, Any]:
        waiting = {id: list(astuple(_asked(asked))) for id, asked in state["waiting"].items()}
        return {**state, "waiting": waiting, "own": self._as_json(state["own"])}

    def _put_back(self, state: Mapping[str, Any]) -> None:
        self._calls = int(state["calls"])
        self._batch, self._batch_answered = int(state["batch"][0]), bool(state["batch"][1])
        self._waiting = {str(id): _asked(asked) for id, asked in state["waiting"].items()}
        self._load(state["own"])


def _asked(saved: DetectorCall | list[Any]) -> DetectorCall:
    """`saved` as a `DetectorCall`, also if it is JSON data."""
    return saved if isinstance(saved, DetectorCall) else DetectorCall(*saved)


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


def plain(state: Any) -> dict[str, Any]:
    """A slots dataclass of JSON values as an independent dict. Called before each turn, so it is
    faster than `asdict`.
    """
    return {
        name: value[:] if isinstance(value, list) else value._asdict() if isinstance(value, CallKey) else value
        for name in state.__slots__
        for value in (getattr(state, name),)
    }


class ReadCall(NamedTuple):
    """A call, read once for all detectors."""

    action: str
    """The action of the call, as `action_of` reads it."""
    text: str
    """The name and the canonical arguments of the call."""
    xxhash: str


_FLAT = frozenset({str, int, float, bool, type(None)})
_Flat: TypeAlias = tuple[str, tuple[tuple[object, object], ...], list[type]]
_latest: tuple[_Flat, ReadCall] = ("", (), []), ReadCall("", "({})", identity("({})"))
"""The latest call with flat arguments: its name, their items, and the types of their values."""


def read_call(call: ToolCall) -> ReadCall:
    """`call`, read. Every detector asks for the same call in turn, so the latest one is kept, if
    its arguments are flat: then they can be compared by value.
    """
    global _latest  # noqa: PLW0603 - one tuple, put in its place whole
    arguments = call.arguments
    if type(arguments) is not dict:
        return _read_anew(call)
    flat = call.name, tuple(arguments.items()), [*map(type, arguments.values())]
    known, told = _latest
    if flat == known:
        return told
    told = _read_anew(call)
    if _FLAT.issuperset(flat[2]) and {str}.issuperset(map(type, arguments)):
        _latest = flat, told
    return told


def _read_anew(call: ToolCall) -> ReadCall:
    text = f"{call.name}({canonical_json(call.arguments)})"
    return ReadCall(action_of(call.arguments), text, identity(text))
