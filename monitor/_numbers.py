"""What passes for a number where a user may give anything, and when two sums of floats are the same."""

from __future__ import annotations

import sys
from typing import TypeGuard

ROUNDING_USD = 1e-9
"""Costs are sums of floats: a limit is passed by more than this, a tenth of what a token costs at a cent a million."""


def is_whole(value: object) -> TypeGuard[int]:
    """A whole number; `True` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """A number that a float can hold, neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
