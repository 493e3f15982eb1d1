"""What passes for a number where a user may give anything, and when two sums of floats are the same."""

from __future__ import annotations

import sys

ROUNDING_USD = 1e-9
"""Costs are sums of floats: a limit is passed by more than this, a tenth of what a token costs at a cent a million."""


def is_count(value: object) -> bool:
    """A whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_finite(value: object) -> bool:
    """A number that a float can hold, neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
