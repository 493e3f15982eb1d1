"""Two detectors of one failure again and again. Failure answered: a model asks in ever other words
for a thing that is not there. Or it calls a tool that does not exist ("X is not a valid tool", nine
times). It varies the arguments, and may make real calls in between.

Rules:

- Each tool is counted separately, and calls of other tools in between do not matter. Another error
  of the tool begins the count anew, and an answer that is no error ends it.
- An error is compared without the parts that change by themselves, and without the values that the
  call itself has given: `no file "a"` and `no file "b"` are one error.
- Equal calls are left to `ToolCallRepetition`. Tools that are polled are exempt.
- Siblings are one mistake: seven calls of one turn count once, because the model has not read the
  first answer yet.
- The third call is a suspicion and the fifth a loop: in 664 recorded good runs no tool gave the
  same error to five different calls. Items that the request names ("each of the 14 files") are
  added to both numbers.
- `UnknownTool` counts the calls of a tool that is not in `known`. Without `known`, it counts calls
  whose answer begins with a phrase of a framework that says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.detectors.calls.answers import is_error
from monitor.detectors.calls.front import (
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallAnswer,
    CallRule,
    SeenCall,
    UnansweredCall,
    remember,
)
from monitor.detectors.calls.tool_policy import ToolPolicy, error_identity
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

NAMES_KEPT = 32
"""The number of tools, and of calls without a result, that are kept, the newest ones."""
PARTS_READ = 256
"""How many parts of the arguments are looked at."""
VALUES_KEPT = 16
"""The number of values of a call that are looked for in its error, the longest ones."""
LEAST_CHARS = 3
"""Shorter values are not looked for in an error: other text may contain the same characters."""
LEAST_NUMBER, MOST_NUMBER = 100, 10**18
"""Numbers of as many digits, and no longer than an id has."""
ERROR_CHARS = 2_000
"""How much of an error is compared."""
PHRASE_CHARS = 160
"""The refusal stands within this beginning of the answer, before the list of existing tools."""
_UNKNOWN = re.compile(
    r"\b(unknown|invalid|no such|unavailable|nonexistent|unrecognized) (tool|function)\b"
    r"|\b(tool|function)\b.{0,100}?\b(not found|does(n't| not) exist|is(n't| not) (a"
    r" valid|available|defined|registered|known))"
    r"|\bis(n't| not) an? (valid|known|available|registered) (tool|function)\b",
    re.IGNORECASE | re.DOTALL,
)
"""LangChain, pydantic-ai, OpenAI Agents, Gemini CLI, Claude Code, opencode, MCP, AutoGen."""


@dataclass(slots=True)
class _Failures:
    """Calls of one tool that failed in one way."""

    error: str = ""
    """The identity of the error."""
    key: str = ""
    """The hash of the newest of them."""

    count: int = 0
    start: int = 0
    batch: int = -1
    """The batch of the last call that was counted."""
    offsets: list[int] = field(default_factory=list[int])

    def add(self, index: int, batch: int) -> None:
        self.start = self.start if self.count else index
        self.count += 1
        self.batch = batch
        self.offsets = [*self.offsets, index][-OFFSETS_SHOWN:]


@dataclass(slots=True)
class _Failing:
    """The state of both detectors."""

    tools: dict[str, _Failures] = field(default_factory=dict[str, _Failures])
    open: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict[str, tuple[str, tuple[str, ...]]])
    """Of each call without a result, by its index: its hash, and the values that it gives."""


class RepeatedError(CallRule[_Failing]):
    """One tool that gives the same error to different calls, `suspect_at` times (a suspicion) or
    `loop_at` (a loop, like each further call).
    """

    __slots__ = ("_loop_at", "_suspect_at")

    kind = "same_error"
    said = "gave the same error to {count} calls with other arguments each time"

    @explains_options(example="monitor.detectors.RepeatedError(loop_at=5)")
    def __init__(
        self,
        *,
        suspect_at: int | None = 3,
        loop_at: int = 5,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "repeated_error",
    ) -> None:
        if loop_at <= 1:
            raise ConfigError(f"{type(self).__name__}(loop_at={loop_at}): one call repeats nothing; give 2 or more")
        if suspect_at is not None and not 1 < suspect_at <= loop_at:
            raise ConfigError(
                f"{type(self).__name__}(suspect_at={suspect_at}): give 2 to loop_at ({loop_at}), or None for no"
                " suspicion"
            )
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        super().__init__(_Failing, tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {"suspect_at": self._suspect_at, "loop_at": self._loop_at, "tools": self.tools, "name": self.name}

    @property
    def steps_left(self) -> int:
        """The fewest further calls after which there may be a loop."""
        most = max((failures.count for failures in self._state.tools.values()), default=0)
        return max(0, self._loop_at - most)

    def called(self, call: SeenCall) -> Sequence[Detection]:
        if not (call.exempt or call.policy.polling or call.policy.no_op):
            values = tuple(sorted(_values(call.arguments), key=len, reverse=True)[:VALUES_KEPT])
            remember(self._state.open, str(call.index), (call.key.xxhash, values), NAMES_KEPT)
        return NOTHING

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        call, result = answer.call, answer.result
        key, values = self._state.open.pop(str(call.index), ("", ()))
        if not key:
            return NOTHING
        if not is_error(result):
            self._state.tools.pop(call.name, None)
            return NOTHING
        text = result.text[:ERROR_CHARS]
        for value in values:
            text = text.replace(value, "*")
        error, failures = error_identity(text), self._state.tools.get(call.name)
        if failures is None or failures.error != error:
            failures = self._state.tools[call.name] = _Failures(error=error)
        elif failures.key == key:
            return NOTHING
        failures.key = key
        allowed = max(self.allowed.repetitions(without_arguments=True), self.allowed.each)
        return self._failed(call.index, call.batch, call.name, f"{call.name}(...) -> {result.text}", allowed)

    def vetoed(self, call: UnansweredCall) -> Sequence[Detection]:
        self._state.open.pop(str(call.index), None)
        return NOTHING

    def _failed(self, index: int, batch: int, tool: str, shown: str, allowed: int = 0) -> Sequence[Detection]:
        failures = self._state.tools.get(tool) or _Failures()
        if failures.batch == batch:
            return NOTHING
        failures.add(index, batch)
        remember(self._state.tools, tool, failures, NAMES_KEPT)
        if failures.count >= self._loop_at + allowed:
            return (self._detection(failures, tool, shown, "loop", self._loop_at + allowed),)
        if self._suspect_at is not None and failures.count == self._suspect_at + allowed:
            return (self._detection(failures, tool, shown, "suspect", self._suspect_at + allowed),)
        return NOTHING

    def _detection(self, failures: _Failures, tool: str, shown: str, level: Level, threshold: int) -> Detection:
        return Detection(
            detector=self.name,
            kind=self.kind,
            channel="tools",
            level=level,
            count=failures.count,
            threshold=threshold,
            start_offset=failures.start,
            offset=failures.offsets[-1],
            evidence=Evidence(
                shown[:EXCERPT_CHARS], identity(f"{tool}{failures.error}"), len(shown), tuple(failures.offsets)
            ),
            message=f"{tool} {self.said.format(count=failures.count)}",
        )


def _values(arguments: object) -> Iterator[str]:
    """The values of the arguments, as an error may repeat them."""
    waiting = [arguments]
    for _ in range(PARTS_READ):  # arguments may hold themselves
        match waiting.pop() if waiting else None:
            case str() as text if LEAST_CHARS <= len(text) <= ERROR_CHARS:
                yield text
            case dict() as inside:
                waiting += inside.values()
            case list() as inside:
                waiting += inside
            case int() | float() as number if LEAST_NUMBER <= number < MOST_NUMBER:
                yield str(number)
            case _:
                pass


class UnknownTool(RepeatedError):
    """One invented tool, called `suspect_at` times (a suspicion) or `loop_at` (a loop, like each
    further call). `known`: the tools that there are.
    """

    __slots__ = ("_known",)

    kind = "unknown_tool"
    said = "was called {count} times, and there is no such tool"

    @explains_options(example="monitor.detectors.UnknownTool(loop_at=5)")
    def __init__(
        self,
        *,
        suspect_at: int | None = 3,
        loop_at: int = 5,
        known: Collection[str] | None = None,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "unknown_tool",
    ) -> None:
        if isinstance(known, str):
            raise ConfigError(f"UnknownTool(known={known!r}): give a collection of tool names")
        self._known = None if known is None else frozenset(known)
        super().__init__(suspect_at=suspect_at, loop_at=loop_at, tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {**super().options(), "known": self._known}

    def called(self, call: SeenCall) -> Sequence[Detection]:
        if self._known is None or call.exempt or call.name in self._known:
            return NOTHING
        return self._failed(call.index, call.batch, call.name, call.key.text)

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        asked, result = answer.call, answer.result
        if self._known is not None or answer.policy.exempt:
            return NOTHING
        if _UNKNOWN.search(result.text[:PHRASE_CHARS]):
            return self._failed(asked.index, asked.batch, asked.name, f"{asked.name}(...) -> {result.text}")
        self._state.tools.pop(asked.name, None)
        return NOTHING
