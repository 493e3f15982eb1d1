"""What a tool does when it is called again: the difference between polling a build and booking eight meetings. Failure answered:
one rule for all tools, which stops who waits and lets pass who sends the same mail for the eighth time.

Rules:

- what is not said of a tool is guessed from its name by three short lists (`guess`), and from nothing else; a wrong guess is
  corrected by one entry of `tools=`;
- who waits is patient: what asks for a status or progress by name, and a command that sleeps, may be asked twenty times in vain
  (`WAITS`), and is a suspicion at five;
- a result is compared without what changes by itself: the fields a policy calls `volatile`, and in what says that something failed the
  times before its lines and the durations. (Ten failing test runs differ in nothing else. What did not fail may be a measurement.);
- a refusal of our own (`VETO`) is no result at all: it must not look like news.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from monitor._hashing import canonical_json, identity
from monitor.chunks import ToolResult
from monitor.errors import ConfigError
from monitor.verdicts import VETO

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LAST_PART = re.compile(r"(?:.*(?:\.|__|/|:))?(.*)", re.DOTALL)
ONLY_LOOKS = frozenset(
    "check count describe fetch find get glob grep info list lookup ls query read retrieve search show status view".split()  # noqa: SIM905
)
"""Verbs of tools that change nothing. As a first word they say so; anywhere else (`post_search`) they speak against an effect."""
REPEATS_ITS_EFFECT = frozenset("add append book create forward insert pay post publish reply send".split())  # noqa: SIM905
"""First words of tools that do it again when asked again (data.md 3.1: eight equal meetings, each with an id of its own)."""
TYPES = frozenset({"input", "key", "keys", "keystroke", "keystrokes"})
"""Words of tools that press keys: what comes back is a screen, and a new one is progress (`send_keys`)."""
ASKS_HOW_FAR = frozenset("poll progress status".split())  # noqa: SIM905
"""Words by which a tool that only looks says that it is asked again on purpose (`get_job_status`), but for `git_status`."""
DOES_NOTHING = frozenset({"noop", "reflect", "sequentialthinking", "sleep", "think", "thought", "wait"})
"""Whole names of tools that a model calls to think or to wait (tau-bench, OpenHands, the MCP server for thinking)."""


SLEEPS = re.compile(r"\bsleep[\s(]+\d", re.IGNORECASE)
"""In the arguments of a call: a command that waits by itself, `sleep 30 && kubectl get pods` or `time.sleep(30)`."""
_FAILED = re.compile(r"\b(fail(s|ed|ing|ure|ures)?|errors?|\w+(Error|Exception)|panic(ked)?|traceback)\b", re.IGNORECASE)
_TIMING = re.compile(
    r"^\W{0,2}\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?(?= *\S)"  # what a log writes before its lines
    r"|\b\d+\.\d+ ?(s|sec|secs|seconds|ms)\b|\b\d+ ?ms\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Whole seconds stay: what is left of a wait is counted in them."""
GUESSES_KEPT = 256
"""A model may invent names without end."""

NO_POLICIES: Mapping[str, ToolPolicy] = MappingProxyType({})


