"""What every detector of calls needs: each call once, its result beside it, turns apart, and what a failed attempt had called
taken back.

Rules:

- the same call delivered twice (same id, same arguments, same turn) is one call; a second result of a call is ignored;
- calls are numbered from 0 over the whole run; a result is told with the number of its call;
- `StreamRetried` puts everything back to where it stood before the first call of the turn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor._hashing import canonical_json, identity
from monitor.chunks import Chunk, ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished
from monitor.detectors.base import NOTHING
from monitor.detectors.tool_policy import ToolPolicy, checked, is_veto, policy_of, policy_of_call
from monitor.verdicts import Detection

EXCERPT_CHARS = 200
"""As `Evidence.excerpt` says."""
CALLS_KEPT = 256
"""Unanswered calls, and ids of one turn, remembered at most: far more than any turn has."""
OFFSETS_SHOWN = 20
"""Calls listed in the evidence, the newest ones."""
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


@dataclass(slots=True, frozen=True)
class CallKey:
    """What makes two calls the same: the hash first, then length and the beginning of the text."""

    xxhash: str = ""
    length: int = 0
    text: str = ""


@dataclass(slots=True, frozen=True)
class Called:
    """A call as a detector of calls is told of it."""

    index: int
    name: str
    text: str
    """Name and canonical arguments (or what the tool's `loop_key` made of them)."""
    xxhash: str
    policy: ToolPolicy
    exempt: bool

    def key(self, chars: int) -> CallKey:
        """The identity, with the first `chars` of the text to verify it by value."""
        return CallKey(self.xxhash, len(self.text), self.text[:chars])

    @property
    def arguments_length(self) -> int:
        """Code points of the canonical arguments."""
        return len(self.text) - len(self.name) - 2


class CallDetector:
    """Base of the detectors of calls. A subclass keeps its own state and answers the four questions below."""

    wants_deltas = False

    __slots__ = ("_before_turn", "_calls", "_seen", "_tools", "_waiting", "name")
    _calls: int
    _before_turn: dict[str, Any] | None
    """The state before the first call of this turn."""
    _seen: dict[str, str]
    """Calls of this turn: id -> hash."""
    _waiting: dict[str, tuple[int, str]]
    """Calls without a result: id -> number and tool."""

    VERSION = 2

    def __init__(self, *, tools: Mapping[str, ToolPolicy] | None, name: str) -> None:
        self.name = name
        self._tools = checked(tools)
        self.reset()

    def _policy_of(self, tool: str) -> ToolPolicy:
        return policy_of(tool, self._tools)

    @abstractmethod
    def _called(self, call: Called) -> Sequence[Detection]:
        """A call was made."""

    def _answered(self, index: int, tool: str, result: ToolResult) -> Sequence[Detection]:
        """Call `index`, of `tool`, has its result."""
        return NOTHING

    def _turn_ended(self) -> Sequence[Detection]:
        """The model closed its turn."""
        return NOTHING

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """The subclass's state as JSON data, not shared with it."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any] | None) -> None:
        """The inverse of `_save`; `None`: a new run."""

    def reset(self) -> None:
        """Forget everything."""
        self._calls = 0
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
                return self._turn_ended()
            case StreamRetried():
                if self._before_turn is not None:
                    self._put_back(self._before_turn)
                self._before_turn, self._seen = None, {}
            case _:
                pass
        return NOTHING

    def _take_call(self, chunk: ToolCall) -> Sequence[Detection]:
        policy = self._policy_of(chunk.name)
        key = policy.key_of(chunk.arguments)
        text = f"{chunk.name}({canonical_json(chunk.arguments) if key is None else key})"
        call = Called(self._calls, chunk.name, text, identity(text), policy_of_call(chunk.name, self._tools, text), key is None)
        if chunk.id and self._seen.get(chunk.id) == call.xxhash:
            return NOTHING
        if self._before_turn is None:
            self._before_turn = self._everything()
        remember(self._seen, chunk.id, call.xxhash)
        remember(self._waiting, chunk.id, (call.index, chunk.name))
        self._calls += 1
        return self._called(call)

    def _take_result(self, chunk: ToolResult) -> Sequence[Detection]:
        call = self._waiting.pop(chunk.id, None)
        return NOTHING if call is None or is_veto(chunk) else self._answered(*call, chunk)

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data of at most a few KB."""
        return {"version": self.VERSION, **self._everything(), "before_turn": self._before_turn, "seen": dict(self._seen)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != self.VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {self.VERSION}")
        self._put_back(state)
        self._before_turn = state["before_turn"]
        self._seen = {str(id): str(xxhash) for id, xxhash in state["seen"].items()}

    def _everything(self) -> dict[str, Any]:
        return {"calls": self._calls, "waiting": {id: list(call) for id, call in self._waiting.items()}, "own": self._save()}

    def _put_back(self, state: Mapping[str, Any]) -> None:
        self._calls = int(state["calls"])
        self._waiting = {str(id): (int(index), str(name)) for id, (index, name) in state["waiting"].items()}
        self._load(state["own"])


def remember(kept: dict[str, Any], key: str, value: object, limit: int = CALLS_KEPT) -> None:
    """Keep `value` as the newest; the oldest goes when there are more than `limit`. No key, nothing to remember."""
    if not key:
        return
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]


def plain(state: Any) -> dict[str, Any]:
    """A slots dataclass of JSON values as a dict that shares nothing with it. Taken before each turn, so faster than `asdict`."""
    return {name: _plain(getattr(state, name)) for name in state.__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return value[:]
    return plain(value) if isinstance(value, CallKey) else value
