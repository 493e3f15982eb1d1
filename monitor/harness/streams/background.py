"""Something that goes on beside the caller; tools need it too, so it stands with them."""

from monitor.tools.background import Background

__all__ = ["Background"]
