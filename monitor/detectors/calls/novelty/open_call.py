"""A call that waits for its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from monitor.detectors.calls.novelty.step_reading import StepCall, StepResult


@dataclass(slots=True)
class OpenCall:
    """A call without a result."""

    reading: StepCall
    key: int
    batch: int
    siblings: int = 1
    """Different calls of its batch, which share one vote."""
    waits: bool = False
    """Whether the call asks for time to pass."""
    counted: bool = False
    """Whether the call was counted before it was answered."""
    result: StepResult | None = None
    """The result of the call, which waits for the results of the calls before it in its batch."""

    def save(self) -> list[Any]:
        """The state as JSON data."""
        reading = self.reading
        saved = [reading.name, reading.leaves[:], self.key, self.batch, self.siblings, self.waits, self.counted]
        return [*saved, None if self.result is None else self.result.save()]

    @classmethod
    def of(cls, saved: Sequence[Any]) -> OpenCall:
        """What `save` returned."""
        name, leaves, key, batch, siblings, waits, counted, result = saved
        reading = StepCall(name, [(place, value) for place, value in leaves])
        kept = None if result is None else StepResult(*result)
        return cls(reading, key, batch, siblings, waits, counted, kept)
