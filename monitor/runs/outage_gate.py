"""Where one run waits for outages, and tells what has failed in it.

Rules:

- A model has failed if the provider limits, refuses the key, breaks, or cannot be reached. It works
  if a turn has come to its end.
- A tool has failed if it ran into its timeout or into an exception that it did not expect. What a
  tool itself calls a failure counts if it says that something is down, or if the same has worked
  before: an agent that runs failing tests is at work.
- A failure of a tool is one of the tool and one of the call: other calls of the tool may work.
- A model that loops in a run has failed in it: if it does so in most runs, it is the model.
- Errors are compared without what changes by itself, and without the texts of the arguments. Words
  that have a digit are left out too: addresses, ports, ids, plain numbers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from monitor._util.hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult
from monitor.detectors.calls.tool_policy import error_identity
from monitor.errors import StoreError, TerminateReason, ToolErrorKind
from monitor.events import Event, OutageEnded, OutageFound, OutagesLost, RunHeld, RunReleased
from monitor.guard.streams.wait import Clock
from monitor.models import PASSING, ErrorKind
from monitor.outage import WORDS_CHARS, Failure
from monitor.outcome import Turn
from monitor.shared.outages import Outages
from monitor.verdicts import FleetFinding

P = ParamSpec("P")
T = TypeVar("T")

LOOK_AGAIN_S: Final = 1.0
"""Seconds after which a run that waits looks again whether it may go on."""
ARGUMENT_CHARS: Final = 4
"""Shorter texts of arguments are not removed from errors: other words may contain them."""
_MODEL_KINDS: Final = PASSING | {ErrorKind.AUTH}
_OWN_KINDS: Final = frozenset({ToolErrorKind.TIMEOUT, ToolErrorKind.UNHANDLED})
_SAID_KINDS: Final = frozenset({ToolErrorKind.EXECUTION_FAILED, None})
_SAYS_DOWN: Final = re.compile(
    r"\b(unavailable|overloaded|time(d|s)? ?-?out|unreachable|connection|connect|refused|reset by|rate limit"
    r"|too many requests|quota|bad gateway|maintenance|try again later|50[0-4]|429)\b",
    re.IGNORECASE,
)


_NUMBERED: Final = re.compile(r"[\w.:@/+-]+")
"""A word as it stands in errors: an address with its port, a path, an id, a number."""


class OutageGate:
    """The outages as one run meets them."""

    def __init__(
        self,
        outages: Outages,
        *,
        run: Callable[[], str],
        model: str,
        clock: Clock,
        emit: Callable[[Event], None],
        at: Callable[[], float],
        turn: Callable[[], int],
    ) -> None:
        """`run`: the id under which the run counts. `at`, `turn`: for its events."""
        self.spares = False
        """The last model call has failed by an outage for which the run waits."""
        self._outages = outages
        self._run = run
        self._model = f"model {model}"
        self._now = clock.now
        self._emit = emit
        self._at = at
        self._turn = turn
        self._began_s = 0.0
        """When what may be used now was begun, by the clock of the store."""
        self._held: tuple[FleetFinding, float] | None = None
        """The outage for which the run waits, and since when."""
        self._waited_for: set[str] = set()
        """Outages that have held the run long enough."""
        self._lost = False

    async def must_wait(self, calls: Sequence[ToolCall] | None) -> bool:
        """Whether the run must wait before it makes `calls`, or asks the model (`None`)."""
        subjects = [self._model] if calls is None else [subject for call in calls for subject in _subjects(call)]
        held: FleetFinding | None = None
        self.spares, hold_s = False, self._outages.hold_s
        if hold_s is not None:
            asked = await self._answer(self._outages.ask, subjects, self._run())
            if asked is not None:
                if not asked.may_go and asked.outage is not None and asked.outage.outage not in self._waited_for:
                    held = self._still(asked.outage, hold_s)
                elif self._held is not None:
                    self._release("recovered" if asked.outage is None else "probe")
        self._began_s = self._outages.store.now()
        return held is not None

    def leave(self) -> None:
        """The run waits no more, because it ends."""
        if self._held is not None:
            self._release("run_ended")

    async def model_ended(self, turn: Turn) -> None:
        """A model call of the run has ended."""
        error = turn.model_error
        if _loops(turn):
            await self._failed(
                [Failure(self._model, self._model, "loop", "loop: the model repeats itself", by_chance=True)]
            )
        elif error is not None and error.kind in _MODEL_KINDS:
            failure = Failure(self._model, self._model, error.kind.value, f"{error.kind.value}: {error.message}")
            await self._failed([failure])
        elif error is None and turn.finish_reason is not None:
            await self._succeeded([self._model])

    async def calls_ended(self, calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> None:
        """Calls of tools have their results."""
        for call in calls:
            result = results.get(call.id)
            if result is None or result.vetoed:
                continue
            if not result.is_error or result.error_kind is ToolErrorKind.NOT_FOUND:
                await self._succeeded(_subjects(call))
            elif failures := [one for one in _failures(call, result) if self._counts(result, one.subject)]:
                await self._failed(failures)

    def _counts(self, result: ToolResult, subject: str) -> bool:
        """Whether a failed call may be a sign of an outage of `subject`."""
        if result.error_kind in _OWN_KINDS:
            return True
        said = result.error_kind in _SAID_KINDS
        return said and (self._outages.has_worked(subject) or _SAYS_DOWN.search(result.text[:WORDS_CHARS]) is not None)

    def _still(self, outage: FleetFinding, hold_s: float) -> FleetFinding | None:
        """The run waits on for `outage`. `None`: it has waited long enough."""
        now = self._now()
        if self._held is None:
            self._held = outage, now
            self._emit(RunHeld(self._at(), self._turn(), outage))
        if now - self._held[1] < hold_s:
            return outage
        self._waited_for.add(outage.outage)
        self._release("waited_long_enough")
        return None

    def _release(self, why: Any) -> None:
        assert self._held is not None  # noqa: S101 - the callers know that the run is held
        (outage, since), self._held = self._held, None
        self._emit(
            RunReleased(
                at_s=self._at(),
                turn=self._turn(),
                outage=outage.outage,
                what=outage.what,
                why=why,
                after_s=self._now() - since,
            )
        )

    async def _failed(self, failures: Sequence[Failure]) -> None:
        counted = await self._answer(self._outages.failed, failures, self._run())
        if counted is None:
            return
        if counted.finding is not None:
            self._emit(OutageFound(self._at(), self._turn(), counted.finding))
        waits = self._outages.hold_s is not None
        self.spares = waits and counted.outage is not None and counted.outage.id not in self._waited_for

    async def _succeeded(self, subjects: Sequence[str]) -> None:
        for finding in await self._answer(self._outages.succeeded, subjects, self._run(), self._began_s) or ():
            self._emit(OutageEnded(self._at(), self._turn(), finding))

    async def _answer(self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer of the outages. `None`: their store is lost, and is not asked again."""
        if self._lost:
            return None
        try:
            return await ask(*args, **kwargs)
        except StoreError as error:
            self._lost = True
            if self._held is not None:
                self._release("outages_lost")
            self._emit(OutagesLost(self._at(), str(error)))
            return None


