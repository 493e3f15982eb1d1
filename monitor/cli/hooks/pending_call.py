"""Judges the call that an agent asks about: does the loop of the session go on with it?

The end of the session is shown to the detectors, and then the call that is asked about. A loop in
which this call has no part holds it up no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.cli.hooks.watched_end import NewestMessages, WatchedEnd, key_of
from monitor.detectors.detector import Detector
from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, Said, TranscriptEntry
from monitor.verdicts import Detection

STILL_TURNS = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""
REPEATED = 2
"""Each different call of a ring or a repetition came at least so often on average."""


@dataclass(slots=True, frozen=True)
class AskedCall:
    """The call that an agent asks about, as the agent names it."""

    tool: str
    arguments: Any = None
    """`None`: the agent does not say."""
    id: str = ""


@dataclass(slots=True, frozen=True)
class GoingLoop:
    """A loop that goes on with the call that is asked about."""

    detection: Detection
    result: str
    """The result that the loop got last."""


@dataclass(slots=True, frozen=True)
class Judged:
    """What the detectors say of a call that is asked about."""

    loop: GoingLoop | None = None
    """The loop that goes on with it."""
    free_calls: int = 0
    """Without a loop: the number of calls after this one for which they need not be asked."""


class SessionEnd:
    """The end of a session. `detectors`: makes those that watch it; only loops of calls count.
    `is_tool`: whether the tool that the agent calls by the first name is recorded by the second.
    """

    def __init__(self, detectors: Callable[[], Sequence[Detector]], is_tool: Callable[[str, str], bool]) -> None:
        self._detectors, self._is_tool = detectors, is_tool
        self._runs: dict[str, NewestMessages] = {}

    def take(self, entries: Iterable[TranscriptEntry], requests: Iterable[str] = ()) -> None:
        """Read the main runs among `entries`. `requests`: what the user has said before them."""
        for entry in entries:
            if isinstance(entry, Began) and (entry.parent is None or not self._runs):
                self._runs[entry.run] = NewestMessages()
                self._runs[entry.run].requests.extend(requests)
            elif (run := self._runs.get(entry.run)) is not None:
                if isinstance(entry, Said):
                    run.take(entry.message)
                elif isinstance(entry, CompactionSeen):
                    run.compacted()

    def judge(self, pending: AskedCall | None) -> Judged:
        """Find the loop that goes on with `pending`. Without a `pending` call: the loop in which
        the session is.

        Raises `PartCrash` if a detector crashed.
        """
        if not self._runs:
            return Judged()
        run = WatchedEnd(max(self._runs.values(), key=lambda one: one.last_at), self._detectors())
        loops = [one for turn, one in run.loops if turn >= run.turns - STILL_TURNS]
        result = run.result
        if pending is not None:
            loops = [one for one in loops if self._goes_on(run, one, pending)]
            loops += self._with(run, pending)
        return Judged(GoingLoop(loops[-1], result)) if loops else Judged(free_calls=run.free_calls())

    def _with(self, run: WatchedEnd, pending: AskedCall) -> Sequence[Detection]:
        """The loops that are seen with the call itself. None, if the session has it already."""
        call = self._recorded(run, pending)
        is_open = any(
            one.id not in run.answered and (one.id == pending.id or key_of(one) == key_of(call)) for one in run.calls
        )
        if pending.arguments is None or is_open:
            return ()
        return run.take(RecordedMessage("assistant", tool_calls=(call,)))

    def _recorded(self, run: WatchedEnd, pending: AskedCall) -> RecordedCall:
        """The call as the agent would record it. Codex asks about other arguments than it records;
        then it is the newest call that has all of their values.
        """
        for one in reversed(run.calls):
            if one.name != pending.tool and self._is_tool(pending.tool, one.name) and _has_all(one, pending):
                return RecordedCall(one.name, one.arguments, pending.id or None)
        return RecordedCall(pending.tool, pending.arguments, pending.id or None)

    def _goes_on(self, run: WatchedEnd, loop: Detection, pending: AskedCall) -> bool:
        """Whether `pending` is a call of the loop: one of its calls, if these repeat; else a call
        of one of its tools.
        """
        calls = [run.calls[at] for at in loop.evidence.offsets if at < len(run.calls)]
        calls = calls or [call for call in run.calls if call.name in loop.message]
        if not any(self._is_tool(pending.tool, call.name) for call in calls):
            return False
        different = {key_of(call) for call in calls}
        if pending.arguments is None or REPEATED * len(different) > len(calls):
            return True
        return key_of(self._recorded(run, pending)) in different


def _has_all(call: RecordedCall, pending: AskedCall) -> bool:
    asked = _values(pending.arguments)
    return bool(asked) and asked <= _values(call.arguments)


def _values(arguments: Any) -> set[str]:
    """The texts and numbers of the arguments, whatever their names are."""
    if isinstance(arguments, Mapping):
        return set().union(*map(_values, arguments.values()))
    if isinstance(arguments, list):
        return set().union(*map(_values, arguments), {" ".join(map(str, arguments))})
    return {str(arguments)}
