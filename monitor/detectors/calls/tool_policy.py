"""The rules for a tool that is called again: the difference between polling a build and booking
eight meetings. Failure answered: with one rule for all tools, a waiting agent is stopped, and an
agent that sends the same mail eight times is not.

Rules:

- Without a policy, a tool is guessed from its name (`guess`) or from its arguments (`action_of`),
  and from nothing else. A combined tool has an `action` (`message` with `action="send"`); a command
  that sleeps waits. A wrong guess is corrected by one entry of `tools=`.
- A tool that asks for a status or for progress is called again on purpose, and may be called more
  often (`WAITS`).
- A result is compared as it is, without the fields that a policy calls `volatile`. The id of its
  own call is removed too, because the path of a saved result contains it. What moves by itself in a
  result is learnt in the run (`LearnedEvidence`).
- In a result that is marked as an error, dates, durations, ids and attempts are not compared.
- A veto of the monitor (`ToolResult.vetoed`) is not a result: it must not look like progress. Only
  the field marks a veto, never the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from monitor._util.explained_options import explained
from monitor._util.hashing import canonical_json, identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.allowance import FilteredPattern
from monitor.errors import ConfigError

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PARTS = re.compile(r"\.|__|/|:")
ONLY_LOOKS = frozenset(
    (  # noqa: SIM905
        "check count describe fetch find get glob grep info list lookup ls query read retrieve search show status view"
    ).split()
)
"""Verbs of tools that change nothing. As the first word they decide; anywhere else (`post_search`)
they only exclude an effect.
"""
REPEATS_ITS_EFFECT = frozenset("add append book create forward insert pay post publish reply send".split())  # noqa: SIM905
"""First words of tools that repeat their effect with each call (one recorded run booked eight equal
meetings, each with its own id).
"""
SENDS = frozenset({"reply", "send"})
"""Last words with the same meaning (`sessions_send`). Other verbs in this place are nouns
(`blog_post`, `address_book`).
"""
TYPES = frozenset({"input", "key", "keys", "keystroke", "keystrokes"})
"""Words of tools that press keys (`send_keys`): the result is a screen, and a new screen is
progress.
"""
ASKS_HOW_FAR = frozenset({"progress", "status"})
"""Words of tools that only read and are called again on purpose (`get_job_status`). `git_status` is
an exception.
"""
DELEGATES = frozenset({"agent", "delegate", "subagent", "task"})
"""Whole names of tools that give a task to another agent."""
DOES_NOTHING = frozenset({"noop", "reflect", "sequentialthinking", "sleep", "think", "thought", "wait"})
"""Whole names of tools that a model calls to think or to wait (tau-bench, OpenHands, the MCP server
for thinking).
"""
ID_CHARS = 6
"""Shorter ids (`1`, `c2`) are not removed from results, because other text may contain the same
characters.
"""
ACTION_CHARS = 64
"""A longer `action` is a text and not the name of an action."""
COMMAND_CHARS = 1_000
"""A longer command is a program, and does more than wait."""
_SLEEPS = FilteredPattern(re.compile(r"\bsleep[\s(]+\d", re.IGNORECASE), ("sleep",))
"""A command that waits by itself: `sleep 30 && kubectl get pods` or `time.sleep(30)`."""
READ_CHARS = 32_768
"""How much of a result is read for parts that change by themselves."""
_PROCESS = FilteredPattern(re.compile(r"\bp(?:g?id)\b[ =:#]{0,3}\d{1,9}", re.IGNORECASE), ("pid", "pgid"))
"""The number of a process: Gemini CLI prints one behind each command."""
_CHANGES_BY_ITSELF = FilteredPattern(
    re.compile(
        r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?)?|\b\d\d:\d\d:\d\d\b"  # dates and times
        r"|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b"  # ids and addresses
        r"|\b\d+(\.\d+)? ?(ms|s|sec|seconds)\b|\b(attempt|pid|retry)[ =:#]*\d+",  # durations and counters
        re.IGNORECASE,
    ),
    (
        *("0000-00-00", "00:00:00", "0x", "0s", "0 s", "0ms", "0 ms", "attempt", "pid", "retry"),
        "-",  # of a UUID
    ),
)
"""The parts of an error that change by themselves; OpenClaw removes the same ones."""
GUESSES_KEPT = 256
"""The number of guesses that are cached; a model may invent any number of names."""

NO_POLICIES: Mapping[str, ToolPolicy] = {}


@explained(example="monitor.ToolPolicy(polling=True, loop_at=20)")
@dataclass(slots=True, frozen=True, kw_only=True)
class ToolPolicy:
    """How repetition of one tool is judged. By default a changed result is progress, and an
    unchanged one is not.
    """

    exempt: bool = False
    """Never reported. It still stands between the calls of other tools."""
    idempotent: bool = False
    """The tool only reads: its call does not interrupt a cycle of other calls."""
    polling: bool = False
    """Called again on purpose: a cycle with it needs `loop_at` rounds, not three. A changed result
    or error is progress.
    """
    side_effect: bool = False
    """Each call repeats an effect: equal arguments are a repetition even if the results differ (a
    new id each time).
    """
    paginating: bool = False
    """Steps through pages: equal answers to new arguments (empty pages) are no evidence."""
    sampling: bool = False
    """Called several times at once on purpose (one brief for six sub-agents). As long as no two
    answers are equal, a loop takes four times as many calls.
    """
    no_op: bool = False
    """Thinks or waits: its calls are ignored, so they neither end a repetition nor hide a cycle.
    """
    suspect_at: int | None = None
    """Identical calls for a suspicion; `None`: as the detector says."""
    loop_at: int | None = None
    """Identical calls for a loop; `None`: as the detector says."""
    loop_key: Callable[[Any], object] | None = None
    """A function of the arguments: calls with equal values are the same. A value of `None` exempts
    the call."""
    volatile: tuple[str, ...] = ()
    """Fields of the result that change by themselves (`pid`, `duration`, `request_id`), as JSON
    keys, or in text as `name: value` or as a number that follows (`pid 1024`).
    """

    def __post_init__(self) -> None:
        volatile: object = self.volatile  # a string is a sequence of strings, and easily given
        if isinstance(volatile, str):
            raise ConfigError(f"ToolPolicy(volatile={self.volatile!r}): give a tuple of field names")
        if self.polling and self.side_effect:
            raise ConfigError(
                "ToolPolicy(polling=True, side_effect=True): a changed result cannot both be progress and not matter"
            )
        for name, value in (("suspect_at", self.suspect_at), ("loop_at", self.loop_at)):
            if value is not None and value < 2:  # noqa: PLR2004 - one call repeats nothing
                raise ConfigError(f"ToolPolicy({name}={value}): one call repeats nothing; give 2 or more")
        if self.suspect_at is not None and self.loop_at is not None and self.suspect_at > self.loop_at:
            raise ConfigError(f"ToolPolicy(suspect_at={self.suspect_at}): give at most loop_at ({self.loop_at})")

    def key_of(self, arguments: object) -> str | None:
        """The arguments in the form that is compared; `None`: this call is exempt. A key function
        that fails is not used.
        """
        if self.exempt:
            return None
        if self.loop_key is None:
            return canonical_json(arguments)
        try:
            key = self.loop_key(arguments)
        except Exception:  # noqa: BLE001 - the caller's function, and the model's arguments, which may be anything
            return canonical_json(arguments)
        return None if key is None else canonical_json(key)

    def outcome_of(self, result: ToolResult) -> str:
        """The identity of the result, without volatile fields and numbers of processes. An error
        has no other parts either that change by themselves.
        """
        said = self.said(result)
        if result.is_error:
            return error_identity(said)
        return identity(f"answer:{_PROCESS.replaced(said[:READ_CHARS])}{said[READ_CHARS:]}")

    def said(self, result: ToolResult) -> str:
        """The text without the policy's volatile fields, and without the id of its own call."""
        text = _without(result.text, self.volatile) if self.volatile else result.text
        return text.replace(result.id, "") if len(result.id) >= ID_CHARS else text


