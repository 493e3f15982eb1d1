"""Shows runs on a terminal while they go on. Needs the extra `cli`."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.view.live import LiveView as LiveView

__all__ = ["LiveView"]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(__name__, {"LiveView": "monitor.view.live"})
