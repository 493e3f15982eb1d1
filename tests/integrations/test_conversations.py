"""The conversation decides which run a request belongs to, and where a task begins: the same
programs in each framework that has them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import monitor
from tests.integrations.drivers import DRIVERS, OF_SCENES, OPEN

ALL = DRIVERS | OF_SCENES
PROGRAMS = {
    "batch": (
        *("pydantic-ai", "openai-agents", "langchain", "autogen", "adk", "strands"),
        *("agent-framework", "crewai"),
    ),
    "chat": ("pydantic-ai", "openai-agents", "langchain", "autogen", "adk", "strands", "agent-framework"),
    "approval": ("pydantic-ai", "openai-agents", "langchain", "adk", "strands", "agent-framework"),
    "resume": ("pydantic-ai", "openai-agents", "langchain", "autogen"),
}
"""The frameworks that have each program."""
QUESTIONS = [f"Is file number {number} in the archive, and who has put it there?" for number in range(32)]
ANSWER = "Yes, the file is in the archive, and it was put there by the librarian."


def _with(*programs: str) -> Any:
    return pytest.mark.parametrize(
        ("framework", "program"),
        [
            pytest.param(name, program, id=f"{name}-{program}", marks=_ignoring(name))
            for program in programs
            for name in PROGRAMS[program]
        ],
    )


def _ignoring(framework: str) -> list[Any]:
    """The warnings of the frameworks themselves."""
    warnings = (*ALL[framework].warnings, *OPEN, "::DeprecationWarning", "::UserWarning")
    return [pytest.mark.filterwarnings(f"ignore{one}") for one in warnings]


def _loaded(framework: str, program: str) -> Callable[..., Any]:
    for package in ALL[framework].packages:
        pytest.importorskip(package, reason=f"the framework is not installed: {package}")
    module = importlib.import_module(f"tests.integrations.conversations.{framework.replace('-', '_')}")
    found: Callable[..., Any] = module.PROGRAMS[program]
    return found


def _answers(framework: str) -> Any:
    wire = ALL[framework].wire
    return lambda _: wire.says(*ANSWER.split("|"))


@pytest.mark.asyncio
@_with("batch", "chat")
async def test_equal_answers_to_different_questions_are_no_loop(framework: str, program: str):
    asked = _loaded(framework, program)
    with ALL[framework].wire.server(_answers(framework)) as server:
        async with monitor.Guard() as guard:
            answers = await asked(server.base_url, guard, QUESTIONS)
    assert answers == [ANSWER] * len(QUESTIONS)
    assert guard.outcome.ok
    assert guard.outcome.turns == len(QUESTIONS)


@pytest.mark.asyncio
@_with("batch", "chat")
async def test_a_limit_holds_for_all_questions_together(framework: str, program: str):
    asked = _loaded(framework, program)
    with ALL[framework].wire.server(_answers(framework)) as server:
        async with monitor.Guard(stop_when=monitor.MaxTurns(5)) as guard:
            with pytest.raises(Exception, match="max_turns"):
                await asked(server.base_url, guard, QUESTIONS)
        assert len(server.requests) == 5
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS


@pytest.mark.asyncio
@_with("approval", "resume")
async def test_a_run_that_goes_on_is_the_same_run_and_its_results_are_seen(framework: str, program: str):
    goes_on, wire = _loaded(framework, program), ALL[framework].wire
    looked: list[str] = []

    def look(q: str) -> str:
        """Looks."""
        looked.append(q)
        return f"{len(looked)} of 3 files are copied"

    with wire.server(wire.looks(3)) as server:
        async with monitor.Guard() as guard:
            answer = await goes_on(server.base_url, guard, look)
    assert answer == "It is done."
    assert (len(looked), guard.outcome.turns) == (3, 4)
    covered = {one.what: one.detail for one in guard.coverage()}
    assert covered["results"] == "3 of 3 calls have their result"


@pytest.mark.asyncio
@_with("approval", "resume")
async def test_a_loop_is_found_over_approvals_and_resumptions(framework: str, program: str):
    goes_on, wire = _loaded(framework, program), ALL[framework].wire

    def look(q: str) -> str:
        """Looks."""
        return f"nothing about {q} was found in the archive"

    with wire.server(wire.looks(20)) as server:
        async with monitor.Guard() as guard:
            with pytest.raises(Exception, match="loop_detected"):
                await goes_on(server.base_url, guard, look)
        assert len(server.requests) < 10
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
