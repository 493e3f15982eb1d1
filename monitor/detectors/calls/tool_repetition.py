"""Finds a tool call that is repeated again and again. Failure answered: an agent that reads the
same file, or sends the same mail, until its budget is gone.

Rules:

- Calls are the same if name and canonical arguments are (`_util/hashing.py`: key order and `1` /
  `1.0` make no difference). Any other call in between starts the count anew, but not a tool that
  only thinks or waits. A rejected, unknown or invalid call counts as well.
- Parallel calls of one turn count like calls one after the other: a model that writes the same call
  five times in one response is already in its loop. The same brief for six sub-agents may be
  intended (`ToolPolicy.sampling`, guessed for a tool called `task`). That stays a suspicion up to
  four times a loop's number, while no two answers are equal.
- **Polling is not a loop**: when a result differs from the one before it, the count starts anew at
  the call that got it.
- If no results were seen, the arguments alone decide, and the message says so. They also decide if
  a call repeats its effect (`ToolPolicy.side_effect`): eight equal meetings are a loop, though each
  has its own id. Where only the name of the tool says so, an answer in other words is progress.
- A call that fails, is repeated unchanged and fails again makes no progress, even if the errors
  differ (OpenHands counts alike). Polled tools are exempt.
- The third call is a suspicion (most runs recover by themselves), the fifth a loop (they do not).
  Every further call is a loop again, so that a policy sees whether its warning helped.
- A wait between the calls that is twice as long as each one before it allows one call more: a run
  that backs off comes to an end by itself.
- What the user asks for is tolerated: "20 times", "until it answers" (`request`). This number is
  added to the number for a loop.
- The same call delivered twice (same id, same turn) counts once; calls of a retried stream are
  taken back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.front import (
    CALLS_KEPT,
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallAnswer,
    CallIdentity,
    CallRule,
    SeenCall,
)
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

_WORD = re.compile(r"\w+")
BACK_OFF = 2
"""How many times as long as the longest wait a longer one is."""
SAMPLING_TIMES = 4
"""While no two answers are equal, a tool with `ToolPolicy.sampling` needs this many times the
number for a loop.
"""


@dataclass(slots=True)
class _CallStreak:
    """Identical calls in a row, as far as results did not change."""

    key: CallIdentity = field(default_factory=CallIdentity)
    count: int = 0
    start: int = 0
    """Index of the first call that counts."""
    indices: list[int] = field(default_factory=list[int])
    """The calls that count, the newest ones."""
    answered: int = 0
    """Results seen of the calls that count."""
    result: str = ""
    """Identity of the last result seen."""
    failed: bool = False
    """Whether the last result was an error."""
    differed: bool = False
    """Whether the results of the counted calls were not all equal."""
    waited: float = 0.0
    """The longest wait between the calls, in the unit of its tool."""
    longer_waits: int = 0
    """The number of times that a wait between the calls was twice as long as each wait before it.
    """

    def add(self, index: int) -> None:
        self.count += 1
        self.indices.append(index)
        del self.indices[:-CALLS_KEPT]

    def wait(self, arguments: Any) -> None:
        """A call that only waits came between. `arguments`: a number among them says how long."""
        values = arguments.values() if isinstance(arguments, dict) else ()
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) == 1 and numbers[0] >= BACK_OFF * self.waited:
            self.longer_waits += self.waited > 0
            self.waited = float(numbers[0])

    def restart_at(self, index: int) -> None:
        """Only the calls from `index` on still count."""
        self.indices = [known for known in self.indices if known >= index]
        self.count, self.start, self.answered, self.differed = len(self.indices), index, 0, False


@dataclass(slots=True)
class _Streaks:
    """The state of `ToolCallRepetition`."""

    calls: _CallStreak = field(default_factory=_CallStreak)
    idle: _CallStreak = field(default_factory=_CallStreak)
    """The streak of calls of tools that only think or wait."""


class ToolCallRepetition(CallRule[_Streaks]):
    """Identical consecutive tool calls: a suspicion at `suspect_at`, a loop at `loop_at` and at
    each one after it.

    `tools`: what is special about a tool, by its name. `exempt`: short for tools that are never
    reported.
    """

    __slots__ = ("_loop_at", "_suspect_at")

    @explains_options(example="monitor.ToolCallRepetition(loop_at=5)")
    def __init__(
        self,
        *,
        suspect_at: int | None = 3,
        loop_at: int = 5,
        tools: Mapping[str, ToolPolicy] | None = None,
        exempt: Sequence[str] = (),
        name: str = "tool_call_repetition",
    ) -> None:
        if loop_at <= 1:
            raise ConfigError(f"ToolCallRepetition(loop_at={loop_at}): one call repeats nothing; give 2 or more")
        if suspect_at is not None and not 1 < suspect_at <= loop_at:
            raise ConfigError(
                f"ToolCallRepetition(suspect_at={suspect_at}): give 2 to loop_at ({loop_at}), or None for no suspicion"
            )
        if isinstance(exempt, str):
            raise ConfigError(f"ToolCallRepetition(exempt={exempt!r}): give a sequence of tool names")
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        if exempt:
            tools = {**(tools or {}), **dict.fromkeys(exempt, ToolPolicy(exempt=True))}
        super().__init__(_Streaks, tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again. `exempt` stands among the `tools`."""
        return {"suspect_at": self._suspect_at, "loop_at": self._loop_at, "tools": self.tools, "name": self.name}

    def called(self, call: SeenCall) -> Sequence[Detection]:
        streaks = self._state
        if call.policy.no_op:
            streak = streaks.idle = _continued(streaks.idle, call)
            streaks.calls.wait(call.arguments)
        else:
            streak = streaks.calls = _continued(streaks.calls, call)
            streaks.idle = _CallStreak()
        if call.exempt:
            return NOTHING
        suspect_at, loop_at = self._thresholds(call, streak)
        if streak.count >= loop_at * (SAMPLING_TIMES if call.policy.sampling and streak.answered <= 1 else 1):
            return (self._detection(call, streak, "loop", loop_at),)
        if suspect_at is not None and streak.count == suspect_at:
            return (self._detection(call, streak, "suspect", suspect_at),)
        return NOTHING

    def _thresholds(self, call: SeenCall, streak: _CallStreak) -> tuple[int | None, int]:
        """The thresholds for a suspicion and a loop: the tool's own, else the detector's. No
        suspicion comes after the loop.
        """
        policy, allowed = call.policy, self.allowed.repetitions(without_arguments=not call.arguments)
        allowed += streak.longer_waits
        loop_at = policy.loop_at or max(self._loop_at, policy.suspect_at or 0)
        suspect_at = policy.suspect_at or (self._suspect_at and min(self._suspect_at, loop_at))
        return suspect_at and suspect_at + allowed, loop_at + allowed

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        policy, result, index = answer.policy, answer.result, answer.call.index
        streak = self._state.idle if policy.no_op else self._state.calls
        if index < streak.start or index not in streak.indices:
            return NOTHING
        guessed = policy.side_effect and answer.call.name not in self.tools
        outcome = _words(result) if guessed else answer.outcome
        if streak.result and outcome != streak.result:
            failed_again = streak.failed and result.is_error and not policy.polling
            streak.differed = True
            if not failed_again and (guessed or not policy.side_effect):
                streak.restart_at(index)
        streak.result, streak.failed = outcome, result.is_error
        streak.answered += 1
        return NOTHING

    def _detection(self, call: SeenCall, streak: _CallStreak, level: Level, threshold: int) -> Detection:
        about = _about_results(streak, call.policy)
        return Detection(
            detector=self.name,
            kind="identical_calls",
            channel="tools",
            level=level,
            count=streak.count,
            threshold=threshold,
            start_offset=streak.start,
            offset=call.index,
            evidence=Evidence(
                call.key.text[:EXCERPT_CHARS],
                call.key.xxhash,
                call.arguments_length,
                tuple(streak.indices[-OFFSETS_SHOWN:]),
            ),
            message=f"{call.name} was called {streak.count} times in a row with the same arguments{about}",
        )


def _words(result: ToolResult) -> str:
    """The identity of the words of a result, without its numbers and ids."""
    return identity(" ".join(word for word in _WORD.findall(result.text) if not any(map(str.isdigit, word))))


def _continued(streak: _CallStreak, call: SeenCall) -> _CallStreak:
    if call.key != streak.key or call.exempt:
        streak = _CallStreak(key=call.key, start=call.index)
    streak.add(call.index)
    return streak


def _about_results(streak: _CallStreak, policy: ToolPolicy) -> str:
    if policy.side_effect:
        return "; each call does it again, whatever it answers"
    if streak.answered == 0:
        return "; no results were seen, the arguments alone decide"
    if streak.answered < streak.count - 1:
        same = "all errors" if streak.differed else "the same"
        return f"; the results seen ({streak.answered} of {streak.count}) were {same}"
    if streak.differed:
        return " and failed each time"
    return " and gave the same result each time"
