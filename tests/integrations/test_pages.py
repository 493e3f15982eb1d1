"""The pages of the frameworks that are not part of every environment: their code is run here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scripts.snippets import PAGES, Snippet, snippets
from tests.integrations.drivers import ADK

SNIPPETS = [one for page in PAGES for one in snippets(page) if one.module is not None]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda one: one.name)
@pytest.mark.filterwarnings(*[f"ignore{one}" for one in (*ADK.warnings, "::DeprecationWarning")])
def test_the_code_of_a_page_runs(
    snippet: Snippet, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert snippet.module is not None
    pytest.importorskip(snippet.module, reason=f"`make frameworks` runs this: {snippet.module} is not installed here")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet.code, str(snippet.page), "exec"), {"__name__": "__main__"})
    asyncio.set_event_loop(None)
    assert "loop_detected" in capsys.readouterr().out
