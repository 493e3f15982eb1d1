"""Tasks beside the caller. Tools need them too, so they stand with the tools."""

from monitor.tools.background_task import Background

__all__ = ["Background"]
