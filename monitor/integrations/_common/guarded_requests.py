"""Between two model calls of a framework's loop, results go to the guard, and the guard's verdict
goes into the next request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from monitor.harness.guards.guard import Guard
from monitor.outcome import Turn
from monitor.reasons import TerminateReason
from monitor.verdicts import Hold, LastTurn, Nudge, Stop, WithdrawTool

_BY_PROVIDER = "provider"


@dataclass(slots=True, frozen=True)
class Answered:
    """A tool result, as the framework's next request shows it."""

    call_id: str | None
    result: object
    is_error: bool = False
    name: str | None = None
    """The tool. It says which call is meant where the framework has changed the id, or has none."""


@dataclass(slots=True, frozen=True)
class RequestChange:
    """How the next request differs from the framework's own."""

    text: str | None = None
    """A user message that is sent after the others."""
    withdrawn: frozenset[str] = frozenset()
    """Tools that are no longer offered."""
    only: frozenset[str] = frozenset()
    """If not empty: the only tools that are offered."""

    def offers(self, tool: str) -> bool:
        """Whether the tool is part of the request."""
        return tool not in self.withdrawn and (not self.only or tool in self.only)


class GuardedRequests:
    """The state of one run between its model calls. `ended` follows each response, `next_request`
    comes before each request.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._waiting: dict[str, str] = {}  # the calls of the last response without a result: id and tool
        self._withdrawn: frozenset[str] = frozenset()
        self._begun = False

    def next_request(self, results: Iterable[Answered]) -> RequestChange | Stop:
        """Pass on the results of the last response's calls. Returns the changes of the next
        request, or why there must be none.

        `results`: those after the last response in the framework's history. A result that was
        passed on before is left out, so a repeated request counts nothing twice.
        """
        self.take(results)
        if not self._begun:
            self._begun = True
            return RequestChange()
        match self._guard.check():
            case Stop() as stop if is_final(stop):
                return stop
            case Hold(detection):
                detail = f"a person was to decide, and a framework's loop cannot wait: {detection.message}"
                self._guard.abort(detail)
                return Stop(TerminateReason.ABORTED, detail, "abort", evidence=detection)
            case Nudge(text):
                return RequestChange(text, self._withdrawn)
            case WithdrawTool(name, text):
                self._withdrawn |= {name}
                return RequestChange(text, self._withdrawn)
            case LastTurn() as last:
                return RequestChange(last.text, self._withdrawn, frozenset(last.tools))
            case _:  # go on; the framework tries a failed call again; `Compact` is the framework's own business
                return RequestChange(withdrawn=self._withdrawn)

    def take(self, results: Iterable[Answered]) -> None:
        """Pass on the results of the last response's calls, each once. For frameworks that show a
        result before the next request.
        """
        for one in results:
            call = one.call_id if one.call_id in self._waiting else self._call_of(one.name)
            if call is not None:
                del self._waiting[call]
                self._guard.tool_result(call, one.result, is_error=one.is_error)

    def _call_of(self, tool: str | None) -> str | None:
        """The oldest call of this tool that has no result yet."""
        return next((call for call, name in self._waiting.items() if name == tool), None)

    def ended(self, turn: Turn) -> Stop | None:
        """A response has ended. Returns why the run is over, if the guard has ended it.

        Raises the SDK's own exception if the model call failed, so that the framework retries or
        falls back as it would without a guard.
        """
        self._waiting = {call.id: call.name for call in turn.tool_calls}
        if turn.stopped is not None and is_final(turn.stopped):
            return turn.stopped
        if turn.error is not None:
            raise turn.error
        return None


def is_final(stop: Stop) -> bool:
    """Whether the run has ended. A failed model call alone does not end it: the call may be
    repeated.
    """
    return stop.source != _BY_PROVIDER or stop.reason is TerminateReason.LOOP_DETECTED
