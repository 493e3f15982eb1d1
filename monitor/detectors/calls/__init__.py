"""The detectors of calls, and what they know of tools and answers."""
