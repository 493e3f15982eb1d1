"""Policies: from findings to a verdict.

A policy is pure and may keep state (strikes, a watch list); guard and supervisor only perform what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from monitor.reasons import TerminateReason
from monitor.verdicts import Continue, Detection, Stop, Verdict


class Policy(Protocol):
    """Decides what follows from a detection."""

    def decide(self, detection: Detection) -> Verdict:
        """The verdict on one detection, in the order in which they were raised."""
        ...

    def reset(self) -> None:
        """Forget everything, for a new run."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state as small JSON data with a `version`."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on as if never interrupted since `snapshot()`."""
        ...


class StopAtFirstLoop:
    """A suspicion is an event, a sure loop ends the run. The guard's default."""

    def decide(self, detection: Detection) -> Verdict:
        """`Stop` for a loop, `Continue` for a suspicion."""
        return stop_for(detection) if detection.level == "loop" else Continue()

    def reset(self) -> None:
        """Nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        """No state."""
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """No state."""


class ObserveOnly:
    """Detections are events and nothing else: for trying detectors out on live runs."""

    def decide(self, detection: Detection) -> Verdict:
        """Always `Continue`."""
        return Continue()

    def reset(self) -> None:
        """Nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        """No state."""
        return {"version": 1}

    def restore(self, state: Mapping[str, Any]) -> None:
        """No state."""


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
