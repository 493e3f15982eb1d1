"""Policies: from findings to a verdict.

A policy is pure and may keep state (strikes, a watch list); guard and supervisor only perform its
verdicts. A policy sees only findings and the ends of turns, so the same run gives the same verdicts
in guard, supervisor and `scan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Protocol, runtime_checkable

from monitor._util.explained_options import explains_options
from monitor._util.state import StateOfAttributes
from monitor._util.text import quoted
from monitor.errors import ConfigError, TerminateReason
from monitor.verdicts import Continue, Detection, Hold, LastTurn, Nudge, RefuseCall, Stop, Verdict, WithdrawTool

__all__ = ["Ladder", "ObserveOnly", "Policy", "StopAtFirstLoop", "TurnPolicy"]
__dir__ = __all__.copy

JUDGE_PATIENCE = 3
"""A judge's finding is forgiven after this many times `clean_turns`, because even a sure judge is
asked only every 5 or 6 turns.
"""
STEP_NATS = 1.0
"""How much weighed evidence grows between two steps: by one to three calls."""
WATCHED = 32
"""The newest loops that are watched. A run with more loops is stopped by the number of nudges."""


_NUDGE, _REFUSE, _WITHDRAW, _LAST_TURN = range(4)  # the steps of the ladder; behind them comes the stop


class Policy(Protocol):
    """Decides what follows from a detection."""

    def decide(self, detection: Detection, /) -> Verdict:
        """The verdict on one detection. Detections come in the order in which they were raised."""
        ...

    def reset(self) -> None:
        """Forget everything, for a new run."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state as small JSON data with a `version`."""
        ...

    def restore(self, state: Mapping[str, Any], /) -> None:
        """Go on as if never interrupted since `snapshot()`."""
        ...


@runtime_checkable
class TurnPolicy(Protocol):
    """A policy that is also informed when a turn begins."""

    def turn_started(self) -> None:
        """The model is about to answer again, and has received all verdicts so far. Not called for
        another attempt at a turn.
        """
        ...


def _written(self: object) -> str:
    """A policy as it is written in Python, with the options that are not the default ones."""
    options = signature(type(self)).parameters.values()
    changed = [f"{one.name}={value!r}" for one in options if (value := getattr(self, f"_{one.name}")) != one.default]
    return f"{type(self).__name__}({', '.join(changed)})"


class StopAtFirstLoop:
    """A loop ends the run. A suspicion is only an event, but a judge's is a nudge with its
    sentence. The guard's default.
    """

    __repr__ = _written

    def decide(self, detection: Detection) -> Verdict:
        """`Stop` for a loop, `Nudge` for a judge's suspicion, `Continue` for another one."""
        if detection.level == "loop":
            return stop_for(detection)
        return Nudge(nudge_text(detection)) if detection.kind == "judge" else Continue()

    def reset(self) -> None:
        """A policy without state has nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """A policy without state has nothing to restore."""


class ObserveOnly:
    """Detections are only events. Use it to try detectors on live runs."""

    __repr__ = _written

    def decide(self, detection: Detection) -> Verdict:
        """Always `Continue`."""
        return Continue()

    def reset(self) -> None:
        """A policy without state has nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """A policy without state has nothing to restore."""


def stop_for(detection: Detection) -> Stop:
    """The stop that a detection justifies."""
    return Stop(
        TerminateReason.LOOP_DETECTED,
        detection.message,
        detection.detector,
        limit=detection.threshold,
        value=detection.count,
        evidence=detection,
    )