def error_identity(text: str) -> str:
    """The identity of an error, without the parts that change by themselves. Of a long
    one, only the beginning is read for them.
    """
    return identity(f"error:{_CHANGES_BY_ITSELF.replaced(text[:READ_CHARS])}{text[READ_CHARS:]}")


WAITS = ToolPolicy(polling=True, suspect_at=10, loop_at=20)
"""The policy of tools that wait: unchanged answers are accepted for longer (the numbers are
OpenClaw's).
"""
_NOTHING_KNOWN = ToolPolicy()


@lru_cache(maxsize=GUESSES_KEPT)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a tool's name, without the name of its server or class; one empty word if there
    are none.
    """
    return tuple(word.lower() for word in _WORD.findall(_PARTS.split(name)[-1])) or ("",)


@lru_cache(maxsize=GUESSES_KEPT)
def guess(name: str) -> ToolPolicy:
    """The policy that the name of a tool suggests."""
    words = words_of(name)
    first, last, whole = words[0], words[-1], "".join(words)
    if whole in DOES_NOTHING:
        return ToolPolicy(no_op=True)
    if whole in DELEGATES:
        return ToolPolicy(sampling=True)
    if (first == "poll" and last not in REPEATS_ITS_EFFECT) or (len(words) > 1 and last == "wait"):
        return WAITS
    if first in ONLY_LOOKS:
        waits = not ASKS_HOW_FAR.isdisjoint(words[1:]) and "git" not in words
        return WAITS if waits else ToolPolicy(idempotent=True)
    if (first in REPEATS_ITS_EFFECT or last in SENDS) and (ONLY_LOOKS | TYPES).isdisjoint(words):
        return ToolPolicy(side_effect=True)
    return _NOTHING_KNOWN


def checked(tools: Mapping[str, ToolPolicy] | None) -> Mapping[str, ToolPolicy]:
    """The caller's policies by tool. Raises `ConfigError` for a value that is not a
    `ToolPolicy`.
    """
    for name, policy in (tools or {}).items():
        if not isinstance(policy, ToolPolicy):
            raise ConfigError(f"tools[{name!r}] takes a ToolPolicy, not {policy!r}")
    return dict(tools) if tools else NO_POLICIES


def policy_of(name: str, given: Mapping[str, ToolPolicy], action: str = "") -> ToolPolicy:
    """The caller's policy for the tool, else the policy of its action, else the policy guessed from
    its name. A tool that only thinks or waits has no action.
    """
    said = given.get(name) or guess(name)
    if name in given or said.no_op or not action:
        return said
    guessed = guess(action)
    return said if guessed == _NOTHING_KNOWN else guessed


def action_of(arguments: object) -> str:
    """The action of a call by its arguments: the `action` of a combined tool, or `poll` for a
    command that sleeps. Empty: none.
    """
    if not isinstance(arguments, Mapping):
        return ""
    action = arguments.get("action")
    if isinstance(action, str) and len(action) <= ACTION_CHARS:
        return action
    return "poll" if any(map(_sleeps, arguments.values())) else ""


def _sleeps(value: object) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, str) and _sleeps(item) for item in value)
    if not isinstance(value, str) or len(value) > COMMAND_CHARS:
        return False
    return _SLEEPS.is_in(value)


def _without(text: str, fields: tuple[str, ...]) -> str:
    try:
        return canonical_json(_strip(json.loads(text), fields.__contains__))
    except (ValueError, RecursionError):
        names = "|".join(map(re.escape, fields))
        return re.sub(rf"\b({names})(\"?\s*[:=]\s*(\"[^\"]*\"|[^\s,;]+)|\s+(?=\S*\d)[^\s,;)]+)", r"\1", text)


def _strip(value: Any, volatile: Callable[[str], bool]) -> Any:
    if isinstance(value, dict):
        return {key: _strip(item, volatile) for key, item in value.items() if not volatile(key)}
    return [_strip(item, volatile) for item in value] if isinstance(value, list) else value


# --------------------------------------------------------------------------------------------------
# Progress as a number that is to be lowered: failing tests, open items, lines to translate.
#
# Rules of `NoProgress`, which counts with it:
#
# - a number that is lower than all before it of the same call is progress, and everything that was
#   counted is forgotten;
# - the same call whose number has not become lower for a while stands still, whatever happened
#   between: edits, other calls, other answers. Six results are a suspicion, twelve a loop;
# - 0 is the goal: nothing is left, so nothing stands still;
# - each call has a number of its own: one test file and the whole suite are not compared.

CALLS_COMPARED = 16
"""The newest calls whose numbers are remembered."""
OFFSETS_KEPT = 64
"""More than any threshold: thresholds are at most this."""


class ProgressRule(Protocol):
    """Reads a number that is to be lowered out of a tool's result."""

    def __call__(self, result: ToolResult, /) -> float | None:
        """How much is left, 0 when nothing is. `None`: the result says nothing about it."""
        ...


def reported(result: ToolResult) -> float | None:
    """The number that the tool itself reports."""
    return result.progress


@dataclass(slots=True)
class Standstill:
    """The lowest number of each call, and the results since."""

    calls: dict[str, tuple[float, tuple[int, ...]]] = field(default_factory=dict[str, tuple[float, tuple[int, ...]]])

    def took(self, xxhash: str, left: float, offset: int) -> None:
        """The call `xxhash` with the index `offset` was answered."""
        if not math.isfinite(left):
            return
        best, offsets = self.calls.pop(xxhash, (math.inf, ()))
        if left < best or left <= 0:
            self.calls = {other: (lowest, ()) for other, (lowest, _) in self.calls.items()}
            offsets = ()
        else:
            offsets = (*offsets, offset)[-OFFSETS_KEPT:]
        self.calls[xxhash] = min(best, left), offsets
        if len(self.calls) > CALLS_COMPARED:
            del self.calls[next(iter(self.calls))]

    def of(self, xxhash: str) -> tuple[float, tuple[int, ...]]:
        """The lowest number of a call, and the indices of its results since that are not lower."""
        return self.calls.get(xxhash, (math.inf, ()))
