"""CrewAI: one agent with a tool, tasks at once, and delegation."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai", reason="the framework is not installed: crewai")

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool as made

import monitor
from monitor.integrations.crewai import Stopped, guarded_llm
from monitor.testing import LocalOpenAI
from tests.integrations.teams.service import Service
from tests.integrations.wires import OPENAI

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))


def llm_of(url: str, guard: Any, *, stream: bool = False) -> Any:
    llm = LLM(model="openai/local", base_url=url, api_key="none", stream=stream, max_retries=0)
    return llm if guard is None else guarded_llm(llm, guard)


def agent_of(llm: Any, name: str = "one", tools: Any = (), **options: Any) -> Agent:
    return Agent(role=name, goal="g", backstory=f"AGENT:{name}", llm=llm, tools=[*tools], max_iter=30, **options)


def task(name: str, agent: Agent, **options: Any) -> Task:
    return Task(name=name, description=f"do {name}", expected_output="x", agent=agent, **options)


def looks(answer: Any = lambda: "nothing was found in the archive") -> Any:
    @made("look")
    def look(q: str) -> str:
        """Looks."""
        return str(answer())

    look.cache_function = lambda *_: False
    return look


def run(agents: list[Agent], *tasks: Task) -> Any:
    return Crew(agents=agents, tasks=[*tasks]).kickoff()


def ended(agents: list[Agent], guard: monitor.Guard, *tasks: Task) -> None:
    """The run ends with the stop of the guard."""
    with pytest.raises(Stopped, match="loop_detected"), guard:
        run(agents, *tasks)


@pytest.mark.parametrize("stream", [False, True])
def test_a_good_run_gives_the_same_with_the_guard_as_without(stream: bool):
    seen: list[Any] = []
    guard = monitor.Guard(stop_when=monitor.MaxTurns(30))
    with LocalOpenAI([*OPENAI.looks(1)[:1], OPENAI.says("It is ", "done.")] * 2) as server, guard:
        for one in (None, guard):
            agent = agent_of(llm_of(server.base_url, one, stream=stream), tools=[looks()])
            result = run([agent], task("t", agent))
            seen.append((result.raw, result.token_usage.model_dump()))
        bodies = [
            {name: value for name, value in request.body.items() if not name.startswith("stream")}
            for request in server.requests
        ]
        assert len(bodies) == 4
        assert bodies[:2] == bodies[2:]
    assert seen[0] == seen[1]
    assert guard.outcome.turns == 2
    assert guard.outcome.usage.total_tokens == 2 * 10
    assert {one.what: one.guarded for one in guard.coverage()}["results"]


def test_a_chant_is_cut_is_not_retried_and_the_server_sees_the_client_leave():
    with LocalOpenAI([OPENAI.chants()]) as server:
        guard = monitor.Guard()
        agent = agent_of(llm_of(server.base_url, guard), max_retry_limit=2)
        ended([agent], guard, task("t", agent))
        server.wait_closed(0)
        assert len(server.requests) == 1
        assert server.requests[0].events_sent < 500
    assert guard.outcome.closed


def test_a_loop_of_equal_calls_with_equal_results_is_seen_over_the_turns():
    with LocalOpenAI(OPENAI.looks(20)) as server:
        guard = monitor.Guard()
        agent = agent_of(llm_of(server.base_url, guard), tools=[looks()])
        ended([agent], guard, task("t", agent))
        assert len(server.requests) == 5


def test_equal_calls_with_changing_results_are_no_loop():
    numbers = itertools.count(1)
    with LocalOpenAI(OPENAI.looks(6)) as server:
        guard = monitor.Guard()
        with guard:
            agent = agent_of(
                llm_of(server.base_url, guard), tools=[looks(lambda: f"{next(numbers)} of 6 files are copied")]
            )
            assert run([agent], task("t", agent)).raw == "It is done."
    assert guard.outcome.ok
    assert guard.outcome.turns == 7


@pytest.mark.parametrize("how", ["tasks at once", "delegation", "two delegations at once"])
def test_a_good_team_gives_the_same_with_the_guard_as_without(how: str):
    service = Service(OPENAI)
    asked = [{"task": "1", "context": "c", "coworker": name} for name in ("a", "b")]
    calls = asked[: 2 if how == "two delegations at once" else 1]
    service.first = {"boss": service.calls(*[("delegate_work_to_coworker", one) for one in calls])}
    seen: list[Any] = []
    guard = monitor.Guard()
    with LocalOpenAI(service) as server, guard:
        for one in (None, guard):
            llm, before = llm_of(server.base_url, one), len(server.requests)
            a, b, c = (agent_of(llm, name) for name in "abc")
            if how == "tasks at once":
                two = [task(f"t{agent.role}", agent, async_execution=True) for agent in (a, b)]
                result = run([a, b, c], *two, task("tc", c, context=two))
            else:
                boss = agent_of(llm, "boss", allow_delegation=True)
                result = run([boss, a, b], task("t", boss))
            told = [(output.name, output.agent, output.raw) for output in result.tasks_output]
            asked_for = sorted(str(request.body["messages"]) for request in server.requests[before:])
            seen.append((told, result.token_usage.model_dump(), asked_for))
    assert seen[0] == seen[1]
    assert len(seen[0][2]) == {"tasks at once": 3, "delegation": 3, "two delegations at once": 4}[how]
    assert guard.outcome.ok


@pytest.mark.parametrize("how", ["tasks at once", "delegation"])
def test_a_loop_of_one_agent_ends_all_of_them_and_no_request_follows(how: str):
    service = Service(OPENAI)
    asked = {"task": "1", "context": "c", "coworker": "a"}
    service.first = {
        "a": service.chants(),
        "b": service.slow(),
        "boss": service.calls(("delegate_work_to_coworker", asked)),
    }
    with LocalOpenAI(service) as server:
        guard = monitor.Guard()
        llm = llm_of(server.base_url, guard)
        a, b, c = (agent_of(llm, name) for name in "abc")
        if how == "delegation":
            boss = agent_of(llm, "boss", allow_delegation=True)
            ended([boss, a], guard, task("t", boss))
        else:
            one, two = (task(f"t{agent.role}", agent, async_execution=True) for agent in (a, b))
            ended([a, b, c], guard, one, two, task("tc", c, context=[one, two]))
        assert len(server.requests) <= 2
        for number, request in enumerate(server.requests):
            if request.events_sent > 5:
                server.wait_closed(number)
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
