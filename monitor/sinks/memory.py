"""Events kept in a list."""

from __future__ import annotations

from monitor.events import Envelope, Event


class MemorySink:
    """Keeps every event. `events` has those of the run, `envelopes` also those of its nested
    runs.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        """The events of each run that no other run here has called, in order."""
        self.envelopes: list[Envelope] = []
        """The events of all runs, with whose they are. What `emit` was given is not among them."""
        self._runs: set[str] = set()

    def receive(self, envelope: Envelope) -> None:
        """Append `envelope`; its event too, if it is of no nested run."""
        self._runs.add(envelope.run)
        self.envelopes.append(envelope)
        if envelope.parent not in self._runs:
            self.events.append(envelope.event)

    def emit(self, event: Event) -> None:
        """Append `event` to the list of events."""
        self.events.append(event)

    def of(self, run: str) -> list[Event]:
        """The events of the run with this id."""
        return [envelope.event for envelope in self.envelopes if envelope.run == run]
