from __future__ import annotations

import pytest

import monitor
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, ToolErrorKind
from monitor.testing import call
from monitor.tools.calls.scheduler import Scheduler
from tests.runs.driving import drive

pytestmark = pytest.mark.anyio


@monitor.tool
async def find(year: int) -> str:
    """Find what happened."""
    if year < 1900:
        raise monitor.tools.ToolRetry("there is nothing before 1900")
    return "found"


def with_retries(number: int) -> monitor.tools.FunctionTool[[int], str]:
    return monitor.tools.FunctionTool(find.fn, model_retries=number)  # type: ignore[arg-type]


async def made(scheduler: Scheduler, turn: int, *years: int) -> list[ToolResult]:
    calls = [ToolCall(f"{turn}.{at}", "find", {"year": year}) for at, year in enumerate(years)]
    return await scheduler.carry_out(calls, turn=turn)


async def test_a_tool_asks_for_another_try_so_often_and_then_it_has_failed():
    scheduler = Scheduler({"find": with_retries(2)})
    said = [(await made(scheduler, turn, 1800))[0] for turn in (1, 2, 3)]
    assert [one.error_kind for one in said] == [ToolErrorKind.RETRY] * 2 + [ToolErrorKind.EXECUTION_FAILED]
    assert said[0].text == (
        "Error: there is nothing before 1900\nCorrect the call and make it again; you may do so 2 times."
    )
    assert said[1].text.endswith("you may do so once.")
    assert "go on without it" in said[2].text


async def test_a_good_answer_begins_the_count_anew_and_the_calls_of_one_response_count_once():
    scheduler = Scheduler({"find": with_retries(1)})
    kinds = [one.error_kind for one in await made(scheduler, 1, 1, 2, 3)]
    assert kinds == [ToolErrorKind.RETRY] * 3
    assert (await made(scheduler, 2, 1900))[0].text == "found"
    assert (await made(scheduler, 3, 1))[0].error_kind is ToolErrorKind.RETRY
    assert (await made(scheduler, 4, 1))[0].error_kind is ToolErrorKind.EXECUTION_FAILED


async def test_without_retries_it_is_an_error_at_once():
    (result,) = await made(Scheduler({"find": with_retries(0)}), 1, 1)
    assert result.error_kind is ToolErrorKind.EXECUTION_FAILED
    with pytest.raises(ConfigError, match="model_retries"):
        with_retries(-1)


async def test_the_model_of_a_run_reads_why_and_makes_its_call_again():
    run = await drive(call("find", year=1800), call("find", year=1900), "done", tools=[find])
    assert run.outcome.ok
    assert [result.text for turn in (0, 1) for result in run.results(turn)] == [
        "Error: there is nothing before 1900\nCorrect the call and make it again; you may do so 3 times.",
        "found",
    ]
