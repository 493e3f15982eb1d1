"""The soak still runs, finds nothing wrong, and would find it."""

from __future__ import annotations

import json

import pytest

import monitor
from bench import soak
from bench._soak_faults import FAULTS
from bench._soak_run import SoakedRun
from monitor.core.run import RunCore
from monitor.runs.supervised_run import Run
from monitor.runs.turn_loop import TurnLoop
from tests.adapters.google.sdk import sdk_warnings


def test_some_runs_with_faults() -> None:
    results = soak.measure(3, range(60), sdk_runs=0)
    soak.show(results)
    assert [run for run in results.runs if run.violations] == []
    assert len(results.runs) == 60
    assert {run.backend for run in results.runs} == {"asyncio", "trio"}
    data = json.loads(json.dumps(results.to_dict()))
    assert data["runs"] == 60
    assert data["wrong"] == []
    assert set(data["faults"]) <= set(FAULTS)


@sdk_warnings
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore2 leaves generators behind on trio
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the same
def test_a_few_with_the_sdk() -> None:
    results = soak.measure(3, (), sdk_runs=2)
    assert [run for run in results.runs if run.violations] == []
    assert len(results.runs) == 6


def test_a_seed_and_a_number_make_the_same_run_again() -> None:
    runs = [SoakedRun(5, 0, ("model: server",)) for _ in range(2)]
    results = [run.play() for run in runs]
    assert results[0] == results[1]
    assert [type(event) for event in runs[0].seen.events] == [type(event) for event in runs[1].seen.events]


def _wrong(fault: str) -> set[str]:
    """What is found of some runs with this fault."""
    return {violation for number in range(8) for violation in SoakedRun(7, number, (fault,)).play().violations}


def test_a_library_that_ignores_aborts_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "abort", lambda *_: None)
    assert any("aborted before" in violation for violation in _wrong("abort at an event"))


def test_a_library_that_forgets_results_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    record = TurnLoop._record

    def forgetful(self: TurnLoop, results: dict[str, monitor.chunks.ToolResult]) -> None:
        record(self, results)
        if isinstance(last := self._history.messages[-1], monitor.AssistantMessage):
            end = len(self._history.messages)
            less = (monitor.AssistantMessage(last.content),)
            self._history.commit(monitor.context.HistoryEdit(self._history.version, end - 1, end, less, "forget"))

    monkeypatch.setattr(TurnLoop, "_record", forgetful)
    assert any("without its result" in violation for violation in _wrong("tool: slow"))


def test_a_library_that_gives_untrue_reasons_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def goal(self: RunCore, ending: monitor.Stop | None) -> monitor.Stop:
        return monitor.Stop(monitor.TerminateReason.STREAM_ENDED, "all is well", "provider")

    monkeypatch.setattr(RunCore, "_ending", goal)
    assert any("no fault leads to it" in violation for violation in _wrong("break"))