@dataclass(slots=True, frozen=True, kw_only=True)
class ToolPolicy:
    """How repetition of one tool is judged. By default a changed result is progress, and an unchanged one is not."""

    exempt: bool = False
    """Never reported. It still stands between the calls of other tools."""
    idempotent: bool = False
    """It only looks: the same short answer again and again says that nothing is learned, and is not a receipt."""
    polling: bool = False
    """Asked again on purpose: a cycle through it needs `loop_at` rounds, not three; a changed result stays progress."""
    side_effect: bool = False
    """Each call does it again: equal arguments are a repetition even if the results differ (a new id each time)."""
    paginating: bool = False
    """Steps through pages: equal successful answers under new arguments (empty pages) are not held against it."""
    no_op: bool = False
    """Thinks or waits: stands between nothing, so it neither ends a repetition nor hides a cycle."""
    suspect_at: int | None = None
    """Identical calls for a suspicion; `None`: as the detector says."""
    loop_at: int | None = None
    """Identical calls for a loop; `None`: as the detector says."""
    loop_key: Callable[[Any], object] | None = None
    """From the arguments, what makes two calls the same; it answering `None` exempts that call."""
    volatile: tuple[str, ...] = ()
    """Fields of the result that change by themselves (`pid`, `duration`, `request_id`), as JSON keys or as `name: value` in text."""

    def __post_init__(self) -> None:
        volatile: object = self.volatile  # a string is a sequence of strings, and easily given
        if isinstance(volatile, str):
            raise ConfigError(f"ToolPolicy(volatile={self.volatile!r}): give a tuple of field names")
        if self.polling and self.side_effect:
            raise ConfigError("ToolPolicy(polling=True, side_effect=True): a changed result cannot both be progress and not matter")
        for name, value in (("suspect_at", self.suspect_at), ("loop_at", self.loop_at)):
            if value is not None and value < 2:  # noqa: PLR2004 - one call repeats nothing
                raise ConfigError(f"ToolPolicy({name}={value}): one call repeats nothing; give 2 or more")
        if self.suspect_at is not None and self.loop_at is not None and self.suspect_at > self.loop_at:
            raise ConfigError(f"ToolPolicy(suspect_at={self.suspect_at}): give at most loop_at ({self.loop_at})")

    def key_of(self, arguments: object) -> str | None:
        """The arguments in the form that is compared; `None`: this call is exempt. A key function that fails is not used."""
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
        """The identity of what came back, without what is volatile."""
        text = _without(result.text, self.volatile) if self.volatile else result.text
        if _FAILED.search(text):
            text = _TIMING.sub("", text)
        return identity(f"{result.is_error}:{text}")


WAITS = ToolPolicy(idempotent=True, polling=True, suspect_at=5, loop_at=20)
"""Waiting for something else to get on."""


@lru_cache(maxsize=GUESSES_KEPT)
def guess(name: str) -> ToolPolicy:
    """What the name of a tool says about it."""
    part = _LAST_PART.fullmatch(name)
    words = [word.lower() for word in _WORD.findall(part.group(1) if part else name)]
    if "".join(words) in DOES_NOTHING:
        return ToolPolicy(no_op=True)
    if words and (words[0] == "poll" or (words[0] in ONLY_LOOKS and not ASKS_HOW_FAR.isdisjoint(words[1:]) and "git" not in words)):
        return WAITS
    if words and words[0] in ONLY_LOOKS:
        return ToolPolicy(idempotent=True)
    if words and words[0] in REPEATS_ITS_EFFECT and (ONLY_LOOKS | TYPES).isdisjoint(words):
        return ToolPolicy(side_effect=True)
    return ToolPolicy()


def checked(tools: Mapping[str, ToolPolicy] | None) -> Mapping[str, ToolPolicy]:
    """The caller's policies by tool, or a `ConfigError` that says which is none."""
    for name, policy in (tools or {}).items():
        if not isinstance(policy, ToolPolicy):
            raise ConfigError(f"tools[{name!r}] takes a ToolPolicy, not {policy!r}")
    return dict(tools) if tools else NO_POLICIES


def policy_of(name: str, given: Mapping[str, ToolPolicy]) -> ToolPolicy:
    """What the caller says of a tool, else what its name says."""
    return given.get(name) or guess(name)


def policy_of_call(name: str, given: Mapping[str, ToolPolicy], text: str) -> ToolPolicy:
    """The same for one call: a command that sleeps waits, unless the caller says what its tool does. `text`: name and arguments."""
    return WAITS if "sleep" in text and name not in given and not guess(name).no_op and SLEEPS.search(text) else policy_of(name, given)


def is_veto(result: ToolResult) -> bool:
    """The answer is our own: a call that was not let through."""
    return result.text.startswith(VETO)


def _without(text: str, fields: tuple[str, ...]) -> str:
    try:
        return canonical_json(_strip(json.loads(text), frozenset(fields)))
    except (ValueError, RecursionError):
        names = "|".join(map(re.escape, fields))
        return re.sub(rf"\b({names})(\"?\s*[:=]\s*)(\"[^\"]*\"|[^\s,;]+)", r"\1\2", text)


def _strip(value: Any, fields: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _strip(item, fields) for key, item in value.items() if key not in fields}
    return [_strip(item, fields) for item in value] if isinstance(value, list) else value
