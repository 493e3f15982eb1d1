"""Results are typed as they were declared: read by both type checkers, and run by
`tests/test_typed_results.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, assert_type

from pydantic import BaseModel

import monitor
from monitor.testing import ScriptedModel, call


class Review(BaseModel):
    """A model of pydantic."""

    summary: str
    risk: float = 0.0


@dataclass
class Finding:
    """A dataclass."""

    summary: str
    risk: float = 0.0


class Report(TypedDict):
    """A TypedDict."""

    summary: str
    risk: NotRequired[float]


def scripted() -> ScriptedModel:
    """Emits a summary."""
    return ScriptedModel([call("emit_value", name="summary", value="Fine.")])


async def of_a_model() -> str:
    """A pydantic model."""
    supervisor = monitor.Supervisor(scripted(), outputs=Review)
    assert_type(supervisor, monitor.Supervisor[Review])
    outcome = await supervisor.run("go")
    assert_type(outcome, monitor.Outcome[Review])
    assert_type(outcome.output, Review)
    assert_type(outcome.raise_for_reason().output.risk, float)
    return outcome.output.summary


async def of_a_dataclass() -> str:
    """A dataclass, event by event."""
    supervisor = monitor.Supervisor(scripted(), outputs=Finding)
    async with supervisor.stream("go") as run:
        async for event in run:
            assert_type(event, monitor.events.Event)
    assert_type(run, monitor.Run[Finding])
    assert_type(run.outcome.output, Finding)
    return run.outcome.output.summary


async def of_a_typed_dict() -> str:
    """A TypedDict, and a resumed or synchronous run has the same type."""
    supervisor = monitor.Supervisor(scripted(), outputs=Report)
    outcome = await supervisor.run("go")
    assert_type(outcome.output, Report)
    return outcome.output["summary"]


def unioned() -> ScriptedModel:
    """Emits one of two kinds."""
    return ScriptedModel([call("emit_value", name="Finding", value={"summary": "Fine."})])


async def of_a_union() -> str:
    """Either of two classes."""
    supervisor = monitor.Supervisor(unioned(), outputs=Review | Finding, agent="one")
    assert_type(supervisor, monitor.Supervisor[Review | Finding])
    outcome = await supervisor.run("go")
    assert_type(outcome.output, Review | Finding)
    assert isinstance(outcome.output, Finding)
    return outcome.output.summary


async def of_a_guard_with_a_union() -> str:
    """A guard has the same types."""
    async with monitor.Guard(outputs=Review | Finding, agent="one") as guard:
        async with guard.watch(_one_of_two()) as watched:
            async for _ in watched:
                pass
        for one in watched.turn.tool_calls:
            guard.answer(one)
        guard.finish()
    assert_type(guard.outcome, monitor.Outcome[Review | Finding])
    return guard.outcome.output.summary


async def _one_of_two() -> Any:
    yield call("emit_value", name="Review", value={"summary": "Fine."})


async def of_types() -> str:
    """A dict of types says nothing to a type checker."""
    outcome = await monitor.Supervisor(scripted(), outputs={"summary": str}).run("go")
    assert_type(outcome.output, Any)
    return str(outcome.output["summary"])


async def of_a_guard() -> str:
    """A guard has the same types."""
    async with monitor.Guard(outputs=Review) as guard:
        async with guard.watch(_chunks()) as watched:
            async for _ in watched:
                pass
        for one in watched.turn.tool_calls:
            guard.answer(one)
        guard.finish()
    assert_type(guard.outcome, monitor.Outcome[Review])
    return guard.outcome.output.summary


async def _chunks() -> Any:
    yield call("emit_value", name="summary", value="Fine.")


def named(outcome: monitor.Outcome[Review]) -> Review:
    """A function of a program that takes an outcome."""
    return outcome.output


def any_outcome(outcome: monitor.Outcome) -> object:
    """A function that takes every outcome, as before."""
    return outcome.output


def of_a_synchronous_run() -> Review:
    """In a program without an event loop."""
    outcome = monitor.Supervisor(scripted(), outputs=Review).run_sync("go")
    any_outcome(outcome)
    return named(outcome)
