"""What the commands print goes into a pipe, as wide as they make it themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist tells its workers how wide its own terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)
