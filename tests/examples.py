"""How many random cases a law is tried with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")

ALL_CASES: Final = "CI" in os.environ or "MONITOR_EXAMPLES" in os.environ
"""Somebody has asked for all cases, or the tests run in CI: then nothing is left out for speed."""

FEWER_EACH = settings(max_examples=max(1, settings.get_profile("monitor").max_examples * 2 // 5))
"""For a law that is tried for each of many classes or pairs: two fifths for each, so all together
have many hundreds.
"""


def tries(many: int) -> int:
    """`many` where all cases are tried, and half of them in a run that is to be quick."""
    return many if ALL_CASES else many // 2


def every_second(cases: Iterable[T], *, odd: bool = False) -> list[T]:
    """All of `cases` where all cases are tried, and every second one in a run that is to be quick:
    those with an even number, or with an odd one if `odd` is true.
    """
    return list(cases) if ALL_CASES else [*islice(cases, int(odd), None, 2)]


def at_least(many: int) -> settings:
    """`tries(many)` random cases, or more where MONITOR_EXAMPLES asks for more."""
    return settings(max_examples=max(tries(many), settings.get_profile("monitor").max_examples))
