"""The same tool call again and again. Failure answered: an agent that reads the same file, or sends the same mail, until
its budget is gone.

Rules:

- calls are the same if name and canonical arguments are (`_hashing`: key order and `1` / `1.0` make no difference); any other
  call in between starts anew, an exempt one too. Parallel calls of one turn count like calls one after the other;
- **polling is not a loop**: when a result differs from the one before it, the streak starts anew at the call that got it. Results
  that were not seen cannot speak for the call; then the arguments alone decide, and the message says so;
- the third is a suspicion (most runs recover by themselves), the fifth a loop (they do not), and so is every further one, so that a policy
  that answered the fifth with a warning sees whether it helped;
- the same call delivered twice (same id, same turn) counts once; what a retried stream had called is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from monitor._hashing import canonical_json, identity
from monitor.chunks import Chunk, ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished
from monitor.detectors.base import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

SNAPSHOT_VERSION = 1
EXCERPT_CHARS = 200
"""As `Evidence.excerpt` says."""
COMPARED_CHARS = 4_096
"""Canonical arguments kept to verify an equal hash by value; a written file may have a megabyte."""
CALLS_KEPT = 256
"""Unanswered calls, and ids of one turn, remembered at most: far more than any turn has."""
OFFSETS_SHOWN = 20
"""Calls listed in the evidence, the newest ones."""
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


@dataclass(slots=True, frozen=True)
class _Call:
    """What is compared: the hash first, then length and text."""

    xxhash: str = ""
    length: int = 0
    text: str = ""

    @staticmethod
    def of(name: str, arguments: object) -> tuple[_Call, int]:
        canonical = canonical_json(arguments)
        text = f"{name}({canonical})"
        return _Call(identity(text), len(text), text[:COMPARED_CHARS]), len(canonical)


@dataclass(slots=True)
class _Streak:
    """Identical calls in a row, as far as results did not change."""

    calls: int = 0
    """Calls since the run began."""
    call: _Call = _Call()
    start: int = 0
    """Index of the first call that counts."""
    answered: int = 0
    """Results seen of the calls that count."""
    result: str = ""
    """Identity of the last result seen."""
    waiting: dict[str, int] = field(default_factory=dict[str, int])
    """Calls without a result yet: id -> index."""

    def copy(self) -> _Streak:
        return replace(self, waiting=dict(self.waiting))


class ToolCallRepetition:
    """Identical consecutive tool calls: a suspicion at `suspect_at`, a loop at `loop_at` and at each one after it."""

    wants_deltas = False

    __slots__ = ("_before_turn", "_exempt", "_loop_at", "_seen", "_streak", "_suspect_at", "name")

    def __init__(
        self, *, suspect_at: int | None = 3, loop_at: int = 5, exempt: Sequence[str] = (), name: str = "tool_call_repetition"
    ) -> None:
        if loop_at <= 1:
            raise ConfigError(f"ToolCallRepetition(loop_at={loop_at}): one call repeats nothing; give 2 or more")
        if suspect_at is not None and not 1 < suspect_at <= loop_at:
            raise ConfigError(f"ToolCallRepetition(suspect_at={suspect_at}): give 2 to loop_at ({loop_at}), or None for no suspicion")
        if isinstance(exempt, str):
            raise ConfigError(f"ToolCallRepetition(exempt={exempt!r}): give a sequence of tool names")
        self.name = name
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        self._exempt = frozenset(exempt)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._streak = _Streak()
        self._before_turn: _Streak | None = None
        self._seen: dict[str, str] = {}

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Count calls, compare results, keep turns apart; other chunks do not matter."""
        if isinstance(chunk, _DELTAS):
            return NOTHING
        match chunk:
            case ToolCall():
                return self._called(chunk)
            case ToolResult():
                self._answered(chunk)
            case TurnFinished():
                self._before_turn = None
                self._seen = {}
            case StreamRetried():
                if self._before_turn is not None:
                    self._streak, self._before_turn = self._before_turn, None
                self._seen = {}
            case _:
                pass
        return NOTHING

    def _called(self, chunk: ToolCall) -> Sequence[Detection]:
        call, length = _Call.of(chunk.name, chunk.arguments)
        if chunk.id and self._seen.get(chunk.id) == call.xxhash:
            return NOTHING
        if self._before_turn is None:
            self._before_turn = self._streak.copy()
        _remember(self._seen, chunk.id, call.xxhash)
        streak = self._streak
        index = streak.calls
        streak.calls += 1
        if call != streak.call or chunk.name in self._exempt:
            self._streak = streak = _Streak(calls=streak.calls, call=call, start=index)
        _remember(streak.waiting, chunk.id, index)
        level = self._level(streak.calls - streak.start)
        if level is None or chunk.name in self._exempt:
            return NOTHING
        return (self._detection(chunk.name, level, length),)

    def _answered(self, chunk: ToolResult) -> None:
        streak = self._streak
        index = streak.waiting.pop(chunk.id, None)
        if index is None or index < streak.start:
            return
        result = identity(f"{chunk.is_error}:{chunk.text}")
        if streak.result and result != streak.result:
            streak.start, streak.answered = index, 0
        streak.result = result
        streak.answered += 1

    def _level(self, count: int) -> Level | None:
        if count >= self._loop_at:
            return "loop"
        return "suspect" if count == self._suspect_at else None

    def _detection(self, tool: str, level: Level, length: int) -> Detection:
        streak = self._streak
        count, last = streak.calls - streak.start, streak.calls - 1
        offsets = tuple(range(max(streak.start, streak.calls - OFFSETS_SHOWN), streak.calls))
        return Detection(
            detector=self.name,
            kind="identical_calls",
            channel="tools",
            level=level,
            count=count,
            threshold=self._loop_at if level == "loop" else self._suspect_at or self._loop_at,
            start_offset=streak.start,
            offset=last,
            evidence=Evidence(streak.call.text[:EXCERPT_CHARS], streak.call.xxhash, length, offsets),
            message=f"{tool} was called {count} times in a row with the same arguments{self._about_results(count)}",
        )

    def _about_results(self, count: int) -> str:
        answered = self._streak.answered
        if answered == 0:
            return "; no results were seen, the arguments alone decide"
        if answered < count - 1:
            return f"; the results seen ({answered} of {count}) were the same"
        return " and gave the same result each time"

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data of at most a few KB."""
        return {
            "version": SNAPSHOT_VERSION,
            "streak": asdict(self._streak),
            "before_turn": asdict(self._before_turn) if self._before_turn else None,
            "seen": dict(self._seen),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != SNAPSHOT_VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {SNAPSHOT_VERSION}")
        before = state["before_turn"]
        self._streak = _streak(state["streak"])
        self._before_turn = None if before is None else _streak(before)
        self._seen = {str(id): str(xxhash) for id, xxhash in state["seen"].items()}


def _streak(data: Mapping[str, Any]) -> _Streak:
    return _Streak(**{**data, "call": _Call(**data["call"]), "waiting": dict(data["waiting"])})


def _remember(kept: dict[str, Any], id: str, value: object) -> None:
    if not id:
        return
    kept.pop(id, None)
    kept[id] = value
    if len(kept) > CALLS_KEPT:
        del kept[next(iter(kept))]
