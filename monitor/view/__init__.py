"""Shows runs on a terminal while they go on. Needs the extra `cli`.

Only `LiveView` is public.
"""

from monitor.errors import MissingExtra

try:
    import rich as _rich  # noqa: F401 - whether it is there
except ImportError:
    raise MissingExtra("rich", "cli") from None

from monitor.view.live import LiveView as LiveView

__all__ = ["LiveView"]
