"""The common base of all detectors of calls. Each call is seen once, with its result; turns are
kept apart; calls of a failed attempt are taken back.

Rules:

- The same call delivered twice (same id, same arguments, same turn) is one call; a second result of
  a call is ignored.
- Calls are numbered from 0 over the whole run. A detector gets each result with the number of its
  call.
- Calls are siblings, one batch, if neither the end of a turn nor a result stands between them.
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
from monitor.detectors.base import NOTHING
from monitor.detectors.tool_policy import ToolPolicy, action_of, checked, is_veto, policy_of
from monitor.verdicts import Detection

EXCERPT_CHARS = 200
"""As `Evidence.excerpt` says."""
TAIL_CHARS = 64
"""Kept of the end of a long call: two that differ often differ last."""
CALLS_KEPT = 256
"""Unanswered calls, and ids of one turn, remembered at most: far more than any turn has."""
OFFSETS_SHOWN = 20
"""Calls listed in the evidence, the newest ones."""
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class CallKey(NamedTuple):
    """What makes two calls the same: the hash first, then length and the beginning of the text. A
    tuple, as keys are compared often.
    """

    xxhash: str = ""
    length: int = 0
    text: str = ""


@dataclass(slots=True, frozen=True)
class Asked:
    """A call that waits for its result, or has just got it."""

    index: int
    name: str
    action: str
    batch: int
    """The number of its batch: equal for siblings."""


@dataclass(slots=True, frozen=True)
class Called:
    """A call as detectors of calls receive it."""

    index: int
    name: str
    batch: int
    text: str
    """Name and canonical arguments (or what the tool's `loop_key` made of them)."""
    xxhash: str
    policy: ToolPolicy
    exempt: bool

    def key(self, chars: int) -> CallKey:
        """The identity, with the first `chars` of the text and its end to verify it by value: no
        collision of hashes makes a loop.
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
    """Base of the detectors of calls. A subclass keeps its own state and answers the four questions
    below.
    """

    wants_deltas = False

    __slots__ = ("_batch", "_batch_answered", "_before_turn", "_calls", "_seen", "_tools", "_waiting", "name")
    _calls: int
    _batch: int
    """Number of the batch that the next call belongs to, if no result of it has come."""
    _batch_answered: bool
    _before_turn: dict[str, Any] | None
    """The state before the first call of this turn."""
    _seen: dict[str, str]
    """Calls of this turn: id -> hash."""
    _waiting: dict[str, Asked]
    """Calls without a result, by id."""

    VERSION = 4

    def __init__(self, *, tools: Mapping[str, ToolPolicy] | None, name: str) -> None:
        self.name = name
        self._tools = checked(tools)
        self.reset()

    def _policy_of(self, tool: str, action: str = "") -> ToolPolicy:
        return policy_of(tool, self._tools, action)

    @abstractmethod
    def _called(self, call: Called) -> Sequence[Detection]:
        """A call was made."""

    def _answered(self, asked: Asked, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        """A call has its result."""
        return NOTHING

    def _turn_ended(self) -> Sequence[Detection]:
        """The model closed its turn."""
        return NOTHING

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """The subclass's state, not shared with it. As JSON data, or what `_as_json` makes JSON
        data of: it is taken before each turn.
        """

    def _as_json(self, saved: dict[str, Any]) -> dict[str, Any]:
        """What `_save` gave, as JSON data."""
        return saved

    @abstractmethod
    def _load(self, state: Mapping[str, Any] | None) -> None:
        """The inverse of `_save`, and of `_as_json`; `None`: a new run."""

    def reset(self) -> None:
        """Forget everything."""
        self._calls = self._batch = 0
        self._batch_answered = False
        self._before_turn = None
        self._seen = {}
        self._waiting = {}
        self._load(None)

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Count calls, compare results, keep turns apart; other chunks do not matter."""
        if isinstance(chunk, _DELTAS):
            return NOTHING
        match chunk:
            case ToolCall():
                return self._take_call(chunk)
            case ToolResult():
                return self._take_result(chunk)
            case TurnFinished():
                self._before_turn, self._seen = None, {}
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
        action = action_of(chunk.arguments)
        policy = self._policy_of(chunk.name, action)
        if policy.loop_key is not None:
            key = policy.key_of(chunk.arguments)
        else:
            key = _canonical(chunk.arguments if chunk.loop_key is None else chunk.loop_key)
        exempt = policy.exempt or key is None
        text = f"{chunk.name}({_canonical(chunk.arguments) if key is None or exempt else key})"
        xxhash = identity(text)
        if chunk.id and self._seen.get(chunk.id) == xxhash:
            return NOTHING
        if self._before_turn is None:
            self._before_turn = self._everything()
        if self._batch_answered:
            self._next_batch()
        call = Called(self._calls, chunk.name, self._batch, text, xxhash, policy, exempt)
        remember(self._seen, chunk.id, xxhash)
        remember(self._waiting, chunk.id, Asked(call.index, chunk.name, action, call.batch))
        self._calls += 1
        return self._called(call)

    def _take_result(self, chunk: ToolResult) -> Sequence[Detection]:
        asked = self._waiting.pop(chunk.id, None)
        if asked is None:
            return NOTHING
        self._batch_answered |= asked.batch == self._batch
        return NOTHING if is_veto(chunk) else self._answered(asked, self._policy_of(asked.name, asked.action), chunk)

    def _next_batch(self) -> None:
        self._batch += 1
        self._batch_answered = False

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data of at most a few KB."""
        before = self._before_turn
        return {
            "version": self.VERSION,
            **self._everything_as_json(self._everything()),
            "before_turn": None if before is None else self._everything_as_json(before),
            "seen": dict(self._seen),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != self.VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {self.VERSION}")
        self._put_back(state)
        self._before_turn = state["before_turn"]
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


def _asked(saved: Asked | list[Any]) -> Asked:
    """`saved` as an `Asked`, also if it is JSON data."""
    return saved if isinstance(saved, Asked) else Asked(*saved)


def remember(kept: dict[str, Any], key: str, value: object, limit: int = CALLS_KEPT) -> None:
    """Keep `value` as the newest; the oldest goes when there are more than `limit`. No key, nothing
    to remember.
    """
    if not key:
        return
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]


def plain(state: Any) -> dict[str, Any]:
    """A slots dataclass of JSON values as a dict that shares nothing with it. Taken before each
    turn, so faster than `asdict`.
    """
    return {
        name: value[:] if isinstance(value, list) else value._asdict() if isinstance(value, CallKey) else value
        for name in state.__slots__
        for value in (getattr(state, name),)
    }


_Flat: TypeAlias = tuple[tuple[tuple[object, object], ...], list[type], str]
_FLAT = frozenset({str, int, float, bool, type(None)})
_latest: _Flat = ((), [], "{}")
"""The items of the arguments that were seen last, the types of their values, and their canonical
form.
"""


def _canonical(arguments: object) -> str:
    """`canonical_json`. Each detector asks for it in turn, so the last answer is kept, for
    arguments that can be compared by a glance.
    """
    global _latest  # noqa: PLW0603 - one tuple, put in its place whole
    if type(arguments) is not dict:
        return canonical_json(arguments)
    items, types = tuple(arguments.items()), [*map(type, arguments.values())]
    known_items, known_types, known = _latest
    if types == known_types and items == known_items:
        return known
    form = canonical_json(arguments)
    if _FLAT.issuperset(types) and {str}.issuperset(map(type, arguments)):
        _latest = items, types, form
    return form
