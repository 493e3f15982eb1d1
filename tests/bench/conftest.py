"""A bench collects garbage before each measure. What other tests have left is not its own."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _only_garbage_of_its_own() -> None:
    gc.freeze()
