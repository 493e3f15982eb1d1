"""How many random cases a law gets that is tried for each of many classes or pairs."""

from __future__ import annotations

from hypothesis import settings

FEWER_EACH = settings(max_examples=max(1, settings.get_profile("monitor").max_examples * 2 // 5))
"""Two fifths for each: all together have many hundreds."""
