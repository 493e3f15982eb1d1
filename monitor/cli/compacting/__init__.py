"""The parts of `agent-monitor compact`: what is given, how it is compacted, and the result."""
