"""The event loops on which the tests marked `anyio` run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import pytest

BOTH_LOOPS: Final = ("asyncio", "trio")


def cases_of_one_loop(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What is left out, so that each case of a test runs on one event loop, and each test on both.

    The cases of a test are dealt out in the order of a checksum of their names, so that no column
    of a table goes with one of the loops. A test without a table runs on both.
    """
    cases: dict[str, dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        loop = item.callspec.params.get("anyio_backend") if hasattr(item, "callspec") else None
        if loop in BOTH_LOOPS:
            name, _, case = item.nodeid.partition("[")
            case = "-".join(word for word in case.removesuffix("]").split("-") if word != loop)
            cases.setdefault(name, {}).setdefault(case, {})[loop] = item
    left_out: list[pytest.Item] = []
    for table in cases.values():
        dealt = sorted((case for case in table if len(table[case]) > 1), key=lambda case: zlib.crc32(case.encode()))
        if len(dealt) > 1:
            left_out.extend(table[case][BOTH_LOOPS[at % 2]] for at, case in enumerate(dealt))
    return left_out
