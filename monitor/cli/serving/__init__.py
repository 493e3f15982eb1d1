"""`agent-monitor proxy` from its options to its server."""