def _loops(turn: Turn) -> bool:
    """Whether the model has repeated itself in `turn`."""
    stop = turn.stopped
    return turn.loop_offset is not None or (stop is not None and stop.reason is TerminateReason.LOOP_DETECTED)


def _without_number(word: re.Match[str]) -> str:
    return "#" if any(map(str.isdigit, word[0])) else word[0]


def _subjects(call: ToolCall) -> tuple[str, str]:
    """The tool, and the call by its arguments."""
    return f"tool {call.name}", f"call {call.name} {identity(canonical_json(call.arguments))}"


def _failures(call: ToolCall, result: ToolResult) -> Iterator[Failure]:
    """The services to which a failed call may point, the widest first."""
    text = result.text.replace(call.id, "") if call.id else result.text
    values = call.arguments.values() if isinstance(call.arguments, Mapping) else ()
    given = [value for value in values if isinstance(value, str) and len(value) >= ARGUMENT_CHARS]
    for value in sorted(given, key=len, reverse=True):
        text = text.replace(value, "")
    error = f"{result.error_kind}:{error_identity(_NUMBERED.sub(_without_number, text))}"
    shown = f"call {call.name}({canonical_json(call.arguments)})"[:WORDS_CHARS]
    for subject, what in zip(_subjects(call), (f"tool {call.name}", shown), strict=True):
        yield Failure(subject, what, error, result.text)
