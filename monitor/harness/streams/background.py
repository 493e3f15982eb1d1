"""Tasks beside the caller. Tools need them too, so they stand with the tools."""

from monitor.tools.event_loop import Background

__all__ = ["Background"]
