"""The verdict on one request: a run's core, whose detectors have seen the turns in the history.

Rules:

- A loop in the history counts if it was found in the last turn: a run that has left its loop goes
  on. It does not count if the user has said something new since then. The model gets this turn to
  follow it, and if it makes the same call, the next request is judged.
- A loop over turns is judged when the results are known, with the next request. The client's answer
  can then be ended well: a call that it has seen can only be taken back by an error. A loop within
  one answer is cut while it is written.
- Limits on turns, calls and errors count over the task, limits on time and tokens in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from monitor.budget import Budget
from monitor.chunks import ReasoningDelta, TurnFinished
from monitor.conditions import Condition
from monitor.core.counters import ErrorStreak
from monitor.core.detector_bank import DetectorBank, PartCrash, abridged_arguments, abridged_text
from monitor.core.resumed import ResumedRun
from monitor.core.run import RunCore
from monitor.detectors.detector import Detector
from monitor.events import Event
from monitor.messages import AssistantMessage, Message, Reasoning, Text
from monitor.policy import stop_for
from monitor.proxy.histories.request_history import TaskPlace, calls_of, read_task
from monitor.proxy.state.runs import signature
from monitor.reasons import FinishReason
from monitor.usage import Price
from monitor.verdicts import Continue, Detection, Verdict

SEEN_TURNS: Final = 200
"""The newest turns that detectors are shown at least. No default detector looks further back."""
_STEP: Final = 100
"""The first turn that they are shown has a number that is a multiple of this. So it is another one
only in every hundredth request, and a state that was kept holds until then.
"""


class HistoryMissing(Exception):
    """The verdict needs turns that stand before the known beginning: read the whole history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The state of a judge behind a history. A later judge goes on with it."""

    place: TaskPlace
    seen_from: int
    """The number of the first turn of the task that the detectors have seen, from 0."""
    tool_calls: int
    tools_called: tuple[str, ...]
    errors: ErrorStreak
    calls_seen: int
    """The calls that the detectors have seen."""
    found: tuple[Detection, ...]
    """The findings in the last turn."""
    detectors: bytes
    """The snapshots of the detectors, as JSON."""

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.detectors) + len(self.place.text) + sum(map(len, self.tools_called))


class LoopPolicy:
    """A loop ends the answer. In the turns of the history loops are only noted."""

    def __init__(self, allowed: Collection[str], *, observe: bool, patient: bool) -> None:
        """`allowed`: loops that an operator has allowed. `observe`: no loop ends an answer.
        `patient`: a loop over turns does not end an answer either; the next request is judged.
        """
        self.loop: Detection | None = None
        """The loop that was found in the last turn."""
        self.suspicion: Detection | None = None
        """The suspicion of the last turn."""
        self.calls_before = 0
        """The number of calls in the history."""
        self._allowed = allowed
        self._observe = observe
        self._patient = patient

    def note(self, found: Sequence[Detection]) -> None:
        """Take in what was found in the last turn of the history."""
        for detection in found:
            if self._counts(detection):
                self.loop = detection
            elif detection.level == "suspect":
                self.suspicion = detection

    def decide(self, detection: Detection) -> Verdict:
        if self._observe or not self._counts(detection) or (self._patient and self._over_turns(detection)):
            return Continue()
        return stop_for(detection)

    def ends(self, detection: Detection) -> bool:
        """Whether a detection in an answer without a history ends it."""
        return not self._observe and self._counts(detection)

    def reset(self) -> None:
        """A policy belongs to one request."""

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing is kept: the next request brings its history."""

    def _counts(self, detection: Detection) -> bool:
        return detection.level == "loop" and signature(detection) not in self._allowed

    def _over_turns(self, detection: Detection) -> bool:
        if detection.channel == "tools":
            return detection.start_offset < self.calls_before
        return detection.channel == "messages"