class Ladder(StateOfAttributes):
    """Answers a loop in steps: nudge, refuse the call, withdraw the tool, one last turn, stop.

    - A suspicion, or a loop, that was not seen before is answered with a nudge, and goes on the
      watch list. The nudge shows the evidence and suggests one different thing to try.
    - The same loop again takes the next step: its call is refused, then its tool is withdrawn, then
      comes one last turn with `final_tools`, then the stop. A suspicion goes no further than the
      withdrawn tool and never ends a run. After the last turn, any loop is the stop.
    - A call is refused where repetitions are counted. Where evidence is weighed, each call is
      another one, so the tool is withdrawn at once.
    - Each step needs evidence that has grown since the one before: by a nat where evidence is
      weighed, else a loop, or a suspicion that counts more.
    - A tool is withdrawn only if its calls add nothing. The supervisor keeps a tool that is the
      only one. In its place comes a second nudge.
    - Repeated calls climb one step a turn, because the model must have read a nudge before it can
      follow it.
    - Repeated text climbs one step with every finding, because the stream is still being written.
      That holds also if its evidence differs each time, as in a plan with a counter.
    - A loop in text that was only suspected earlier in the same turn stays on its step: the model
      has not read the first nudge yet.
    - A new loop starts at the first step while nudges are left (`max_nudges` in a run).
    - After `clean_turns` turns without a finding, all findings are forgiven. A judge's findings
      take three times as many.
    - With `hold`, a person is asked where the last turn would come, and each time after it. They
      see the evidence, and the run goes on, gets a message, or stops. Without anybody to ask, it
      stops.
    - A loop with `give_up` times the repetitions of its threshold ends the run on any step: a flood
      within one turn.
    """

    STATE = ("_acted", "_clean", "_grown", "_last_given", "_nudges", "_strikes", "_suspected")
    __slots__ = (*STATE, "_clean_turns", "_final_tools", "_give_up", "_hold", "_max_nudges")

    __repr__ = _written

    @explains_options(example="monitor.Ladder(max_nudges=2)")
    def __init__(
        self,
        *,
        max_nudges: int = 3,
        clean_turns: int | None = 5,
        final_tools: tuple[str, ...] = (),
        give_up: int | None = 4,
        hold: bool = False,
    ) -> None:
        """The default is three nudges, and four times the threshold: 20 identical calls, which
        OpenClaw calls critical.
        """
        if max_nudges < 0:
            raise ConfigError(f"Ladder(max_nudges={max_nudges}): give 0 or more")
        if clean_turns is not None and clean_turns < 1:
            raise ConfigError(f"Ladder(clean_turns={clean_turns}): give 1 or more, or None to forgive nothing")
        if give_up is not None and give_up < 1:
            raise ConfigError(f"Ladder(give_up={give_up}): give 1 or more, or None for no such end")
        self._max_nudges = max_nudges
        self._clean_turns = clean_turns
        self._final_tools = tuple(final_tools)
        self._give_up = give_up
        self._hold = hold
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new run."""
        self._strikes: dict[str, int] = {}
        self._grown: dict[str, float] = {}  # by signature: the evidence at the latest step
        self._nudges = 0
        self._clean = -1
        self._acted = False
        self._last_given = False
        self._suspected = False  # in the text of this turn; the model has not read the nudge yet

    def decide(self, detection: Detection) -> Verdict:
        self._clean = -1  # this turn is not clean
        written = detection.channel not in ("tools", "messages")  # text that is still being written
        if detection.level == "loop":
            if self._last_given and (not self._acted or written):
                return stop_for(detection)
            if self._give_up is not None and detection.count >= self._give_up * detection.threshold:
                return stop_for(detection)
        if (self._acted and not written) or not self._has_grown(detection):
            return Continue()
        self._acted = True
        if detection.level == "loop" and written and self._suspected:
            self._suspected = False
            self._watch(detection, 1)
            return Nudge(nudge_text(detection))
        verdict = self._step(detection)
        self._suspected |= detection.level == "suspect" and written and isinstance(verdict, Nudge)
        return verdict

    def turn_started(self) -> None:
        """The model has read the messages so far. A turn without a finding, up to the results of
        its calls, counts towards forgiveness.
        """
        self._acted = self._suspected = False
        self._clean += 1
        if self._clean_turns is None or self._clean < self._clean_turns:
            return
        if self._clean >= JUDGE_PATIENCE * self._clean_turns:
            self._strikes, self._grown, self._nudges, self._last_given = {}, {}, 0, False
            return
        judged = {signature: taken for signature, taken in self._strikes.items() if signature.startswith("judge:")}
        self._strikes, self._nudges, self._last_given = judged, len(judged), self._last_given and bool(judged)
        self._grown = {known: self._grown[known] for known in judged}

    def _step(self, detection: Detection) -> Verdict:
        taken = self._strikes.pop(_signature(detection), 0)
        tool = tool_of(detection)
        weighed = detection.evidence.nats is not None
        if taken == _NUDGE and self._nudges >= self._max_nudges:
            taken = _REFUSE
        if taken == _REFUSE and (tool is None or weighed):
            taken = _WITHDRAW
        if taken == _WITHDRAW and tool is None and not weighed:
            taken = _LAST_TURN
        if taken > _WITHDRAW and detection.level == "suspect":
            self._watch(detection, taken)
            return Continue()
        if taken > _WITHDRAW and self._hold:
            self._watch(detection, taken)
            return Hold(detection)
        self._watch(detection, taken + 1)
        if taken == _NUDGE:
            self._nudges += 1
            return Nudge(nudge_text(detection))
        if taken == _REFUSE:
            return RefuseCall(detection.evidence.excerpt, nudge_text(detection))
        if taken == _WITHDRAW and tool is None:
            return Nudge(nudge_text(detection))
        if taken == _WITHDRAW and tool is not None:
            text = f"{detection.message}. {tool} is not available any more. {_another_way(detection)}"
            return WithdrawTool(tool, text, nudge_text(detection))
        if taken == _LAST_TURN:
            self._last_given = True
            return LastTurn(
                f"{detection.message}, also after a warning. This is your last turn: say what you found, and what is"
                " missing.",
                self._final_tools,
            )
        return stop_for(detection)

    def _has_grown(self, detection: Detection) -> bool:
        """Whether the evidence has grown since the latest step on the same loop."""
        before = self._grown.get(_signature(detection))
        nats = detection.evidence.nats
        if before is None:
            return True
        if nats is not None:
            return nats >= before + STEP_NATS
        return detection.level == "loop" or detection.channel != "tools" or detection.count > before

    def _watch(self, detection: Detection, taken: int) -> None:
        signature, nats = _signature(detection), detection.evidence.nats
        self._strikes[signature] = taken
        self._grown[signature] = detection.count if nats is None else nats
        if len(self._strikes) > WATCHED:
            del self._strikes[next(iter(self._strikes))]
        self._grown = {known: self._grown[known] for known in self._strikes}

    def snapshot(self) -> dict[str, Any]:
        return {"version": 4, **super().snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != 4:  # noqa: PLR2004 - the one that `snapshot` writes
            raise ValueError(f"Ladder: cannot restore version {state.get('version')!r}, only 4")
        super().restore(state)


def _signature(detection: Detection) -> str:
    """The identity of a loop. Weighed evidence is one sum for a run, whatever it began with."""
    evidence = detection.evidence
    return f"{detection.kind}:{evidence.xxhash if evidence.nats is None else detection.detector}"


def tool_of(detection: Detection) -> str | None:
    """The tool whose calls add nothing; for a cycle, one of its tools. `None`: there is none."""
    if detection.evidence.nats is not None:
        return next(iter(detection.evidence.tools), None)
    return detection.evidence.excerpt.partition("(")[0] if detection.channel == "tools" else None


def nudge_text(detection: Detection) -> str:
    """The message to the model about its loop: the evidence, and one different thing to try."""
    excerpt = detection.evidence.excerpt
    if detection.kind == "judge":
        # The judge has read the tools' answers, which may contain instructions: its note is quoted.
        return (
            f"A reviewer of this run sees no progress. Its note, quoted: {quoted(excerpt)}\n{_another_way(detection)}"
        )
    return (
        f"You are repeating yourself: {detection.message}.\nWhat was repeated:"
        f" {quoted(excerpt)}\n{_another_way(detection)}"
    )


_ANOTHER_WAY = {
    "identical_calls": "Do not make this call again; use the answer that you have, or ask for something different.",
    "cycle": (
        "These calls will not give anything new. Say what you still need to know, and take a step that is not one of"
        " them."
    ),
    "stalled": (
        "Running this again does not help. Say what the failures that are left have in common, and take a way that you"
        " have not taken, or undo what made no difference."
    ),
    "no_news": (
        "Say in one sentence why these calls are needed. If the task asks for them, go on. If not, use what you have,"
        " or take a step that you have not taken."
    ),
    "same_error": (
        "Asking again in another way gives the same error. Find out why it comes, or take a step that does not need"
        " this."
    ),
    "unknown_tool": "There is no such tool. Use one of the tools that you were given, or say that you cannot do this.",
    "equal_messages": "Do not say this again. Do the next step, or say what keeps you from it.",
    "judge": (
        "Think about what the task still needs, and take a step that you have not taken, or finish with what you have."
    ),
    "message_cycle": "Do not say these again. Do the next step, or say what keeps you from it.",
    "similar_messages": "Do not say this again in other words. Do the next step, or say what keeps you from it.",
}


def _another_way(detection: Detection) -> str:
    return _ANOTHER_WAY.get(detection.kind, "Stop writing this. Go on with the next point, in new words, or finish.")
