"""Sessions of the tests stand in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a session may be made."""
    return tmp_path / "a.session"
