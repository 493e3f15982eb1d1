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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from monitor.budget import Budget
from monitor.chunks import ReasoningDelta, TurnFinished
from monitor.conditions import Condition
from monitor.core.findings import DetectorBank, PartCrash, abridged_arguments, abridged_text
from monitor.core.resumed import ResumedRun
from monitor.core.run import RunCore
from monitor.detectors.detector import Detector
from monitor.events import Event
from monitor.messages import AssistantMessage, Message, Reasoning, Text
from monitor.policy import stop_for
from monitor.proxy.exchange.request_history import calls_of, has_news, task_text, task_turns
from monitor.proxy.runs import signature
from monitor.reasons import FinishReason
from monitor.usage import Price
from monitor.verdicts import Continue, Detection, Verdict

LARGE_BYTES: Final = 64 * 1024
"""A request of this size is read and judged in a thread: it would hold up the other streams for
10 ms.
"""

SEEN_TURNS: Final = 200
"""The newest turns that detectors see again. No default detector looks further back."""


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
        """Take in what was found in a turn of the history."""
        for detection in found:
            if self._counts(detection):
                self.loop = detection
            elif detection.level == "suspect":
                self.suspicion = detection

    def decide(self, detection: Detection) -> Verdict:
        if self._observe or not self._counts(detection) or (self._patient and self._over_turns(detection)):
            return Continue()
        return stop_for(detection)

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
        self.turns = 0
        """The turns of the task that goes on, in the history."""
        self._bank = DetectorBank(detectors)
        self._policy = policy

    def recall(self, messages: Sequence[Message], now: float) -> Detection | None:
        """Show the detectors the history. The loop in which the run is; `None`: it is in none. A
        limit that is exceeded is `core.stop`.
        """
        turns = task_turns(messages)
        self.turns = len(turns)
        past = ResumedRun(turns=len(turns), model_calls=len(turns))
        crash: PartCrash | None = None
        try:
            self._bank.reset()
            if task := task_text(messages):
                self._bank.request(task)
            for index, turn in enumerate(turns):
                self._count(past, turn)
                if index >= len(turns) - SEEN_TURNS:
                    self._policy.loop = self._policy.suspicion = None
                    self._see(turn)
        except PartCrash as raised:
            crash = raised
        self.core.take_up(past, "", now)
        if crash is not None:
            self.core.fail(crash.error, crash.name, now)
        if has_news(messages):
            self._policy.loop = self._policy.suspicion = None
        return self._policy.loop

    def _count(self, past: ResumedRun, turn: AssistantMessage) -> None:
        past.errors.turn_started()
        past.tool_calls += len(calls_of(turn))
        for result in turn.results:
            if result.name not in past.tools_called:
                past.tools_called += (result.name,)
            if not result.vetoed:
                past.errors.add(is_error=result.is_error)

    def _see(self, turn: AssistantMessage) -> None:
        bank, policy = self._bank, self._policy
        for part in turn.content:
            if isinstance(part, Text):
                policy.note(bank.text(part.text))
            elif isinstance(part, Reasoning):
                policy.note(bank.reasoning(ReasoningDelta(part.text)))
            else:
                abridged = abridged_arguments(part.arguments)
                call = part if abridged is None else replace(part, arguments=abridged[0])
                policy.calls_before += 1
                policy.note(bank.fact(call))
        policy.note(bank.fact(TurnFinished(turn.finish_reason or FinishReason.DONE)))
        for result in turn.results:
            policy.note(bank.fact(replace(result, text=abridged_text(result.text))))
