"""Events kept in a list."""

from __future__ import annotations

from monitor.events import Event


class MemorySink:
    """Keeps every event; `events` is the list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Append `event`."""
        self.events.append(event)
