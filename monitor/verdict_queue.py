"""What is to follow from the findings of a run: verdicts that wait to be performed, and are taken back with a void attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.policy import Policy, TurnPolicy, stop_for
from monitor.verdicts import Compact, Continue, Detection, LastTurn, Nudge, Stop, Verdict, WithdrawTool


class PolicyCrash(Exception):
    """A policy raised `error`, or answered what is no verdict."""

    def __init__(self, policy: Policy, error: Exception) -> None:
        super().__init__(type(policy).__name__)
        self.name = type(policy).__name__
        self.error = error


class VerdictQueue:
    """The policy of one run, and those of its verdicts that the harness has not performed yet, oldest first.

    All methods that ask the policy raise `PolicyCrash`.
    """

    __slots__ = ("_before", "_policy", "_turn_policy", "_waiting", "loop")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._turn_policy = policy if isinstance(policy, TurnPolicy) else None
        self._waiting: list[tuple[Verdict, Detection | None]] = []
        self._before: tuple[Mapping[str, Any] | None, int] | None = None
        """The policy, and how many verdicts waited, before the turn's first finding."""
        self.loop: Stop | None = None
        """How the run would end by the loop behind the latest verdict."""

    def reset(self) -> None:
        """A new run begins."""
        try:
            self._policy.reset()
        except Exception as error:
            raise PolicyCrash(self._policy, error) from error

    def turn_started(self) -> None:
        """The model answers again, and has been told what was decided before."""
        self._before = None
        if self._turn_policy is not None:
            try:
                self._turn_policy.turn_started()
            except Exception as error:
                raise PolicyCrash(self._policy, error) from error

    def verdict_on(self, detection: Detection) -> Verdict:
        """What the policy makes of a finding."""
        try:
            if self._before is None:
                snapshot = getattr(self._policy, "snapshot", None)  # a small policy of the caller's may do without
                self._before = snapshot() if snapshot is not None else None, len(self._waiting)
            verdict = self._policy.decide(detection)
            if not isinstance(verdict, Continue | Nudge | WithdrawTool | Compact | LastTurn | Stop):
                raise TypeError(f"expected a verdict, got {verdict!r}")
        except Exception as error:
            raise PolicyCrash(self._policy, error) from error
        return verdict

    def add(self, verdict: Verdict, detection: Detection | None = None) -> None:
        """To be performed between turns. `detection`: what it follows from, if it was the policy's. What is sure now need not be told
        as a suspicion as well.
        """
        if detection is not None:
            self.loop = stop_for(detection)
            if detection.level == "loop":
                self._waiting = [waiting for waiting in self._waiting if not _suspects(*waiting, detection)]
        self._waiting.append((verdict, detection))

    def pop(self) -> Verdict:
        """The next one to perform; `Continue`: there is none."""
        return self._waiting.pop(0)[0] if self._waiting else Continue()

    def clear(self) -> None:
        """Nothing of it is to be performed any more."""
        self._waiting.clear()

    def take_back(self) -> None:
        """What was to follow from the findings of an attempt that is void does not: the model has never seen what it would be told of."""
        if self._before is not None:
            state, waiting = self._before
            self._before = None
            del self._waiting[waiting:]
            try:
                if state is not None:
                    self._policy.restore(state)
            except Exception as error:
                raise PolicyCrash(self._policy, error) from error


def _suspects(verdict: Verdict, suspicion: Detection | None, loop: Detection) -> bool:
    """Whether `verdict` only warns of a suspicion in the text in which `loop` was found."""
    return isinstance(verdict, Nudge) and suspicion is not None and suspicion.level == "suspect" and suspicion.channel == loop.channel
