"""The event loops on which the tests marked `anyio` run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import pytest

BOTH_LOOPS: Final = ("asyncio", "trio")


def cases_of_one_loop(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What is left out, so that each case of a test runs on one event loop, and each file on both.

    The cases of a file are dealt out in the order of its tests' names. Those of one test come in
    the order of a checksum, so that a table runs on both loops and none of its columns on only one.
    """
    files: dict[str, dict[tuple[str, int, str], dict[str, pytest.Item]]] = {}
    for item in items:
        loop = item.callspec.params.get("anyio_backend") if hasattr(item, "callspec") else None
        if loop in BOTH_LOOPS:
            file, _, test = item.nodeid.partition("::")
            name, _, case = test.partition("[")
            case = "-".join(word for word in case.removesuffix("]").split("-") if word != loop)
            files.setdefault(file, {}).setdefault((name, zlib.crc32(case.encode()), case), {})[loop] = item
    left_out: list[pytest.Item] = []
    for cases in files.values():
        dealt = sorted(case for case in cases if len(cases[case]) > 1)
        left_out.extend(cases[case][BOTH_LOOPS[1 - at % 2]] for at, case in enumerate(dealt))
    return left_out
