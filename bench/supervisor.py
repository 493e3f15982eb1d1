"""What supervising costs: time for every turn, also after thousands of them, and memory for every
run.

    python -m bench.supervisor [--quick]

The model is a script that costs nothing: each turn calls one async tool, the last one gives the
answer. The same script drives other agent libraries, where they are installed (`pip install
'agent-monitor[bench]'`). Times are processor time, of rounds in which all rows take turns; their
median stands in the table.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, TypeAlias

import anyio
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from monitor.chunks import TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason
from monitor.tools.calls.scheduler import carry_out
from monitor.tools.registry import Registry

Job: TypeAlias = Callable[[], Awaitable[None]]

LIMITS = monitor.MaxTurns(10**9) | monitor.Timeout(3600) | monitor.IdleTimeout(600) | monitor.TokenLimit(10**9)
OURS = "agent-monitor: limits and default detectors"
PACKAGES = ("anyio", "openai-agents", "autogen-agentchat", "pydantic-ai-slim")
DONE = TurnFinished(FinishReason.DONE)

GOAL_TURN_US = 100.0
"""10,000 turns a second. Not reached: most of what is left are the detectors, the looks at the
limits, and the task of the tool.
"""
GOAL_GROWTH = 1.25
GOAL_RUN_KB = 64.0

_console = Console(width=150)


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    turns: int
    rounds: int
    long_run: int
    block: int
    """Turns at the beginning and at the end of the long run that are compared."""
    crowd: int
    crowd_turns: int


FULL = Plan(turns=300, rounds=9, long_run=10_000, block=1_000, crowd=1_000, crowd_turns=5)
QUICK = Plan(turns=50, rounds=2, long_run=1_000, block=100, crowd=100, crowd_turns=3)


# --- the script


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class _Stream(AsyncIterator[Any]):
    """A turn, as a stream that never suspends."""

    def __init__(self, *items: Any) -> None:
        self._items = iter(items)

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Any:
        for item in self._items:
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None: ...


class _Model:
    """Calls `add` so many times. `at_turn` is told the number of each turn as it begins."""

    name = "script:model"

    def __init__(self, turns: int, at_turn: Callable[[int], object] | None = None, wait: Job | None = None) -> None:
        self._turns = turns
        self._made = 0
        self._at_turn = at_turn
        self._wait = wait

    def stream(self, _: monitor.models.ModelRequest) -> Any:
        made, self._made = self._made, self._made + 1
        if self._at_turn is not None:
            self._at_turn(made)
        if made < self._turns:
            return _Stream(TextDelta("I add."), ToolCall(f"call_{made}", "add", {"a": made, "b": 1}), DONE)
        return self._last() if self._wait is not None else _Stream(TextDelta("Done."), DONE)

    async def _last(self) -> _Stream:
        if self._wait is not None:
            await self._wait()
        return _Stream(TextDelta("Done."), DONE)


async def _supervised(turns: int, **options: Any) -> None:
    supervisor = monitor.Supervisor(_Model(turns), tools=[add], **{"stop_when": None, **options})
    outcome = await supervisor.run("add")
    assert outcome.ok
    assert outcome.turns == turns + 1


# --- time for a turn


@dataclass
class Cost:
    """Processor time for a turn, in microseconds."""

    row: str
    us: float
    us_worst: float

    @property
    def turns_per_s(self) -> int:
        return round(1e6 / self.us)


async def _rounds(jobs: dict[str, Job], *, turns: int, rounds: int) -> list[Cost]:
    """All rows in turn, again and again, after one round to warm up."""
    us: dict[str, list[float]] = {row: [] for row in jobs}
    for number in range(rounds + 1):
        for row, job in jobs.items():
            gc.collect()
            begun = time.process_time()
            await job()
            if number:
                us[row].append((time.process_time() - begun) / turns * 1e6)
    return [Cost(row, median(times), max(times)) for row, times in us.items()]


async def _parts(plan: Plan) -> list[Cost]:
    """Ours, and ours with parts left out: the difference is what a part costs."""
    tools = Registry([add])

    async def tools_only() -> None:
        for number in range(plan.turns):
            await carry_out(ToolCall(f"call_{number}", "add", {"a": number, "b": 1}), tools)

    jobs: dict[str, Job] = {
        OURS: partial(_supervised, plan.turns, stop_when=LIMITS),
        "agent-monitor: without detectors": partial(_supervised, plan.turns, stop_when=LIMITS, detectors=None),
        "agent-monitor: without limits": partial(_supervised, plan.turns),
        "agent-monitor: without limits and detectors": partial(_supervised, plan.turns, detectors=None),
        "the tool alone, in its task, arguments checked": tools_only,
    }
    return await _rounds(jobs, turns=plan.turns, rounds=plan.rounds)


async def _peers(plan: Plan) -> list[Cost]:
    jobs: dict[str, Job] = {OURS: partial(_supervised, plan.turns, stop_when=LIMITS)}
    for make in (_openai_agents, _pydantic_ai, _autogen):
        try:
            jobs |= make(plan.turns)
        except ImportError as error:
            _console.print(f"skipped {make.__name__.strip('_').replace('_', '-')}: {error.name} is not installed")
    return await _rounds(jobs, turns=plan.turns, rounds=plan.rounds)


def _openai_agents(turns: int) -> dict[str, Job]:
    agents, interface = importlib.import_module("agents"), importlib.import_module("agents.models.interface")
    responses, usages = importlib.import_module("openai.types.responses"), importlib.import_module("agents.usage")
    agents.set_tracing_disabled(True)

    def model() -> Any:
        made = 0

        async def get_response(_model: Any, *_: Any, **__: Any) -> Any:
            nonlocal made
            made += 1
            if made <= turns:
                arguments = f'{{"a": {made}, "b": 1}}'
                item = responses.ResponseFunctionToolCall(
                    arguments=arguments, call_id=f"call_{made}", name="add", type="function_call"
                )
            else:
                words = responses.ResponseOutputText(annotations=[], text="Done.", type="output_text", logprobs=[])
                item = responses.ResponseOutputMessage(
                    id="m", role="assistant", status="completed", type="message", content=[words]
                )
            return agents.ModelResponse(output=[item], usage=usages.Usage(), response_id=None)

        def stream_response(_model: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
            raise NotImplementedError

        return type("Model", (interface.Model,), {"stream_response": stream_response, "get_response": get_response})()

    tool = agents.function_tool(add)

    async def run() -> None:
        result = await agents.Runner.run(
            agents.Agent(name="a", model=model(), tools=[tool]), "add", max_turns=turns + 2
        )
        assert result.final_output == "Done."

    return {"openai-agents: Runner.run()": run}


def _pydantic_ai(turns: int) -> dict[str, Job]:
    package, models = importlib.import_module("pydantic_ai"), importlib.import_module("pydantic_ai.models.function")
    messages = importlib.import_module("pydantic_ai.messages")
    usage = importlib.import_module("pydantic_ai.usage")

    async def run() -> None:
        made = 0

        def answer(_messages: Any, _info: Any) -> Any:
            nonlocal made
            made += 1
            if made > turns:
                return messages.ModelResponse(parts=[messages.TextPart("Done.")])
            return messages.ModelResponse(
                parts=[messages.ToolCallPart("add", {"a": made, "b": 1}, tool_call_id=f"call_{made}")]
            )

        agent = package.Agent(models.FunctionModel(answer), tools=[add])
        result = await agent.run("add", usage_limits=usage.UsageLimits(request_limit=None))
        assert result.output == "Done."

    return {"pydantic-ai: Agent.run()": run}


def _autogen(turns: int) -> dict[str, Job]:
    chat, models = importlib.import_module("autogen_agentchat.agents"), importlib.import_module("autogen_core.models")
    core = importlib.import_module("autogen_core")
    no_usage = models.RequestUsage(prompt_tokens=1, completion_tokens=1)
    info = models.ModelInfo(
        vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
    )

    def answering(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    def client() -> Any:
        made = 0

        async def create(_client: Any, *_: Any, **__: Any) -> Any:
            nonlocal made
            made += 1
            if made > turns:
                return models.CreateResult(finish_reason="stop", content="Done.", usage=no_usage, cached=False)
            call = core.FunctionCall(id=f"call_{made}", name="add", arguments=f'{{"a": {made}, "b": 1}}')
            return models.CreateResult(finish_reason="function_calls", content=[call], usage=no_usage, cached=False)

        methods: dict[str, Any] = dict.fromkeys(models.ChatCompletionClient.__abstractmethods__, answering(1))
        methods |= {"actual_usage": answering(no_usage), "total_usage": answering(no_usage), "create": create}
        methods |= {"model_info": property(answering(info)), "capabilities": property(answering(info))}
        return type("Client", (models.ChatCompletionClient,), methods)()

    async def run() -> None:
        agent = chat.AssistantAgent("a", client(), tools=[add], max_tool_iterations=turns + 1)
        result = await agent.run(task="add")
        assert result.messages[-1].content == "Done."

    return {"autogen: AssistantAgent.run()": run}


# --- age


@dataclass
class Age:
    """Processor time for a turn at the beginning and at the end of a long run: medians of blocks of
    a tenth, in microseconds.
    """

    turns: int
    first_us: float
    last_us: float

    @property
    def growth(self) -> float:
        return self.last_us / self.first_us


async def _age(plan: Plan) -> Age:
    times: list[float] = []
    model = _Model(plan.long_run, at_turn=lambda _: times.append(time.process_time()))
    gc.collect()
    outcome = await monitor.Supervisor(model, tools=[add], stop_when=LIMITS).run("add")
    assert outcome.turns == plan.long_run + 1
    step = plan.block // 10

    def of(first: int) -> float:
        starts = range(first, first + plan.block, step)
        return median((times[start + step] - times[start]) / step * 1e6 for start in starts)

    return Age(plan.long_run, of(0), of(plan.long_run - plan.block))


# --- crowd


@dataclass
class Crowd:
    """Runs at the same time in one process, all waiting for their last answer when their memory is
    counted.
    """

    runs: int
    turns: int
    kilobytes: float
    us: float
    """Processor time for a turn of one run."""


async def _crowd(plan: Plan) -> Crowd:
    waiting = 0
    all_wait, go_on = anyio.Event(), anyio.Event()

    async def wait() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == plan.crowd:
            all_wait.set()
        await go_on.wait()

    async def run() -> None:
        outcome = await monitor.Supervisor(_Model(plan.crowd_turns, wait=wait), tools=[add], stop_when=LIMITS).run(
            "add"
        )
        assert outcome.ok

    await _supervised(2, stop_when=LIMITS)  # what is made once for all is not a run's
    gc.collect()
    tracemalloc.start()
    held = 0
    async with anyio.create_task_group() as group:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(plan.crowd):
            group.start_soon(run)
        await all_wait.wait()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        go_on.set()
    waiting = 0
    all_wait, go_on = anyio.Event(), anyio.Event()
    go_on.set()
    gc.collect()
    begun = time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(plan.crowd):
            group.start_soon(run)
    spent = time.process_time() - begun
    return Crowd(
        plan.crowd, plan.crowd_turns, held / plan.crowd / 1024, spent / plan.crowd / (plan.crowd_turns + 1) * 1e6
    )


# --- the report


@dataclass
class Results:
    """Everything that was measured."""

    parts: list[Cost]
    peers: list[Cost]
    age: Age
    crowd: Crowd

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        return [
            _goal("a turn with one tool, limits and default detectors, us", self.parts[0].us, GOAL_TURN_US),
            _goal(f"the last turns of {self.age.turns} against the first", self.age.growth, GOAL_GROWTH),
            _goal(f"memory of one of {self.crowd.runs} runs, KB", self.crowd.kilobytes, GOAL_RUN_KB),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "packages": {package: _version(package) for package in PACKAGES},
            "parts": [_cost_to_dict(cost) for cost in self.parts],
            "peers": [_cost_to_dict(cost) | {"ratio": round(cost.us / self.peers[0].us, 2)} for cost in self.peers],
            "age": {
                "turns": self.age.turns,
                "first_us": round(self.age.first_us, 1),
                "last_us": round(self.age.last_us, 1),
            }
            | {"growth": round(self.age.growth, 3)},
            "crowd": asdict(replace(self.crowd, kilobytes=round(self.crowd.kilobytes, 1), us=round(self.crowd.us, 1))),
            "goals": self.goals(),
        }


def _goal(goal: str, value: float, limit: float) -> dict[str, Any]:
    return {"goal": goal, "value": round(value, 2), "limit": limit, "passed": value <= limit}


def _cost_to_dict(cost: Cost) -> dict[str, Any]:
    return {
        "row": cost.row,
        "us": round(cost.us, 1),
        "us_worst": round(cost.us_worst, 1),
        "turns_per_s": cost.turns_per_s,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


async def _measure(plan: Plan) -> Results:
    return Results(await _parts(plan), await _peers(plan), await _age(plan), await _crowd(plan))


def measure(plan: Plan) -> Results:
    """All of it, on asyncio, as the others know no trio."""
    return anyio.run(_measure, plan)


def show(results: Results) -> None:
    """As tables."""
    for title, costs in (("a turn, and what its parts cost", results.parts), ("beside others", results.peers)):
        table = Table("", "us for a turn", "worst round", "turns a second", "ratio", title=title)
        for cost in costs:
            ratio = f"{cost.us / costs[0].us:.2f}"
            table.add_row(cost.row, f"{cost.us:.0f}", f"{cost.us_worst:.0f}", f"{cost.turns_per_s:,}", ratio)
        _console.print(table)
    age, crowd = results.age, results.crowd
    _console.print(f"{age.turns} turns: {age.first_us:.0f} us a turn at the beginning, {age.last_us:.0f} us at the end")
    _console.print(
        f"{crowd.runs} runs at once: {crowd.kilobytes:.1f} KB each after {crowd.turns} turns, {crowd.us:.0f} us a turn"
    )
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.supervisor", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--quick", action="store_true", help="little of everything, to see that it works; writes nothing"
    )
    options = parser.parse_args(arguments)
    results = measure(QUICK if options.quick else FULL)
    show(results)
    if not options.quick:
        _report.write("supervisor", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())
