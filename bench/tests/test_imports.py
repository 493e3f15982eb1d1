"""Every bench imports what it needs and says what it measures. `make check` runs this file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FILES = Path(__file__).parents[1].glob("[!_]*.py")
BENCHES = sorted(file.stem for file in FILES if "\ndef main(" in file.read_text("utf-8"))


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_imports_and_has_help(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main()
    assert not ended.value.code
    assert f"python -m bench.{name}" in capsys.readouterr().out
