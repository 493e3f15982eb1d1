"""Two supervised runs on the small model: one whose tool finds nothing, one that has to hand over
declared outputs. A judge watches both, and is the same small model.

The server makes a call of a tool only where the request names the tool; then it holds the model to
the schema of the arguments. So the first run names its tool, and the model writes the arguments.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import openai
from rich.console import Console
from rich.table import Table

import monitor
from bench._live_process import LiveServer
from monitor import events
from monitor.adapters.openai.model import OpenAIModel
from monitor.events import Event
from monitor.judges.question import REPLY_SCHEMA

TURNS: Final = 8
TIMEOUT_S: Final = 600.0
FIRST_QUESTION: Final = 3
WRITING: Final = {"temperature": 0.1, "seed": 1, "max_tokens": 150}
ASKED_FOR: Final = "Find out how much it rained in the valley in May, and say the number."


@dataclass(slots=True)
class RunRow:
    """What came of one run."""

    name: str
    reason: str
    detail: str
    turns: int
    calls: int
    nudges: int
    detections: int
    judge_asked: int
    judge_answered: int
    judge_failed: int
    judge_tokens: int
    tokens: int
    elapsed_s: float


class _Llama(OpenAIModel):
    """Writes "" where OpenAI's API has `content: null`, which llama-cpp-python refuses."""

    async def _open(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        messages = [message | {"content": message.get("content") or ""} for message in parameters["messages"]]
        return await super()._open({**parameters, "messages": messages})


class _Counted:
    """Counts the events of a run, and prints those that a user wants to see."""

    def __init__(self, console: Console) -> None:
        self.counts: Counter[type[Event]] = Counter()
        self._console = console

    def emit(self, event: Event) -> None:
        """The next event."""
        self.counts[type(event)] += 1
        said = _said(event)
        if said is not None:
            self._console.print(f"    {said}", markup=False, highlight=False)


def _said(event: Event) -> str | None:
    match event:
        case events.ToolStarted(turn=turn, call=call):
            return f"turn {turn}: {call.name}({_short(call.arguments)})"
        case events.DetectionRaised(detection=detection):
            return f"found: {detection.message}"
        case events.Nudged(text=text):
            return f"nudge: {_short(text)}"
        case events.ToolWithdrawn(tool=tool):
            return f"withdrawn: {tool}"
        case events.JudgeAnswered(judgement=judgement):
            return f"judge: {judgement.confidence:g}, {_short(judgement.analysis)}"
        case events.JudgeFailed(why=why):
            return f"judge gave no answer: {_short(why)}"
        case _:
            return None


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else f"{text[:100]}..."


async def supervised(server: LiveServer, client: openai.AsyncOpenAI, console: Console) -> list[RunRow]:
    """Both runs, one after the other: the server has one model."""
    model = _Llama(server.model, client=client)

    async def search(query: str) -> str:
        """Search the archive of the weather station."""
        return f"Nothing was found for {query!r}."

    named = {"tool_choice": {"type": "function", "function": {"name": "search"}}}
    searching = monitor.Supervisor(
        model,
        instructions="You are a careful assistant.",
        tools=[search],
        requests=monitor.runs.Requests(settings={**WRITING, "extra_body": named}),
        judge=_judge(model),
        stop_when=monitor.MaxTurns(TURNS) | monitor.Timeout(TIMEOUT_S),
        last_turn=None,
    )
    writing = monitor.Supervisor(
        model,
        instructions="You are a careful assistant.",
        outputs={"title": str, "summary": str},
        requests=monitor.runs.Requests(settings=WRITING),
        judge=_judge(model),
        stop_when=monitor.MaxTurns(TURNS) | monitor.Timeout(TIMEOUT_S),
        last_turn=None,
    )
    return [
        await _run("a tool that finds nothing", searching, ASKED_FOR, console),
        await _run("declared outputs", writing, "Write a short story about a lighthouse.", console),
    ]


def _judge(model: OpenAIModel) -> monitor.LoopJudge:
    shape = {"response_format": {"type": "json_object", "schema": REPLY_SCHEMA}}
    settings: dict[str, Any] = {"temperature": 0.1, "seed": 1, "max_tokens": 150, "extra_body": shape}
    return monitor.LoopJudge(
        model, first_turn=FIRST_QUESTION, first_interval=2, share=None, timeout_s=120, settings=settings
    )


async def _run(name: str, supervisor: monitor.Supervisor[Any], task: str, console: Console) -> RunRow:
    console.print(f"\nA supervised run: {name}")
    counted, began = _Counted(console), time.perf_counter()
    async with supervisor.stream(task) as run:
        async for event in run:
            counted.emit(event)
    outcome, counts = run.outcome, counted.counts
    assert outcome is not None
    return RunRow(
        name,
        outcome.reason.value,
        outcome.detail,
        outcome.turns,
        counts[events.ToolStarted],
        counts[events.Nudged],
        counts[events.DetectionRaised],
        counts[events.JudgeAsked],
        counts[events.JudgeAnswered],
        counts[events.JudgeFailed],
        outcome.judge_usage.total_tokens,
        outcome.usage.total_tokens,
        round(time.perf_counter() - began, 1),
    )


def show_runs(console: Console, rows: list[RunRow]) -> None:
    """A line a run."""
    table = Table(title="supervised runs of the same model, with the same model as their judge")
    for column in ("run", "reason", "turns", "calls", "nudges", "judge asked", "answered", "failed", "tokens"):
        table.add_column(column, justify="left" if column in {"run", "reason"} else "right")
    for row in rows:
        numbers = (row.turns, row.calls, row.nudges, row.judge_asked, row.judge_answered, row.judge_failed, row.tokens)
        table.add_row(row.name, row.reason, *map(str, numbers))
    console.print(table)
    for row in rows:
        console.print(f"{row.name}: {row.detail}", markup=False, highlight=False)
