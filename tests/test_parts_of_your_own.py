"""What somebody else writes is taken for a part, by both type checkers and at run time.

`make check-types` reads this file with mypy and pyright: the lists below are the test of the types.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor import (
    chunks,
    context,
    detectors,
    events,
    guard,
    judges,
    models,
    sinks,
    testing,
    tools,
    verdicts,
)
from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.replay_model import ReplayAdapter
from monitor.context.compaction.summarizer import ModelSummarizer
from monitor.policy import Policy

PUBLIC = [monitor, *(getattr(monitor, room) for room in monitor._ROOMS.split())]
PROTOCOLS = sorted(
    {
        getattr(module, name)
        for module in PUBLIC
        for name in module.__all__
        if getattr(getattr(module, name), "_is_protocol", False)
    },
    key=lambda protocol: protocol.__name__,
)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_a_part_names_its_parameters_as_it_likes_and_keeps_its_facts_as_it_likes(protocol: type):
    """Parameters of a protocol are positional only, or keyword only. Its facts are read only, so a
    class attribute, a field of a frozen dataclass and a property all serve.
    """
    named = [
        f"{method}({parameter})"
        for method, function in inspect.getmembers(protocol, inspect.isfunction)
        if method == "__call__" or not method.startswith("_")
        for parameter, kind in list(inspect.signature(function).parameters.items())[1:]
        if kind.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert named == []
    assert [name for name in inspect.get_annotations(protocol) if not name.startswith("_")] == []


def test_the_protocols_are_found():
    assert {judges.Judge, sinks.EventSink, models.Model, tools.Tool, Policy, detectors.Detector} <= set(PROTOCOLS)


@dataclass(frozen=True)
class Quiet:
    """A detector: a frozen dataclass, which names nothing as the protocol does."""

    name: str = "quiet"

    def observe(self, piece: chunks.Chunk) -> list[verdicts.Detection]:
        return []

    def reset(self) -> None: ...
    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, saved: Mapping[str, Any]) -> None: ...


class Stoic:
    def decide(self, finding: verdicts.Detection) -> verdicts.Continue:
        return verdicts.Continue()

    def reset(self) -> None: ...
    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, saved: Mapping[str, Any]) -> None: ...


class Ear:
    def __init__(self) -> None:
        self.heard: list[events.Event] = []

    def emit(self, e: events.Event) -> None:
        self.heard.append(e)


class Answerer:
    name = "own:answerer"

    async def stream(self, asked: models.ModelRequest) -> AsyncIterator[chunks.Chunk]:
        yield chunks.TextDelta("Yes.")
        yield chunks.TurnFinished(monitor.FinishReason.DONE)


class Doubter:
    name, fact, threshold, timeout_s, counts = "doubter", "loop", 0.9, 10.0, False

    def schedule(self) -> judges.JudgeSchedule:
        return judges.JudgeSchedule()

    async def review(self, about: judges.JudgeInput, model: judges.Ask) -> verdicts.Judgement:
        return verdicts.Judgement("all is well", 0.0, found=False, judged_by=self.name)


class Clockwork:
    @property
    def spec(self) -> models.ToolSpec:
        return models.ToolSpec("wind", "Wind it up.", {"type": "object", "properties": {}})

    async def call(self, given: Mapping[str, Any], where: tools.ToolContext) -> str:
        return "tick"


class Short:
    name = "short"

    async def summarize(
        self,
        of: context.SummaryTask,
        with_: context.AskTurn,
        *,
        progress: Callable[[context.CompactionProgress], None],
        checkpoint: context.Checkpoint | None = None,
    ) -> context.Summary:
        return context.Summary(text=of.template.skeleton(), by=self.name)


class Shelf:
    def __init__(self) -> None:
        self.all: list[context.CompactionRecord] = []

    def add(self, one: context.CompactionRecord) -> None:
        self.all.append(one)

    def records(self) -> list[context.CompactionRecord]:
        return self.all


class Nothing:
    name = "nothing"

    def reduce(self, history: tuple[monitor.messages.Message, ...], *, head: int = 0) -> Any:
        return history


class Halves:
    def cut(self, history: Any, *, head: int, usable_tokens: int, tokens: Any) -> context.CutPoint | None:
        return None


def the_parts_of_the_library_and_those_of_others_are_parts(model: models.Model, path: Path) -> Sequence[object]:
    """Never called: what it says is checked by the type checkers."""
    all_detectors: list[detectors.Detector] = [
        *monitor.default_detectors(),
        detectors.ContentRepetition(),
        detectors.NoProgress(),
        detectors.SimilarMessages(),
        detectors.ToolCallCycle(),
        detectors.ToolCallRepetition(),
        detectors.UnknownTool(known=["look"]),
        Quiet(),
    ]
    policies: list[Policy] = [monitor.Ladder(), monitor.policy.ObserveOnly(), monitor.StopAtFirstLoop(), Stoic()]
    all_sinks: list[sinks.EventSink] = [
        monitor.sinks.JsonlSink(path),
        monitor.sinks.LogSink(),
        sinks.MemorySink(),
        Ear(),
    ]
    all_models: list[models.Model] = [testing.ScriptedModel("Yes."), monitor.model("openai:x"), model, Answerer()]
    all_judges: list[judges.Judge] = [monitor.LoopJudge(model), monitor.judges.DoneJudge(model), Doubter()]
    all_tools: list[tools.Tool] = [
        monitor.tool(_look),
        monitor.Supervisor(model).as_tool(name="a", description="b"),
        Clockwork(),
    ]
    summarizers: list[context.Summarizer] = [context.Extractive(), ModelSummarizer(model), Short()]
    stores: list[context.CompactionStore] = [context.InMemoryCompactions(), Shelf()]
    keeps: list[context.Keep] = [
        context.KeepMessages(),
        context.KeepNewTurns(),
        context.KeepShare(),
        context.KeepTokens(),
        Halves(),
    ]
    reducers: list[context.Reducer] = [
        context.ClipResults.oversized(100_000),
        context.DropMedia(),
        context.KeepTurns(3),
        context.PruneArguments(),
        context.PruneResults(),
        Nothing(),
    ]
    adapters: list[AdapterFactory] = [AnthropicAdapter, GoogleAdapter, OpenAIAdapter, ReplayAdapter]
    clocks: list[guard.Clock] = [guard.SystemClock(), testing.FakeClock()]
    stops = [verdicts.Stop("timeout", "", ""), verdicts.LastTurn(after=["max_turns"])]
    lists = (all_detectors, policies, all_sinks, all_models, all_judges, all_tools, summarizers, stores)
    return [*lists, keeps, reducers, adapters, clocks, stops]


def _watched(stream: Any) -> None:
    with monitor.watch(stream) as watched:
        assert [*watched] == []
    assert watched.outcome.ok


LATE = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
"""Python 3.14 evaluates annotations when somebody reads them. Before, they were texts on demand."""


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("def mine(x: int) -> Money: ...", tools.tool),
        ("def mine(text: Money) -> Money: ...", monitor.detectors.as_detector),
        ("def mine(state: Money) -> Money: ...", monitor.Predicate),
        ("def mine(given: Money, context: Money) -> Money: ...", lambda mine: tools.tool(guidance=mine)(_look)),
        ("def mine() -> Money: return iter(())", _watched),
    ],
)
def test_a_function_may_name_types_that_only_a_type_checker_knows(function: str, use: Callable[[Any], object]):
    """Types that are imported under `TYPE_CHECKING` are no names when the program runs."""
    names: dict[str, Any] = {}
    exec(compile(LATE + function, "mine.py", "exec", dont_inherit=True), names)
    use(names["mine"])


def _look(at: str) -> str:
    return at


async def ends_for_a_tool(context: tools.ToolContext) -> None:
    """Never called: a tool may use the run without a cast."""
    with context.run.paused():
        context.run.abort()
    assert len((await context.run.compact()).messages) <= len(context.run.history)


@pytest.mark.anyio
async def test_a_run_of_such_parts_only_runs():
    ear = Ear()
    supervisor = monitor.Supervisor(
        Answerer(),
        tools=[Clockwork()],
        detectors=[Quiet()],
        policy=Stoic(),
        judge=Doubter(),
        sinks=[ear],
        window=32_000,
        compaction=monitor.Compaction(summarizer=Short(), store=Shelf(), keep=Halves(), steps=[Nothing()]),
    )
    outcome = await supervisor.run("Is it so?")
    assert outcome.ok
    assert outcome.text == "Yes."
    assert isinstance(ear.heard[-1], events.RunTerminated)
