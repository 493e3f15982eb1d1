"""What keeping a history in order costs: 10,000 messages of 50 MB, and whether twice as much takes
twice as long.

    python -m bench.context [--rounds 5] [--quick]

The history is an agent's: tasks, calls, long results, a screenshot now and then, some of it out of
order. It is repaired, estimated and cut as a whole, which happens when a session is loaded; and
grown turn by turn, which is what happens while it goes on. Other libraries' ways of keeping the
newest part or shortening old results are given the same history, where they are installed (`pip
install 'agent-monitor[bench]'`). Times are processor time, the least of several rounds. Exits with
1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import random
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import _report
from monitor.chunks import ToolCall, ToolResult, UsageReport
from monitor.context import (
    ClipResults,
    ContextMeter,
    DropMedia,
    History,
    KeepShare,
    KeepTokens,
    PruneArguments,
    PruneResults,
    RawMessage,
    propose_edit,
    read_history,
    repair,
    validate,
)
from monitor.context.tokens import message_tokens
from monitor.messages import AssistantMessage, Message, Text
from monitor.runs.context.requests import ValidHistory

Job: TypeAlias = Callable[[], object]
Record: TypeAlias = dict[str, Any]

SIZES: Final = (2_500, 5_000, 10_000)
MESSAGE_BYTES: Final = 5_000
"""On average; 10,000 are 50 MB."""
ROUNDS, TURNS = 5, 300
GOAL_MS, GOAL_STEP_MS, GOAL_GROWTH = 1_000.0, 1.0, 1.25
"""All three on the largest history; a turn; time for a message in the largest history, by that in
the smallest.
"""
COUNTED: Final = ("repair", "estimate", "cut")
KEPT_TOKENS: Final = 20_000
PACKAGES: Final = ("langchain-core", "openai-agents", "pydantic-ai-slim", "pydantic-ai-harness")

CYCLE: Final = 10
"""Records of a task: it, four calls with their results, the answer."""

_console = Console(width=150)


# --- the history


def chat(messages: int, *, seed: int = 7) -> list[Record]:
    """A history in OpenAI's words, as it lies around: one result in fifty displaced, one in fifty
    missing.
    """
    chance = random.Random(seed)
    made: list[Record] = []
    for number in range(messages // CYCLE):
        made += _task(number, chance)
    return made


def _task(number: int, chance: random.Random) -> Iterator[Record]:
    content: Any = f"Task {number}: what does module_{number}.py do, and is it tested?"
    if number % 25 == 0:
        image = b64encode(chance.randbytes(60_000)).decode("ascii")
        content = [
            {"type": "text", "text": content},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        ]
    yield {"role": "user", "content": content}
    displaced: list[Record] = []
    for step in range(4):
        call_id = f"call_{number}_{step}"
        arguments = json.dumps({"path": f"src/module_{number}.py", "offset": step * 200})
        function = {"name": "read_file", "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        yield {"role": "assistant", "content": f"I read part {step}.", "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": call_id, "content": _result(number, step, chance)}
        place = chance.randrange(50)
        if place == 0:
            displaced.append(result)
        elif place > 1:
            yield result
    yield {"role": "assistant", "content": f"Module {number} parses a file; it has {number % 7} tests."}
    yield from displaced


_CODE: Final = (
    "    for index, row in enumerate(rows[{0}:]):\n        total += row.value * {0}  # from 1\n       "
    " seen.add(row.id)\n"
)
_WIDE: Final = "Эта строка — комментарий к модулю {0}; 日本語の説明もここにあります。\n"


def _result(number: int, step: int, chance: random.Random) -> str:
    line = _WIDE if chance.randrange(20) == 0 else _CODE
    block = "".join(line.format(number * 7 + one) for one in range(20))
    length = int(MESSAGE_BYTES * CYCLE / 4 * chance.uniform(0.4, 1.6)) // (2 if line is _WIDE else 1)
    return (f"part {step}\n" + block * (length // len(block) + 1))[:length]


@dataclass
class Load:
    """One history in every form that is measured."""

    records: list[Record]
    raw: tuple[RawMessage, ...] = ()
    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        self.raw = tuple(read_history("openai-chat", self.records))
        self.messages, _ = repair(self.raw)

    @property
    def megabytes(self) -> float:
        """As JSON in UTF-8."""
        return sum(len(json.dumps(one, ensure_ascii=False).encode()) for one in self.records) / 1e6


# --- times


@dataclass
class Cost:
    """Milliseconds of processor time for the whole history, by its number of records."""

    row: str
    ms: dict[int, float] = field(default_factory=dict)

    @property
    def growth(self) -> float:
        """Time for a message in the largest history, by that in the smallest: 1 is linear."""
        least, most = min(self.ms), max(self.ms)
        return (self.ms[most] / most) / max(self.ms[least] / least, 1e-9)


def _jobs(load: Load) -> dict[str, Job]:
    from monitor.adapters.openai.model import to_messages  # noqa: PLC0415 - beside what is measured

    reducers = (DropMedia(), PruneResults(), PruneArguments(), ClipResults.oversized(200_000))
    history = History(load.messages)
    return {
        "read": lambda: tuple(read_history("openai-chat", load.records)),
        "repair": lambda: repair(load.raw),
        "repair of what is in order": lambda: repair(load.messages),
        "estimate": lambda: ContextMeter(History(load.messages)).count(),
        "cut": lambda: KeepShare(0.3).cut(load.messages),
        "cut, newest 20,000 tokens": lambda: KeepTokens(KEPT_TOKENS).cut(load.messages, usable_tokens=1_000_000),
        "reduce": lambda: propose_edit(history, *reducers),
        "say and validate": lambda: validate("openai-chat", to_messages(load.messages)),
    }


def _least_ms(job: Job, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        gc.collect()
        begun = time.process_time()
        job()
        times.append(time.process_time() - begun)
    return min(times) * 1e3


def _costs(loads: Mapping[int, Load], make: Callable[[Load], dict[str, Job]], rounds: int) -> list[Cost]:
    costs: dict[str, Cost] = {}
    for size, load in loads.items():
        for row, job in make(load).items():
            if row not in costs:
                job()  # what is imported or compiled at the first use is no part of it
            costs.setdefault(row, Cost(row)).ms[size] = _least_ms(job, rounds)
    return list(costs.values())


def _step_ms(load: Load, turns: int, rounds: int) -> float:
    """A turn of a run: what is sent is measured, the answer and its results are made sendable and
    added.

    The old part was looked at and estimated before.
    """
    answers = [_turn(number) for number in range(turns)]
    best = float("inf")
    for _ in range(rounds):
        history = History(load.messages)
        meter = ContextMeter(history)
        meter.count()
        outgoing = ValidHistory(history, "openai-chat", (), lambda *_: None)
        outgoing.before_call()
        gc.collect()
        begun = time.process_time()
        for answer in answers:
            outgoing.before_call()
            meter.sent()
            meter.reported(UsageReport(input_tokens=10_000_000, output_tokens=100))
            meter.answered()
            outgoing.append(answer)
            meter.count()
        best = min(best, (time.process_time() - begun) / turns * 1e3)
    return best


def _turn(number: int) -> AssistantMessage:
    call = ToolCall(f"new_{number}", "read_file", {"path": f"src/new_{number}.py"})
    text = _result(number, 0, random.Random(number))
    return AssistantMessage((Text("I read on."), call), (ToolResult(call.id, call.name, text),))


# --- others, on the same history


def _langchain(load: Load) -> dict[str, Job]:
    messages: Any = importlib.import_module("langchain_core.messages")
    utils: Any = importlib.import_module("langchain_core.messages.utils")
    talk = messages.convert_to_messages(_in_order(load))
    return {
        "langchain-core: trim_messages, newest 20,000 tokens": lambda: messages.trim_messages(
            talk,
            max_tokens=KEPT_TOKENS,
            token_counter=utils.count_tokens_approximately,
            strategy="last",
            start_on="human",
        ),
        "langchain-core: count_tokens_approximately": lambda: utils.count_tokens_approximately(talk),
    }


def _openai_agents(load: Load) -> dict[str, Job]:
    from monitor.adapters.openai.model import to_input  # noqa: PLC0415 - beside what is measured

    trimmer: Any = importlib.import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer()
    config: Any = importlib.import_module("agents.run_config")
    model_input = config.ModelInputData(input=to_input(load.messages), instructions=None)
    data = config.CallModelData(model_data=model_input, agent=None, context=None)
    return {"openai-agents: ToolOutputTrimmer, old results": lambda: trimmer(data)}


def _pydantic_ai(load: Load) -> dict[str, Job]:
    messages: Any = importlib.import_module("pydantic_ai.messages")
    test_model: Any = importlib.import_module("pydantic_ai.models.test").TestModel
    harness: Any = importlib.import_module("pydantic_ai_harness.compaction")
    strategy = harness.SlidingWindowCompaction(max_tokens=1, keep_tokens=KEPT_TOKENS)
    talk = list(_pydantic_messages(load.messages, messages))
    model = test_model()
    return {
        "pydantic-ai-harness: SlidingWindowCompaction, newest 20,000 tokens": lambda: asyncio.run(
            harness.compact_now(strategy, talk, model=model)
        )
    }


def _pydantic_messages(talk: Sequence[Message], types: Any) -> Iterator[Any]:
    for message in talk:
        if isinstance(message, AssistantMessage):
            yield types.ModelResponse(
                parts=[
                    (
                        types.ToolCallPart(part.name, part.arguments, part.id)
                        if isinstance(part, ToolCall)
                        else types.TextPart(part.text)
                    )
                    for part in message.content
                ]
            )
            if message.results:
                yield types.ModelRequest(
                    parts=[types.ToolReturnPart(one.name, one.text, one.id) for one in message.results]
                )
        else:
            words = "".join(part.text for part in message.content if isinstance(part, Text))
            yield types.ModelRequest(parts=[types.UserPromptPart(words)])


def _in_order(load: Load) -> list[Record]:
    from monitor.adapters.openai.model import to_messages  # noqa: PLC0415 - beside what is measured

    return to_messages(load.messages)


_PEERS: Final[Mapping[str, Callable[[Load], dict[str, Job]]]] = {
    "langchain-core": _langchain,
    "openai-agents": _openai_agents,
    "pydantic-ai-harness": _pydantic_ai,
}


# --- the report


@dataclass
class Results:
    """Everything that was measured."""

    megabytes: dict[int, float]
    tokens: int
    ours: list[Cost]
    peers: list[Cost]
    missing: list[str]
    step_ms: dict[int, float]

    def goals(self) -> list[Record]:
        """What was promised, and what came of it."""
        counted = [cost for cost in self.ours if cost.row in COUNTED]
        goals = [
            (
                "repair, estimate and cut of the largest history together, ms",
                sum(cost.ms[max(cost.ms)] for cost in counted),
                GOAL_MS,
            ),
            ("a turn of the largest history, ms", self.step_ms[max(self.step_ms)], GOAL_STEP_MS),
            *(
                (f"{cost.row}: a message of the largest history by one of the smallest", cost.growth, GOAL_GROWTH)
                for cost in counted
            ),
        ]
        return [
            {"goal": name, "value": round(value, 3), "limit": limit, "passed": value <= limit}
            for name, value, limit in goals
        ]

    def to_dict(self) -> Record:
        """As JSON."""
        return {
            "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
            "history": {
                "megabytes": {str(size): round(mb, 1) for size, mb in self.megabytes.items()},
                "tokens": self.tokens,
            },
            "ours": list(map(_as_data, self.ours)),
            "turn_ms": {str(size): round(ms, 4) for size, ms in self.step_ms.items()},
            "peers": list(map(_as_data, self.peers)),
            "not_installed": self.missing,
            "goals": self.goals(),
        }


def _as_data(cost: Cost) -> Record:
    return {
        "row": cost.row,
        "ms": {str(size): round(ms, 3) for size, ms in cost.ms.items()},
        "growth": round(cost.growth, 3),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def measure(sizes: Sequence[int] = SIZES, *, rounds: int = ROUNDS, turns: int = TURNS) -> Results:
    """All of it."""
    loads = {size: Load(chat(size)) for size in sizes}
    peers: list[Cost] = []
    missing = []
    for package, make in _PEERS.items():
        try:
            peers += _costs(loads, make, max(1, rounds // 2))
        except ImportError:
            missing.append(package)
    return Results(
        {size: load.megabytes for size, load in loads.items()},
        sum(map(message_tokens, loads[max(sizes)].messages)),
        _costs(loads, _jobs, rounds),
        peers,
        missing,
        {size: _step_ms(load, turns, rounds) for size, load in loads.items()},
    )


def show(results: Results) -> None:
    """As tables."""
    sizes = sorted(results.megabytes)
    heads = [f"{size:,} records, {results.megabytes[size]:.0f} MB" for size in sizes]
    table = Table("the whole history, ms", *heads, "growth", title=f"A history of about {results.tokens:,} tokens")
    for cost in (*results.ours, *results.peers):
        table.add_row(cost.row, *(f"{cost.ms[size]:,.2f}" for size in sizes), f"{cost.growth:.2f}")
    table.add_section()
    table.add_row("one more turn", *(f"{results.step_ms[size]:.3f}" for size in sizes))
    _console.print(table)
    for package in results.missing:
        _console.print(f"not installed, so not compared: {package}")
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.context", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each; {ROUNDS} if not given")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the messages, one round, to see that it works; writes nothing"
    )
    options = parser.parse_args(arguments)
    results = (
        measure([size // 10 for size in SIZES], rounds=1, turns=20) if options.quick else measure(rounds=options.rounds)
    )
    show(results)
    if not options.quick:
        _report.write("context", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())
