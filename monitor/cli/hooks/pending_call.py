"""Judges the call that an agent asks about: does the loop of the session go on with it?

The end of the session is shown to the detectors, and then the call that is asked about. A loop in
which this call has no part holds it up no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from monitor.cli.hooks.watched_end import NewestMessages, WatchedEnd, key_of
from monitor.detections import Detection
from monitor.detectors.detector import Detector
from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, Said, TranscriptEntry

STILL_TURNS = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""
REPEATED = 2
"""Each different call of a ring or a repetition came at least so often on average."""


class AskedCall(NamedTuple):
    """The call that an agent asks about, as the agent names it."""

    tool: str
    arguments: Any = None
    """`None`: the agent does not say."""
    id: str = ""


class GoingLoop(NamedTuple):
    """A loop that goes on with the call that is asked about."""

    detection: Detection
    result: str
    """The result that the loop got last."""


class Judged(NamedTuple):
    """What the detectors say of a call that is asked about."""

    loop: GoingLoop | None = None
    """The loop that goes on with it."""
    free_calls: int = 0
    """Without a loop: the number of calls after this one for which they need not be asked."""


class SessionEnd:
    """The end of a session. `detectors`: makes those that are asked, one after the other; only
    loops of calls count. `is_tool`: whether the tool that the agent calls by the first name is
    recorded by the second.
    """

    def __init__(self, detectors: Callable[[], Iterable[Detector]], is_tool: Callable[[str, str], bool]) -> None:
        self._detectors, self._is_tool = detectors, is_tool
        self._runs: dict[str, NewestMessages] = {}

    def take(self, entries: Iterable[TranscriptEntry], requests: Iterable[str] = ()) -> None:
        """Read the main runs among `entries`. `requests`: what the user has said before them."""
        for entry in entries:
            if isinstance(entry, Began) and (entry.parent is None or not self._runs):
                self._runs[entry.run] = NewestMessages(requests)
            elif (run := self._runs.get(entry.run)) is not None:
                if isinstance(entry, Said):
                    run.take(entry.message)
                elif isinstance(entry, CompactionSeen):
                    run.compacted()

    @property
    def is_full(self) -> bool:
        """Whether what stands before the entries would change nothing but the requests."""
        return bool(self._runs) and self._newest.is_full

    @property
    def _newest(self) -> NewestMessages:
        return max(self._runs.values(), key=lambda one: one.last_at)

    def judge(self, pending: AskedCall | None) -> Judged:
        """Find the loop that goes on with `pending`. Without a `pending` call: the loop in which
        the session is. The first detector that sees one has the say.

        Raises `PartCrash` if a detector crashed.
        """
        if not self._runs:
            return Judged()
        run = WatchedEnd(self._newest)
        result, turns, calls = run.result, run.turns, [*run.calls]
        if pending is not None and not self._has(run, pending):
            run.take(RecordedMessage("assistant", tool_calls=(self._recorded(calls, pending),)))
        for detector in self._detectors():
            loops = [
                one
                for turn, one in run.ask(detector)
                if turn > turns
                or (turn >= turns - STILL_TURNS and (pending is None or self._goes_on(calls, one, pending)))
            ]
            if loops:
                return Judged(GoingLoop(loops[-1], result))
        return Judged(free_calls=run.free_calls())

    def _has(self, run: WatchedEnd, pending: AskedCall) -> bool:
        """Whether the session has the call already, or the agent does not say enough to add it."""
        key = key_of(self._recorded(run.calls, pending))
        return pending.arguments is None or any(
            one.id not in run.answered and (one.id == pending.id or key_of(one) == key) for one in run.calls
        )

    def _recorded(self, calls: Sequence[RecordedCall], pending: AskedCall) -> RecordedCall:
        """The call as the agent would record it. Codex asks about other arguments than it records;
        then it is the newest call that has all of their values.
        """
        for one in reversed(calls):
            if one.name != pending.tool and self._is_tool(pending.tool, one.name) and _has_all(one, pending):
                return RecordedCall(one.name, one.arguments, pending.id or None)
        return RecordedCall(pending.tool, pending.arguments, pending.id or None)

    def _goes_on(self, made: Sequence[RecordedCall], loop: Detection, pending: AskedCall) -> bool:
        """Whether `pending` is a call of the loop: one of its calls, if these repeat; else a call
        of one of its tools.
        """
        calls = [made[at] for at in loop.evidence.offsets if at < len(made)]
        calls = calls or [call for call in made if call.name in loop.message]
        if not any(self._is_tool(pending.tool, call.name) for call in calls):
            return False
        different = {key_of(call) for call in calls}
        if pending.arguments is None or REPEATED * len(different) > len(calls):
            return True
        return key_of(self._recorded(made, pending)) in different


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
