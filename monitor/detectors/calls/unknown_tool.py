"""A detector of an invented tool that is called again and again, with any arguments. Failure
answered: a model calls a tool that does not exist ("X is not a valid tool", nine times). It varies
the arguments, and makes real calls in between.

Rules:

- If `known` is given, a tool is unknown if `known` does not contain its name. Otherwise, a tool is
  unknown if its answer begins with a phrase by which frameworks say so.
- Each name is counted separately, and other calls in between do not matter. Any other answer ends
  the count, because the tool exists.
- Siblings are one mistake: seven calls of one turn count once, because the model has not read the
  first answer yet.
- The third call is a suspicion and the fifth a loop, as for identical calls: a name that failed
  four times was not mistyped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.detectors.calls.front import EXCERPT_CHARS, OFFSETS_SHOWN, Answer, Called, CallRule, remember
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

NAMES_KEPT = 32
"""The number of invented names that are counted at a time, the newest ones."""
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
    """Calls of one invented tool."""

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
class _Invented:
    """The state of `UnknownTool`."""

    tools: dict[str, _Failures] = field(default_factory=dict[str, _Failures])


class UnknownTool(CallRule[_Invented]):
    """One invented tool, called `suspect_at` times (a suspicion) or `loop_at` (a loop, like each
    further call).
    """

    __slots__ = ("_known", "_loop_at", "_suspect_at")

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
        if loop_at <= 1:
            raise ConfigError(f"UnknownTool(loop_at={loop_at}): one call repeats nothing; give 2 or more")
        if suspect_at is not None and not 1 < suspect_at <= loop_at:
            raise ConfigError(
                f"UnknownTool(suspect_at={suspect_at}): give 2 to loop_at ({loop_at}), or None for no suspicion"
            )
        if isinstance(known, str):
            raise ConfigError(f"UnknownTool(known={known!r}): give a collection of tool names")
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        self._known = None if known is None else frozenset(known)
        super().__init__(_Invented, tools=tools, name=name)

    def called(self, call: Called) -> Sequence[Detection]:
        if self._known is None or call.exempt or call.name in self._known:
            return NOTHING
        return self._failed(call.index, call.batch, call.name, call.key.text)

    def answered(self, answer: Answer) -> Sequence[Detection]:
        asked, result = answer.call, answer.result
        if self._known is not None or answer.policy.exempt:
            return NOTHING
        if _UNKNOWN.search(result.text[:PHRASE_CHARS]):
            return self._failed(asked.index, asked.batch, asked.name, f"{asked.name}(...) -> {result.text}")
        self._state.tools.pop(asked.name, None)
        return NOTHING

    def _failed(self, index: int, batch: int, tool: str, shown: str) -> Sequence[Detection]:
        failures = self._state.tools.get(tool) or _Failures()
        if failures.batch == batch:
            return NOTHING
        failures.add(index, batch)
        remember(self._state.tools, tool, failures, NAMES_KEPT)
        if failures.count >= self._loop_at:
            return (self._detection(failures, tool, shown, "loop", self._loop_at),)
        if self._suspect_at is not None and failures.count == self._suspect_at:
            return (self._detection(failures, tool, shown, "suspect", self._suspect_at),)
        return NOTHING

    def _detection(self, failures: _Failures, tool: str, shown: str, level: Level, threshold: int) -> Detection:
        return Detection(
            detector=self.name,
            kind="unknown_tool",
            channel="tools",
            level=level,
            count=failures.count,
            threshold=threshold,
            start_offset=failures.start,
            offset=failures.offsets[-1],
            evidence=Evidence(shown[:EXCERPT_CHARS], identity(tool), len(shown), tuple(failures.offsets)),
            message=f"{tool} was called {failures.count} times, and there is no such tool",
        )