class RequestJudge:
    """The core of one request, and what its history says."""

    def __init__(
        self,
        *,
        stop_when: Condition | None,
        detectors: Sequence[Detector],
        policy: LoopPolicy,
        price: Price | None,
        budgets: Sequence[Budget],
        emit: Callable[[Event], None],
    ) -> None:
        self.core = RunCore(
            stop_when=stop_when,
            detectors=detectors,
            policy=policy,
            emit=emit,
            keep_text_chars=0,
            price=price,
            budgets=budgets,
        )
        self._bank = DetectorBank(detectors)
        self._detectors = detectors
        self._policy = policy
        self._place = TaskPlace()
        self._first = 0
        """The number of the first turn that the detectors have seen."""
        self._past = ResumedRun()
        self._found: list[Detection] = []
        """The findings in the last turn."""
        self._state_is_whole = True

    def recall(self, messages: Sequence[Message], now: float, known: TaskState | None = None) -> Detection | None:
        """Show the detectors the history. The loop in which the run is; `None`: it is in none. A
        limit that is exceeded is `core.stop`.

        `known`: the state behind the messages that stand before these. Raises `HistoryMissing`.
        """
        begun = known.place if known is not None else TaskPlace()
        place, turns = read_task(messages, begun)
        first = max(0, place.turns - SEEN_TURNS) // _STEP * _STEP
        if len(turns) == place.turns:
            known = None  # the task begins with these messages
        elif known is None or known.seen_from != first:
            raise HistoryMissing
        self._place, self._first = place, first
        past = self._past
        crash: PartCrash | None = None
        try:
            self._begin(known, place.text)
            for index, turn in enumerate(turns, place.turns - len(turns)):
                self._count(turn)
                if index >= first:
                    self._found.clear()
                    self._see(turn)
        except PartCrash as raised:
            crash = raised
        past.counters.turns = past.counters.model_calls = place.turns
        self.core.take_up(past, "", now)
        if crash is not None:
            self._state_is_whole = False
            self.core.fail(crash.error, crash.name, now)
        if not place.has_news:
            self._policy.note(self._found)
        return self._policy.loop

    @property
    def turns(self) -> int:
        """The turns of the task that goes on, in the history."""
        return self._place.turns

    @property
    def task(self) -> str:
        """The text of the user's last task."""
        return self._place.text

    def state(self) -> TaskState | None:
        """The state behind the history, before anything of the answer has come. `None`: a detector
        has no state that can be kept.
        """
        if not self._state_is_whole or not all(hasattr(one, "snapshot") for one in self._detectors):
            return None
        counters = self._past.counters
        try:
            detectors = json.dumps(self._bank.snapshots(), separators=(",", ":")).encode()
        except (TypeError, ValueError):
            return None
        return TaskState(
            place=self._place,
            seen_from=self._first,
            tool_calls=counters.tool_calls,
            tools_called=counters.tools_called,
            errors=counters.errors,
            calls_seen=self._policy.calls_before,
            found=tuple(self._found),
            detectors=detectors,
        )

    def _begin(self, known: TaskState | None, task: str) -> None:
        """Begin with the state `known`, or with the user's task."""
        self._bank.reset()
        if known is None:
            if task:
                self._bank.request(task)
            return
        counters = self._past.counters
        counters.tool_calls, counters.tools_called = known.tool_calls, known.tools_called
        counters.errors = copy(known.errors)
        self._policy.calls_before = known.calls_seen
        self._found += known.found
        states = json.loads(known.detectors)
        for detector in self._detectors:
            try:
                detector.restore(states[detector.name])
            except Exception as error:
                raise PartCrash(detector.name, error) from error

    def _count(self, turn: AssistantMessage) -> None:
        counters = self._past.counters
        counters.errors.turn_started()
        counters.tool_calls += len(calls_of(turn))
        for result in turn.results:
            counters.tool_answered(result.name)
            if not result.vetoed:
                counters.errors.add(is_error=result.is_error)

    def _see(self, turn: AssistantMessage) -> None:
        bank, found = self._bank, self._found
        for part in turn.content:
            if isinstance(part, Text):
                found += bank.text(part.text)
            elif isinstance(part, Reasoning):
                found += bank.reasoning(ReasoningDelta(part.text))
            else:
                abridged = abridged_arguments(part.arguments)
                call = part if abridged is None else replace(part, arguments=abridged[0])
                self._policy.calls_before += 1
                found += bank.fact(call)
        found += bank.fact(TurnFinished(turn.finish_reason or FinishReason.DONE))
        for result in turn.results:
            found += bank.fact(replace(result, text=abridged_text(result.text)))
