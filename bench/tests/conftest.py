"""What holds for every test of the package holds here too. A bench collects garbage before each
measure, and what other tests have left is not its own.
"""

from __future__ import annotations

import gc

import pytest

pytest_plugins = ["tests.conftest"]


@pytest.fixture(autouse=True)
def _only_garbage_of_its_own() -> None:
    gc.freeze()
