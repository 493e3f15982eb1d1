"""The score is high where calls get nowhere, and low where work looks alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.chunks import ToolCall, ToolResult, TurnFinished
from monitor.judges.digest import SUSPICIOUS, Suspicion
from monitor.transcripts import Corpus, RecordedRun

CORPUS = Path(__file__).parents[2] / "fixtures" / "transcripts" / "dev.jsonl.gz"
PAGE = "Nothing was found for your query. " * 10


def score(
    calls: int, arguments: Callable[[int], object], answer: Callable[[int], str], *, failed: bool = False
) -> float:
    suspicion = Suspicion()
    for number in range(calls):
        suspicion.add_call(ToolCall(f"c{number}", "tool", {"x": arguments(number)}))
        suspicion.add_result(ToolResult(f"c{number}", "tool", answer(number), failed))
    return suspicion.score


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("the same call with the same answer", score(12, lambda _: 1, lambda _: "closed")),
        ("other words, the same page", score(12, lambda n: n, lambda _: PAGE)),
        ("other words, the same error", score(12, lambda n: n, lambda _: "no such column", failed=True)),
        ("two calls in turn", score(12, lambda n: n % 2, lambda n: str(n % 2))),
    ],
)
def test_a_run_that_gets_nowhere_is_suspicious(what: str, found: float):
    assert found >= SUSPICIOUS, what


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("polling", score(12, lambda _: 1, str)),
        ("reading many files", score(12, lambda n: n, lambda n: PAGE + str(n))),
        ("writing many files", score(12, lambda n: n, lambda _: "ok")),
        ("failing differently each time", score(12, lambda n: n, str, failed=True)),
        ("too few calls", score(4, lambda _: 1, lambda _: "closed")),
    ],
)
def test_work_is_not(what: str, found: float):
    assert found < SUSPICIOUS, what


def test_it_forgets_what_was_long_ago():
    suspicion = Suspicion()
    for number in range(30):
        suspicion.add_call(ToolCall("c", "tool", {"x": 0 if number < 12 else number}))
        suspicion.add_result(ToolResult("c", "tool", "closed" if number < 12 else str(number)))
    assert suspicion.score == 0.0


def test_a_result_without_its_call_and_calls_without_results_do_no_harm():
    suspicion = Suspicion()
    for number in range(1_000):
        suspicion.add_call(ToolCall(f"c{number}", "tool", {}))
        suspicion.add_result(ToolResult("unknown", "", str(number)))
    assert suspicion.score == 0.0
    assert len(suspicion._open) <= 80


def _suspected(run: RecordedRun) -> bool:
    """From turn 5 on, as a judge asks."""
    suspicion, turns, found = Suspicion(), 0, False
    for _, chunk in run.chunks():
        if isinstance(chunk, ToolCall):
            suspicion.add_call(chunk)
        elif isinstance(chunk, ToolResult):
            suspicion.add_result(chunk)
        elif isinstance(chunk, TurnFinished):
            turns += 1
            found |= turns >= 4 and suspicion.score >= SUSPICIOUS
    return found


def test_on_recorded_runs_it_asks_about_most_loops_and_few_others():
    runs = [run for run in Corpus(CORPUS) if sum(message.role == "assistant" for message in run.messages) >= 5]
    loops = [_suspected(run) for run in runs if run.loop is not None and run.loop.kind.startswith(("tool", "error"))]
    others = [_suspected(run) for run in runs if run.label in {"clean", "hard_negative"}]
    assert sum(loops) >= 74
    assert sum(others) <= 5
    assert (len(loops), len(others)) == (79, 254)
