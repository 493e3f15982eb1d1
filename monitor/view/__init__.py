"""Shows runs on a terminal while they go on. Needs the extra `cli`."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.view.live_view import LiveView as LiveView
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
