"""The benchmark of the compaction still runs, has numbers for all that it promises, and would find
what it looks for. Nothing is timed.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest

import monitor
from bench import compaction
from bench._compaction_cost import ROWS
from bench._compaction_faults import FaultRun
from bench._compaction_runs import Script, measure
from bench._compaction_script import Meter, stand_in
from monitor.compaction.keep import KeepTokens
from monitor.compaction.pinned import PinnedFacts
from monitor.context.history import History
from monitor.harness.compactor import Compactor
from monitor.messages import Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import ScriptedModel

FEW = ("default", "gemini_cli", "extractive")
"""One in the background, one in XML, one without a model; tests/compaction drives all of them."""
TINY = compaction.Sizes(
    presets=FEW,
    turns=60,
    joined=4,
    runs=12,
    fact_turns=40,
    fact_runs=4,
    facts=2,
    every=5,
    full=5_000,
    sizes=(),
    rounds=1,
    turn_turns=5,
    workers=1,
)
TIMED = ("loop blocked", "turn")


def test_compaction() -> None:
    results = compaction.run_all(TINY)
    compaction.show(results)
    data = json.loads(json.dumps(results.to_dict()))
    for name in ("long", "joined", "failing"):
        assert [row["preset"] for row in data[name]] == list(FEW)
        assert all(row["requests"] >= 60 and sum(row["compactions"].values()) for row in data[name])
    assert data["facts"][-1]["preset"] == "pinned only"
    assert all(row["kept"]["user preferences"] == {"kept": 2, "planted": 2} for row in data["facts"])
    assert data["struck"]["runs"] == 12
    assert {row["row"] for row in data["full_window"]} == set(ROWS)
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
    missed = {
        goal["goal"] for goal in data["goals"] if not goal["passed"] and not any(word in goal["goal"] for word in TIMED)
    }
    assert missed == set()


def test_a_request_is_counted_whole() -> None:
    said = UserMessage((Text("one two three"),))
    tools = (monitor.models.ToolSpec("look", "Look.", {"type": "object"}),)
    meter = Meter()
    counts = [
        meter.tokens(ModelRequest((said,) * many, instructions, tools))
        for many in (1, 2)
        for instructions in (None, "Be brief.")
    ]
    assert counts[0] < counts[1] < counts[2] < counts[3]


def test_the_stand_in_keeps_first_sentences_only() -> None:
    model = ScriptedModel(stand_in)
    messages = [UserMessage((Text(f"Wish {number}. " + f"And reason {number}. " * 20),)) for number in range(60)]
    result = anyio.run(
        partial(monitor.Compaction(keep=KeepTokens(1_000)).compact, messages, model=model, window=20_000)
    )
    assert len(model.requests) == 1
    assert result.record is not None
    assert "Wish 7." in result.record.summary
    assert "reason 7." not in result.record.summary


def test_a_library_that_forgets_outputs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.harness.run.frontier", lambda _: PinnedFacts())
    monkeypatch.setattr("monitor.compaction.pinned._handed_over", lambda _: ())
    row = measure("opencode", Script(200), every=200)
    assert row.outputs["gone"]


def test_a_library_that_commits_by_halves_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = History.commit

    def by_halves(self: History, edit: monitor.context.HistoryEdit) -> Any:
        done = commit(self, edit)
        self._messages.pop()
        self._shown = None
        return done

    monkeypatch.setattr(History, "commit", by_halves)
    found = [FaultRun(1, number, "abort").play() for number in range(6)]
    assert any("neither before nor after" in one for run in found for one in run.violations)


def test_a_library_that_commits_after_the_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: Compactor) -> None: ...

    monkeypatch.setattr(Compactor, "close", close)
    monkeypatch.setattr(Compactor, "cancel", lambda _: None)
    found = [FaultRun(1, number, "abort").play() for number in range(20)]
    assert any("after the end" in one or "tasks are left" in one for run in found for one in run.violations)
