"""Events kept in a list."""

from __future__ import annotations

from monitor.events import Envelope, Event


class MemorySink:
    """Keeps every event, also those of nested runs. `envelopes` says whose each is."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """Every event, in order."""
        self.envelopes: list[Envelope] = []
        """The same with whose they are. An event that was given to `emit` is not among them."""

    def receive(self, envelope: Envelope) -> None:
        """Append `envelope`, and its event."""
        self.envelopes.append(envelope)
        self.events.append(envelope.event)

    def emit(self, event: Event) -> None:
        """Append `event`."""
        self.events.append(event)

    def of(self, run: str) -> list[Event]:
        """The events of the run with this id."""
        return [envelope.event for envelope in self.envelopes if envelope.run == run]
