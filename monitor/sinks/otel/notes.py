"""An event of a run as a moment of its trace: a name and attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monitor._util.codec import tag_of
from monitor.events import Event, StopDecided
from monitor.outcome import is_success
from monitor.sinks.descriptions import DESCRIPTIONS


@dataclass(slots=True, frozen=True)
class Note:
    """A moment of a run. `guardrail`: the monitor has found or done something."""

    name: str
    attributes: dict[str, Any]
    guardrail: bool = False


def note_of(event: Event) -> Note | None:
    """The moment of `event`. `None`: a trace has the event as a span, or not at all. A stop at the
    goal is a step like others.
    """
    described = DESCRIPTIONS[type(event)]
    if described.facts is None:
        return None
    guardrail = described.guardrail and not (isinstance(event, StopDecided) and is_success(event.stop))
    return Note(f"monitor.{described.name or tag_of(type(event))}", described.facts(event), guardrail)
