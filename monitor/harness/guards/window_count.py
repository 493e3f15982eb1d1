"""How full the model's window is, by the provider's count: the caller keeps the history, so nothing
else is known of it.
"""

from __future__ import annotations

from monitor.context.history import History
from monitor.context.measure.fullness import Full, Fullness
from monitor.context.measure.window import Window
from monitor.outcome import Turn


class WindowCount:
    """The provider's counts of the turns of one guard, compared with the window."""

    __slots__ = ("_full", "_fullness", "_weighed", "_window", "tried_inside")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._fullness: Fullness | None = None
        self._full: Full | None = None
        self._weighed: Turn | None = None
        self.tried_inside = False
        """Whether the count of the running turn covers several attempts, and so says nothing."""

    def weigh(self, turn: Turn | None) -> None:
        """Compare the count of the turn that has just ended with the window."""
        if turn is not None and turn is not self._weighed and not self.tried_inside:
            self._weighed = turn
            if self._fullness is None:
                self._fullness = Fullness(History(), self._window)
            full = self._fullness.after_turn(turn)
            self._full = full or (self._full if self._fullness.full else None)

    def news(self) -> Full | None:
        """The full window, where it has become full since the last question."""
        full, self._full = self._full, None
        return full
