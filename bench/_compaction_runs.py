"""The long runs of `bench.compaction`, and what is planted in them."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

import monitor
from bench._compaction_script import WINDOW_TOKENS, Model, Seen
from monitor.chunks import TextDelta, ToolCall
from monitor.context.compaction.hooks import AskTurn
from monitor.context.compaction.pinned import PinnedFacts, read_back, text_of_user
from monitor.context.compaction.summarizer import Checkpoint, CompactionProgress, Summary
from monitor.context.compaction.templates import SummaryTask
from monitor.messages import EMIT, AssistantMessage, Message, UserMessage
from monitor.models import ModelRequest
from monitor.testing import FakeClock, call

WINDOW: Final = monitor.Window(context_tokens=WINDOW_TOKENS, max_output_tokens=4_096)
OUTPUTS_A_RUN: Final = 20
AGES: Final = (1, 2, 5, 20)
"""So many compactions after a fact was planted it is looked for."""
OPENING_CHARS: Final = 40
"""A user message that was cut still has its beginning."""
KINDS: Final = (
    "user preferences",
    "emitted outputs",
    "emitted outputs of earlier runs",
    "plan steps",
    "identifiers: paths",
    "identifiers: ids",
    "identifiers: ports",
    "identifiers: hashes",
    "decisions, first sentence",
    "decisions, second sentence",
)


_NAMED: Final[dict[str, tuple[str, Callable[[random.Random], str]]]] = {
    "identifiers: paths": (
        "the job writes to",
        lambda chance: f"/srv/data/batch-{chance.randrange(10**6):06d}/input.csv",
    ),
    "identifiers: ids": ("the job is", lambda chance: f"JOB-{chance.randrange(10**7):07d}"),
    "identifiers: ports": ("the job listens on port", lambda chance: f"{chance.randrange(30_000, 60_000)}"),
    "identifiers: hashes": ("the job was built from", lambda chance: f"{chance.getrandbits(160):040x}"),
}
"""What results name once, in their second line."""


class PinnedOnly:
    """A `Summarizer` that says nothing: what a request says after it is what is pinned."""

    name = "nothing"

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        *,
        progress: Callable[[CompactionProgress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """Empty sections."""
        return Summary(text=task.template.skeleton(), by=self.name)


PRESETS: Final[dict[str, Callable[..., monitor.Compaction]]] = {
    "default": monitor.Compaction.default,
    "opencode": monitor.Compaction.opencode,
    "gemini_cli": monitor.Compaction.gemini_cli,
    "claude_code": monitor.Compaction.claude_code,
    "pi": monitor.Compaction.pi,
    "openclaw": monitor.Compaction.openclaw,
    "extractive": lambda: monitor.Compaction(summarizer=monitor.context.Extractive()),
}
PINNED: Final[dict[str, Callable[..., monitor.Compaction]]] = {
    "pinned only": lambda: monitor.Compaction(summarizer=PinnedOnly())
}


# --- the script


@dataclass
class Script:
    """What the agent does and the user says in all runs of one row."""

    turns: int
    runs: int = 1
    seed: int = 1
    oversized: bool = False
    """One tool result is larger than the window."""
    facts: int = 0
    """Of each kind, planted at even distances."""
    plan: bool = False
    begun: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    """What the current run has emitted, by name."""
    earlier_outputs: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    planted: dict[str, list[str]] = field(default_factory=dict)
    planted_at: dict[str, int] = field(default_factory=dict)
    """Which turn was the next then."""

    def __post_init__(self) -> None:
        self._chance = random.Random(f"compaction:{self.seed}")
        self._per_run = self.turns // self.runs
        self._call_numbers = 0

    # --- the user

    def task(self, run: int) -> str:
        """What the user says at the beginning of a run; one in ten has much to say."""
        words = f"Request {run + 1:03d}: go through part {run + 1} of the service and report what is wrong with it."
        if run % 10 == 3:
            words += "".join(
                f" Mind also requirement {number}, as agreed with team {number % 7}." for number in range(40)
            )
        elif run:
            words += f" Keep to what was said in request {self._chance.randint(1, run):03d}."
        for number in self._due("user preferences", run):
            fact = f"I prefer style-{number:02d}-{self._chance.randrange(10**6):06d}"
            words += f" {fact}."
            self._plant("user preferences", fact)
        self.said.append(words)
        self.earlier_outputs |= self.outputs
        self.outputs = {}
        return words

    def declared(self, run: int) -> dict[str, Any]:
        """The outputs of a run."""
        count = OUTPUTS_A_RUN if self.runs == 1 or (self.facts and run == self.runs - 1) else 2
        return {f"finding_{run + 1:03d}_{number:02d}": str for number in range(count)}

    def steps(self) -> monitor.Plan | None:
        """The plan, if there is one."""
        if not self.plan:
            return None
        steps = [
            f"Check area {number:02d}-{self._chance.randrange(10**6):06d} of the service"
            for number in range(max(1, self.facts // 2))
        ]
        self.planted["plan steps"] = steps
        return monitor.Plan(steps)

    # --- the agent

    def answer(self, _: ModelRequest) -> Sequence[TextDelta | ToolCall]:
        """The next turn."""
        number, self.begun = self.begun, self.begun + 1
        run, turn = divmod(number, self._per_run)
        names = list(self.declared(run))
        if turn >= self._per_run - 1:  # also if it is asked once more
            self.begun = (run + 1) * self._per_run
            left = [name for name in names if name not in self.outputs]
            return [TextDelta(f"Part {run + 1} is done."), *(self._emit(name) for name in left)]
        first, second = (
            f"I look at step {number} of module {number % 97}.",
            f"It may depend on module {(number * 31) % 97}.",
        )
        for kind, index in (("decisions, first sentence", 0), ("decisions, second sentence", 1)):
            for fact_number in self._due(kind, number):
                fact = f"I decide for variant {fact_number:02d}-{self._chance.randrange(10**6):06d} of the queue"
                self._plant(kind, fact)
                first, second = (f"{fact}.", second) if index == 0 else (first, f"{fact}.")
        parts: list[TextDelta | ToolCall] = [TextDelta(f"{first} {second}")]
        emitted = max(1, self._per_run // (len(names) + 1))
        if turn % emitted == emitted - 1 and len(self.outputs) < len(names) - 1:
            parts.append(self._emit(names[len(self.outputs)]))
        if self.plan and turn == 0 and run == self.runs - 1:
            parts.append(call("update_plan", step=1, status="in_progress"))
        tool = self._chance.choice(("read_file", "search", "run"))
        argument = {"read_file": "path", "search": "query", "run": "command"}[tool]
        parts.append(call(tool, **{argument: f"src/module_{number % 97}/part_{number}.py"}))
        return parts

    def _emit(self, name: str) -> ToolCall:
        value = f"{name} says {self._chance.randrange(10**9):09d}"
        self.outputs[name] = value
        if self.facts:
            self._plant("emitted outputs" if self._last_run else "emitted outputs of earlier runs", value)
        return call(EMIT, name=name, value=value)

    @property
    def _last_run(self) -> bool:
        return self.begun > (self.runs - 1) * self._per_run

    # --- the tools

    def tools(self) -> list[Callable[..., str]]:
        """As a coding agent has them."""

        def read_file(path: str) -> str:
            """Read a file."""
            return self._result(path)

        def search(query: str) -> str:
            """Search the code."""
            return self._result(query)

        def run(command: str) -> str:
            """Run a command."""
            return self._result(command)

        return [read_file, search, run]

    def _result(self, about: str) -> str:
        chance, number = self._chance, self.begun
        if self.oversized and number == self.turns // 3:
            return "".join(f"{at:06d} 10.0.{at % 256}.{at % 199} GET /items/{at * 7} 200\n" for at in range(6_000))
        length = min(24_000, int(chance.lognormvariate(7.0, 1.0)))
        lines = [f"{about}: {length} characters"]
        for kind, (before, make) in _NAMED.items():
            for _ in self._due(kind, number):
                fact = make(chance)
                self._plant(kind, fact)
                lines.append(f"{before} {fact}")
        while length > 0:
            line = (
                f"    value_{chance.randrange(10**4)} = compute(rows[{chance.randrange(500)}],"
                f" scale={chance.random():.3f})"
            )
            lines.append(line)
            length -= len(line) + 1
        return "\n".join(lines)

    # --- facts

    def _due(self, kind: str, at: int) -> Sequence[int]:
        """Which facts of a kind are planted now: over the first four fifths."""
        if not self.facts:
            return ()
        of = self.runs if kind == "user preferences" else self.turns
        span = max(1, of * 4 // 5)
        offset = 3 + KINDS.index(kind) if of == self.turns else 0
        planted = len(self.planted.get(kind, ()))
        return range(planted, sum((place * span) // self.facts + offset <= at for place in range(self.facts)))

    def _plant(self, kind: str, fact: str) -> None:
        self.planted.setdefault(kind, []).append(fact)
        self.planted_at[fact] = self.begun


# --- one row


@dataclass
class Row:
    """What became of all runs of one preset."""

    preset: str
    turns: int
    runs: int
    ended_well: int
    seen: Seen
    compactions: dict[str, int]
    """Finished ones, by who summarised."""
    failed: dict[str, int]
    skipped: int
    turn_ms: float
    """Processor time of a turn, without what the bench takes."""
    growth: float
    """The last fifth of the turns by the first, each by how fast the machine was then (`Pace`)."""
    outputs: Counter[str]
    users: Counter[str]
    """Of the outputs of the last run, and of all user messages, how many the last request still
    has: verbatim, cut, gone. Of user messages, and of outputs of earlier runs, also: left out,
    which is said.
    """
    earlier_outputs: Counter[str]
    kept: dict[str, tuple[int, int]]
    """Of the facts of a kind: how many the last request says, of how many."""
    survived: dict[str, dict[int, tuple[int, int]]]
    """The same, so many compactions after each was planted."""
    endings: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        seen = self.seen
        return {
            "preset": self.preset,
            "turns": self.turns,
            "runs": self.runs,
            "ended_well": self.ended_well,
            "endings": self.endings,
            "requests": seen.requests,
            "over_the_window": seen.refused,
            "most_tokens": seen.most_tokens,
            "validated": seen.checked,
            "unread_missing": seen.unread_missing,
            "problems": seen.problems[:20],
            "compactions": self.compactions,
            "failed": self.failed,
            "skipped": self.skipped,
            "summary_calls": seen.summaries,
            "summary_calls_over_the_window": seen.summaries_refused,
            "summary_faults": seen.struck,
            "summary_token_share": round(seen.summary_tokens / max(1, seen.tokens), 4),
            "turn_ms": round(self.turn_ms, 3),
            "growth": round(self.growth, 3),
            "outputs": dict(self.outputs),
            "earlier_outputs": dict(self.earlier_outputs),
            "user_messages": dict(self.users),
            "survived": {
                kind: {str(age): {"kept": kept, "planted": planted} for age, (kept, planted) in ages.items()}
                for kind, ages in self.survived.items()
            },
            "kept": {kind: {"kept": kept, "planted": planted} for kind, (kept, planted) in self.kept.items()},
        }


YARDSTICK: Final = 400
"""Rounds of the same work in each turn: how fast the machine is just then."""


class Pace:
    """Processor time of each turn, beside the time that always the same work takes then.

    Other programs make everything slower for minutes, which a ratio of two far parts of a run would
    show as growth.
    """

    def __init__(self) -> None:
        self._turns: list[float] = []
        self._yards: list[float] = []
        self._last = 0.0
        self.took_s = 0.0

    def turn_begins(self, not_counted_s: float) -> None:
        """Called once a turn; `not_counted_s`: what the bench has taken for itself so far."""
        began = time.thread_time()
        self._turns.append(began - not_counted_s - self.took_s)
        table: dict[int, str] = {}
        for number in range(YARDSTICK):
            table[number % 61] = f"{number}"
        self._yards.append(time.thread_time() - began)
        self.took_s += self._yards[-1]

    @property
    def growth(self) -> float:
        """The last fifth of the turns by the first, in the time of the yardstick."""
        fifth = len(self._turns) // 5
        if fifth < 2:
            return 1.0
        first = (self._turns[fifth - 1] - self._turns[0]) / sum(self._yards[: fifth - 1])
        last = (self._turns[-1] - self._turns[-fifth]) / sum(self._yards[-fifth:-1])
        return last / max(1e-9, first)


class _Told:
    """Counts the events of compactions, and looks for facts after each."""

    def __init__(self, script: Script) -> None:
        self.finished: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.skipped = 0
        self.run: monitor.Run | None = None
        self.survived: dict[str, dict[int, list[bool]]] = {}
        self._script = script
        self._ages: dict[tuple[str, str], int] = {}
        self.took_s = 0.0

    def emit(self, event: monitor.events.Event) -> None:
        if isinstance(event, monitor.events.CompactionFinished):
            self.finished[event.summarised_by] += 1
            if self._script.facts and self.run is not None:
                began = time.process_time()
                self._look(_texts(self.run.history))
                self.took_s += time.process_time() - began
        elif isinstance(event, monitor.events.CompactionFailed):
            self.failed[event.failure.value] += 1
        elif isinstance(event, monitor.events.CompactionSkipped):
            self.skipped += 1

    def _look(self, history: str) -> None:
        for kind, facts in self._script.planted.items():
            for fact in facts:
                if self._script.begun - self._script.planted_at.get(fact, 0) <= 1:
                    continue  # the turn that says it may still be going on
                age = self._ages[kind, fact] = self._ages.get((kind, fact), 0) + 1
                if age in AGES:
                    self.survived.setdefault(kind, {}).setdefault(age, []).append(fact in history)


def measure(
    preset: str, script: Script, *, every: int = 10, failing: float = 0.0, compaction: monitor.Compaction | None = None
) -> Row:
    """All runs of a script with one preset. All requests are checked, every `every`th as a
    whole.
    """
    return anyio.run(_measured, preset, script, every, failing, compaction or (PRESETS | PINNED)[preset]())


async def _measured(preset: str, script: Script, every: int, failing: float, compaction: monitor.Compaction) -> Row:
    clock, told, pace = FakeClock(), _Told(script), Pace()

    def answer(request: ModelRequest) -> Sequence[Any]:
        pace.turn_begins(model.seen.checking_s + told.took_s)
        return script.answer(request)

    model = Model(answer, clock, every=every, failing=failing, chance=random.Random(f"faults:{script.seed}"))
    history: tuple[Message, ...] = ()
    endings: Counter[str] = Counter()
    well = 0
    began = time.process_time()
    for number in range(script.runs):
        plan = script.steps() if number == script.runs - 1 else None
        supervisor = monitor.Supervisor(
            model,
            instructions="You look through a service, part by part. " * 10,
            tools=script.tools(),
            outputs=script.declared(number),
            plan=plan,
            stop_when=monitor.conditions.OutputsComplete() if plan is not None else None,
            history=history,
            window=WINDOW,
            compaction=compaction,
            sinks=[told],
            clock=clock,
        )
        async with supervisor.stream(script.task(number)) as run:
            told.run = run
            async for _ in run:
                pass
        history = run.history
        endings[
            (
                f"{run.outcome.reason.value}: {run.outcome.detail}"[:120]
                if not run.outcome.ok
                else run.outcome.reason.value
            )
        ] += 1
        well += run.outcome.ok
        script.begun = max(script.begun, (number + 1) * (script.turns // script.runs))
    spent = time.process_time() - began - model.seen.checking_s - told.took_s - pace.took_s
    last = _texts(history)
    return Row(
        preset,
        model.seen.requests,
        script.runs,
        well,
        model.seen,
        dict(told.finished),
        dict(told.failed),
        told.skipped,
        spent / max(1, model.seen.requests) * 1e3,
        pace.growth,
        _found_outputs(script.outputs, last),
        _found_users(script.said, last, _pinned(history).left_out),
        _found_outputs(script.earlier_outputs, last, _pinned(history).outputs_left_out),
        {kind: (sum(fact in last for fact in facts), len(facts)) for kind, facts in script.planted.items()},
        {kind: {age: (sum(found), len(found)) for age, found in ages.items()} for kind, ages in told.survived.items()},
        dict(endings),
    )


def _pinned(history: Sequence[Message]) -> PinnedFacts:
    """What stands beside the summary."""
    first = history[0] if history else None
    composed = read_back(text_of_user(first)) if isinstance(first, UserMessage) else None
    return composed[1] if composed is not None else PinnedFacts()


def _found_users(said: Sequence[str], last: str, left_out: int) -> Counter[str]:
    """By how much of them is there; those that the composed text says it leaves out are told apart
    from those that are gone in silence.
    """
    return _told_apart(
        Counter("verbatim" if text in last else "cut" if text[:OPENING_CHARS] in last else "gone" for text in said),
        left_out,
    )


def _found_outputs(outputs: dict[str, str], last: str, left_out: int = 0) -> Counter[str]:
    """The same."""
    found = Counter(
        "verbatim" if value in last else "cut" if name in last else "gone" for name, value in outputs.items()
    )
    return _told_apart(found, left_out)


def _told_apart(found: Counter[str], left_out: int) -> Counter[str]:
    said = min(found["gone"], left_out)
    return found + Counter({"left out": said}) - Counter({"gone": said})


def _texts(messages: Sequence[Message]) -> str:
    """Everything that the next request would say."""
    texts: list[str] = []
    for message in messages:
        texts += [
            (
                json.dumps(part.arguments, ensure_ascii=False)
                if isinstance(part, ToolCall)
                else str(getattr(part, "text", ""))
            )
            for part in message.content
        ]
        if isinstance(message, AssistantMessage):
            texts += [result.text for result in message.results]
    return "\n".join(texts)
