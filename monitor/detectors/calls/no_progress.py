"""A detector of one answer to different calls. Failure answered: ten different SELECTs on a table
that does not exist; a shell whose working directory is gone. No two calls are equal, so only the
results show the loop.

Rules:

- The detector counts **different calls** with the same answer in consecutive turns. One call alone
  is left to `ToolCallRepetition`. A few calls that are repeated without any order need twice as
  many turns.
- A turn is one event: seven siblings that fail together count once. A turn with two different
  answers restarts the count, and so does any other answer, because a changing error is progress.
  Tools that only think or wait are ignored.
- Answers are equal if their texts are, without times, durations, ids and attempt counts. Line
  numbers stay: a syntax error that moves is progress.
- Five calls with the same error are a loop, and so are five with the same long success. A short
  success may be a receipt: "ok" after each edit is progress. It counts only for a tool that only
  reads, and needs eight calls. Tools that page or repeat an effect may answer the same.
- A call with a number that is to be lowered (failing tests) stands still if that number does not
  become lower (`monitor.detectors.calls.progress_rule`).
- An answer is an error if it is marked as one, or begins like one. An exit code without a message
  is not an error: five greps that find nothing are a search (three of 20 hard good runs have such a
  streak).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.answers import is_error
from monitor.detectors.calls.call_detector import (
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallDetector,
    Called,
    DetectorCall,
    plain,
)
from monitor.detectors.calls.progress_rule import ProgressRule, Standstill, reported
from monitor.detectors.calls.tool_policy import ToolPolicy, error_identity
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

RECEIPT_CHARS = 200
"""A success shorter than this may be a receipt: "File updated successfully", an id, a path, with a
sentence of advice.
"""
REFUSED_SHARE = 4
"""The part of a set without a stated size that may be refused: a quarter."""
CALLS_COMPARED = 64
"""The number of different calls of a streak that are distinguished; more than any threshold."""


@dataclass(slots=True)
class _TurnAnswers:
    """The calls of one turn and what came back."""

    calls: list[int] = field(default_factory=list[int])
    open: list[int] = field(default_factory=list[int])
    hashes: list[str] = field(default_factory=list[str])
    tool: str = ""
    answers: list[str] = field(default_factory=list[str])
    """The different answers; the empty text stands for an answer that is not counted."""
    error: bool = False
    excerpt: str = ""
    length: int = 0


@dataclass(slots=True)
class _AnswerStreak:
    """Different calls with the same answer."""

    answer: str = ""
    turns: int = 0
    calls: list[str] = field(default_factory=list[str])
    """The different calls."""
    offsets: list[int] = field(default_factory=list[int])


class _CountedCalls(NamedTuple):
    """The count, the threshold, and the calls."""

    level: Level
    times: int
    threshold: int
    offsets: Sequence[int]


class NoProgress(CallDetector):
    """Finds one answer to different calls, or a number that does not become lower.

    The options are the numbers of calls that make a loop. `errors_at`: different calls with the
    same error. `results_at`: with the same long success. `short_results_at`: with the same short
    success of a tool that only reads. `stalled_suspect_at`, `stalled_at`: results of one call whose
    number does not become lower. `progress` (a `ProgressRule`) reads that number, by default what
    the tool reports. `None` switches a number's rule off.
    """

    __slots__ = (
        "_errors_at",
        "_progress",
        "_results_at",
        "_short_results_at",
        "_stalled_at",
        "_stalled_suspect_at",
        "_standstill",
        "_streak",
        "_turn",
    )
    _standstill: Standstill
    _streak: _AnswerStreak
    _turn: _TurnAnswers

    @explains_options(example="monitor.NoProgress()")
    def __init__(
        self,
        *,
        errors_at: int | None = 5,
        results_at: int | None = 5,
        short_results_at: int | None = 8,
        stalled_suspect_at: int | None = 6,
        stalled_at: int | None = 12,
        progress: Callable[[ToolResult], float | None] | None = None,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "no_progress",
    ) -> None:
        given = {"errors_at": errors_at, "results_at": results_at, "short_results_at": short_results_at}
        given |= {"stalled_suspect_at": stalled_suspect_at, "stalled_at": stalled_at}
        for option, value in given.items():
            if value is not None and not 1 < value <= CALLS_COMPARED:
                raise ConfigError(f"NoProgress({option}={value}): give 2 to {CALLS_COMPARED}, or None to switch it off")
        self._errors_at = errors_at
        self._results_at = results_at
        self._short_results_at = short_results_at
        self._stalled_suspect_at = stalled_suspect_at
        self._stalled_at = stalled_at
        if progress is not None and not callable(progress):
            raise ConfigError(f"NoProgress(progress={progress!r}): give a function of a tool result")
        self._progress: ProgressRule = progress or reported
        super().__init__(tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        progress = None if self._progress is reported else self._progress
        return {
            "errors_at": self._errors_at,
            "results_at": self._results_at,
            "short_results_at": self._short_results_at,
            "stalled_suspect_at": self._stalled_suspect_at,
            "stalled_at": self._stalled_at,
            "progress": progress,
            "tools": self._tools,
            "name": self.name,
        }

    def _called(self, call: Called) -> Sequence[Detection]:
        if call.policy.no_op:
            return NOTHING
        found: Sequence[Detection] = NOTHING
        if self._turn.answers:  # results have come since the last call, so this is the next turn
            found = self._close_turn()
        turn = self._turn
        turn.calls.append(call.index)
        turn.open.append(call.index)
        turn.hashes.append(call.xxhash)
        turn.tool = call.name
        for kept in (turn.calls, turn.open, turn.hashes):
            del kept[:-CALLS_COMPARED]
        return found

    def _answered(self, asked: DetectorCall, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        turn = self._turn
        if asked.index not in turn.open:
            return NOTHING
        turn.open.remove(asked.index)
        stalled = self._stalled(turn, asked, result)
        error = is_error(result)
        answer = self._answer(policy, result, error=error)
        if answer not in turn.answers:
            turn.answers.append(answer)
            del turn.answers[2:]  # two are enough to know that they differ
        turn.error, turn.excerpt, turn.length = error, result.text[:EXCERPT_CHARS], len(result.text)
        return stalled if turn.open else self._close_turn() or stalled

    def _stalled(self, turn: _TurnAnswers, asked: DetectorCall, result: ToolResult) -> Sequence[Detection]:
        """One call, whose number does not become lower."""
        left = self._progress(result)
        xxhash = dict(zip(turn.calls, turn.hashes, strict=True)).get(asked.index)
        if left is None or xxhash is None:
            return NOTHING
        if self._standstill.took(xxhash, left, asked.index):
            self._streak = _AnswerStreak()
        best, offsets = self._standstill.of(xxhash)
        count = len(offsets)
        level: Level
        if self._stalled_at is not None and count >= self._stalled_at:
            level, threshold = "loop", self._stalled_at
        elif self._stalled_suspect_at is not None and count == self._stalled_suspect_at:
            level, threshold = "suspect", self._stalled_suspect_at
        else:
            return NOTHING
        return (
            Detection(
                detector=self.name,
                kind="stalled",
                channel="tools",
                level=level,
                count=count,
                threshold=threshold,
                start_offset=offsets[0],
                offset=offsets[-1],
                evidence=Evidence(
                    f"{asked.name}(...) -> {left:g} left, at best {best:g}"[:EXCERPT_CHARS],
                    xxhash,
                    len(result.text),
                    tuple(offsets[-OFFSETS_SHOWN:]),
                ),
                message=f"{asked.name} was run {count} times, and what is left has not become less than {best:g}",
            ),
        )

    def _answer(self, policy: ToolPolicy, result: ToolResult, *, error: bool) -> str:
        """The identity of an answer that counts; empty for one that does not."""
        if policy.exempt:
            return ""
        if error:
            return policy.outcome_of(result) if result.is_error else error_identity(result.text)
        if policy.side_effect or policy.paginating or not (policy.idempotent or len(result.text) >= RECEIPT_CHARS):
            return ""
        return policy.outcome_of(result)

    def _threshold(self, turn: _TurnAnswers) -> int | None:
        """The different calls for a loop. A request doubles them, and adds its items."""
        allowed = self._allowed
        if turn.error:
            at, more = self._errors_at, max(allowed.items, allowed.each // REFUSED_SHARE)
        else:
            at = self._results_at if turn.length >= RECEIPT_CHARS else self._short_results_at
            more = max(allowed.items, allowed.each)
        return at and (1 + allowed.known) * at + more

    def _close_turn(self) -> Sequence[Detection]:
        turn, self._turn = self._turn, _TurnAnswers()
        return self._answered_again(turn)

    def _answered_again(self, turn: _TurnAnswers) -> Sequence[Detection]:
        """The findings for one answer to different calls."""
        answer = turn.answers[0] if len(turn.answers) == 1 else ""
        if not answer or answer != self._streak.answer:
            self._streak = _AnswerStreak(answer=answer)
        streak = self._streak
        threshold = self._threshold(turn)
        if not answer or threshold is None:
            return NOTHING
        batch = identity(" ".join(sorted(set(turn.hashes))))
        new = batch not in streak.calls
        if new:
            streak.calls = [*streak.calls, batch][-2 * CALLS_COMPARED :]
        streak.turns += 1
        streak.offsets = [*streak.offsets, turn.calls[-1]][-2 * CALLS_COMPARED :]
        if new and len(streak.calls) >= threshold:
            return (self._same(turn, len(streak.calls), threshold, "different calls"),)
        if len(streak.calls) > 1 and streak.turns >= 2 * threshold:
            return (self._same(turn, streak.turns, 2 * threshold, f"calls, {len(streak.calls)} of them different,"),)
        return NOTHING

    def _same(self, turn: _TurnAnswers, count: int, threshold: int, calls: str) -> Detection:
        what = "failed with the same error" if turn.error else "gave the same result"
        numbers = _CountedCalls("loop", count, threshold, self._streak.offsets)
        return self._detection(
            turn, numbers, self._streak.answer, f"{count} {calls} in a row {what}, the last one of {turn.tool}"
        )

    def _detection(self, turn: _TurnAnswers, numbers: _CountedCalls, xxhash: str, message: str) -> Detection:
        offsets = numbers.offsets
        excerpt = f"{turn.tool}(...) -> {turn.excerpt}"[:EXCERPT_CHARS]
        return Detection(
            detector=self.name,
            kind="same_error" if turn.error else "same_result",
            channel="tools",
            level=numbers.level,
            count=numbers.times,
            threshold=numbers.threshold,
            start_offset=offsets[0],
            offset=offsets[-1],
            evidence=Evidence(excerpt, xxhash, turn.length, tuple(offsets[-OFFSETS_SHOWN:])),
            message=message,
        )

    def _save(self) -> dict[str, Any]:
        return {
            "turn": plain(self._turn),
            "streak": plain(self._streak),
            "standstill": self._standstill.save(),
        }

    def _load(self, state: Mapping[str, Any] | None) -> None:
        self._turn = _TurnAnswers(**_copied(state["turn"])) if state else _TurnAnswers()
        self._streak = _AnswerStreak(**_copied(state["streak"])) if state else _AnswerStreak()
        self._standstill = Standstill(state.get("standstill")) if state else Standstill()


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, list) else value for name, value in data.items()}
