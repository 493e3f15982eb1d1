"""Benches collect garbage before each measure; what the tests before them have left is none of it."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _only_garbage_of_its_own() -> None:
    gc.freeze()
