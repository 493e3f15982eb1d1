"""One SQLite file of several processes: what is left to the garbage collector is closed."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import StoreError
from monitor.shared.stores import OneFile


@pytest.mark.parametrize("name", [":memory:", "counts.db"])
def test_a_file_that_nobody_has_closed_is_closed_when_it_is_forgotten(tmp_path: Path, name: str):
    """From 3.13 on Python warns of a database that was not closed."""
    path = name if name == ":memory:" else tmp_path / name
    file = OneFile(path, (), synchronous="normal", error=StoreError, content="counts")
    opened: list[sqlite3.Connection] = []

    def keep(execute: Any, _: float) -> None:
        opened.append(execute.__self__)

    for _ in range(2):
        file.run(keep)  # here, for a worker thread may hold the file a while longer
        file.close()
    file.run(keep)
    del file
    gc.collect()
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            connection.execute("select 1")
