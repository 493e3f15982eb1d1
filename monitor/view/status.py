"""The present state of the runs, as a few lines: a tree of runs, and the limits of the
outermost ones as bars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.text import Text

from monitor import events
from monitor._util.codec import to_plain
from monitor.chunks import Price, ReasoningDelta, TextDelta, ToolCall, Usage
from monitor.errors import TerminateReason
from monitor.events import Envelope
from monitor.messages import SteerKind
from monitor.outcome import Outcome
from monitor.sinks.descriptions import call_in_words
from monitor.verdicts import Detection
from monitor.view.terminal import on_one_line, printable

# --------------------------------------------------------------------------------------------------
# The ending of a run in words and as rows of a card.

EXCERPT_CHARS: Final = 70
FAILURES: Final = frozenset(
    {
        TerminateReason.RATE_LIMITED,
        TerminateReason.PROMPT_TOO_LONG,
        TerminateReason.COMPACTION_INEFFECTIVE,
        TerminateReason.BLOCKED,
        TerminateReason.INVALID_STREAM,
        TerminateReason.TRUNCATED,
        TerminateReason.ERROR,
    }
)
"""Reasons that are failures: of the provider, or of a part that crashed."""


def title(outcome: Outcome) -> str:
    """The title of a card about the end."""
    if outcome.ok:
        return "goal reached"
    if outcome.reason is TerminateReason.TERMINATED:
        return "given up by the model"
    if outcome.reason is TerminateReason.PAUSED:
        return "waits for an approval"
    if outcome.reason is TerminateReason.WORKER_STOPPING:
        return "goes on in another process"
    return f"{'failed' if failed(outcome) else 'stopped'}: {outcome.source}"


def failed(outcome: Outcome) -> bool:
    """Whether the run ended by a failure, and not by a decision."""
    return not outcome.ok and outcome.reason in FAILURES


def why(outcome: Outcome) -> list[tuple[str, str | Text]]:
    """The rows of a card about the end: reason, sentence, evidence."""
    rows: list[tuple[str, str | Text]] = [
        ("reason", Text(outcome.reason.value, style=f"bold {style(outcome)}")),
        ("because", printable(outcome.detail)),
    ]
    found = outcome.evidence
    if isinstance(found, Detection):
        excerpt = on_one_line(found.evidence.excerpt)
        shown = excerpt if len(excerpt) <= EXCERPT_CHARS else f"{excerpt[:EXCERPT_CHARS]}…"
        rows.append(("evidence", Text.assemble((shown, "yellow"), f"  x {found.count}  xxh3 {found.evidence.xxhash}")))
        unit = "tool call" if found.channel == "tools" else "character"
        shift = 1 if found.channel == "tools" else 0  # calls are counted from 0; people count from 1
        rows.append(
            ("where", f"began at {unit} {found.start_offset + shift:,}, seen at {unit} {found.offset + shift:,}")
        )
    return rows


def results(outcome: Outcome) -> list[tuple[str, str | Text]]:
    """The rows about the results: outputs that were emitted, and missing ones."""
    rows: list[tuple[str, str | Text]] = []
    for name, value in outcome.emitted.items():
        said = value if isinstance(value, str) else json.dumps(to_plain(value), ensure_ascii=False)
        rows.append(("" if rows else "outputs", Text.assemble((f"{on_one_line(name)} ", "cyan"), printable(said))))
    if outcome.missing:
        rows.append(("missing", Text(on_one_line(", ".join(outcome.missing)), style="red")))
    if outcome.recovered_from is not None:
        rows.append(("saved by", f"a last turn, after {outcome.recovered_from.value}"))
    return rows


def used(outcome: Outcome, tool_calls: int) -> str:
    """Turns, calls, tokens, money and time."""
    usage = outcome.usage
    tokens = f"{usage.total_tokens:,} tokens{' (partly estimated)' if outcome.usage_estimated else ''}"
    parts = [f"{usage.input_tokens:,} in", f"{usage.output_tokens:,} out"]
    if usage.cached_tokens:
        parts.insert(1, f"{usage.cached_tokens:,} of them cached")
    if usage.reasoning_tokens:
        parts.append(f"{usage.reasoning_tokens:,} of them thinking")
    if summaries := outcome.compaction_usage.total_tokens:
        parts.append(f"{summaries:,} for summaries")
    money = [f"{outcome.cost_usd:.4f} USD" if outcome.cost_usd is not None else "cost unknown"]
    did = [count(outcome.turns, "turn"), count(tool_calls, "tool call"), f"{tokens}: {', '.join(parts)}"]
    return "; ".join([*did, *money, f"{outcome.elapsed_s:.1f} s"])


def style(outcome: Outcome) -> str:
    """The colour of the card of an ending."""
    return "green" if outcome.ok else "red"


def ms(seconds: float) -> str:
    """The number of seconds as milliseconds."""
    return f"{seconds * 1000:.1f} ms"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """The number with its noun: `1 turn`, `2 turns`. `nouns`: a plural without a bare `s`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


BAR: Final = 12
"""A bar is this many columns wide."""
NARROW: Final = 50
"""Below this many columns, limits are numbers without bars."""
MOST_NESTED: Final = 12
"""The most nested runs that are shown of one run. Of more, some that have ended are left out."""
NEAR: Final = 0.8
"""A bar is yellow if at least this share of its limit is used."""


@dataclass(slots=True)
class RunStatus:
    """The progress of one run."""

    id: str
    name: str
    parent: str | None = None
    turn: int = 0
    model_calls: int = 0
    calls: int = 0
    loops: int = 0
    usage: Usage = field(default_factory=Usage)
    doing: str = ""
    outcome: Outcome | None = None
    limits: dict[str, float] = field(default_factory=dict)
    warned: dict[str, float] = field(default_factory=dict)
    """The amounts that a `LimitWarning` has named as used."""
    at_s: float = 0.0
    heard_s: float = 0.0
    """When its newest event came, by the clock of the view."""
    paused: bool = False
    open_calls: dict[str, ToolCall] = field(default_factory=dict)
    nested: list[RunStatus] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The tokens of the run and of its nested runs."""
        return self.usage.total_tokens + sum(one.tokens for one in self.nested)

    def elapsed_s(self, now: float) -> float:
        """How long the run has taken, between two events too."""
        if self.outcome is not None:
            return self.outcome.elapsed_s
        return self.at_s + (0.0 if self.paused else max(0.0, now - self.heard_s))


class Status:
    """The runs that go on, and what has become of the nested ones.

    `lines` may be called in another thread than `hear`: it copies what changes.
    """

    def __init__(self, *, price: Price | None, now: Callable[[], float]) -> None:
        self._price = price
        self._now = now
        self._runs: dict[str, RunStatus] = {}
        self.calls: int = 0
        """How many calls of tools the outermost run has made that ended last."""

    @property
    def going(self) -> bool:
        """Whether any run has not ended yet."""
        return any(run.outcome is None for run in self._runs.values())

    def hear(self, envelope: Envelope) -> None:
        """Update the runs by the event of `envelope`."""
        event = envelope.event
        if isinstance(event, events.RunStarted):
            self._begin(envelope, event)
        run = self._runs.get(envelope.run)
        if run is None:
            return
        run.at_s, run.heard_s = max(run.at_s, event.at_s), self._now()
        _follow(run, event)
        if isinstance(event, events.RunTerminated) and run.parent is None:
            self.calls = run.calls
            self._forget(run)

    def _begin(self, envelope: Envelope, event: events.RunStarted) -> None:
        parent = self._runs.get(envelope.parent or "")
        run = RunStatus(envelope.run, name_of(envelope), parent.id if parent is not None else None)
        for limit in event.limits:
            run.limits[limit.source] = min(limit.limit, run.limits.get(limit.source, limit.limit))
        self._runs[run.id] = run
        if parent is not None:
            parent.nested.append(run)

    def _forget(self, run: RunStatus) -> None:
        del self._runs[run.id]
        for nested in run.nested:
            if nested.id in self._runs:
                self._forget(nested)

    # ------------------------------------------------------------------ as lines

    def lines(self, width: int, *, ascii_only: bool = False) -> list[Text]:
        """The tree of runs, in lines of at most `width` columns."""
        lines: list[Text] = []
        for run in list(self._runs.values()):
            if run.parent is None:
                lines.append(self._head(run))
                lines += self._bars(run, width, ascii_only=ascii_only)
                lines += self._branch(run, "")
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _branch(self, run: RunStatus, before: str) -> Iterator[Text]:
        shown, left_out = _chosen(list(run.nested))
        for number, nested in enumerate(shown):
            last = number == len(shown) - 1 and not left_out
            yield Text.assemble((f"{before}{'└' if last else '├'} ", "dim"), self._head(nested))
            yield from self._branch(nested, f"{before}{'  ' if last else '│ '}")
        if left_out:
            yield Text(f"{before}└ and {count(left_out, 'run')} that ended", style="dim")

    def _head(self, run: RunStatus) -> Text:
        mark, style = _mark(run.outcome)
        head = Text.assemble((mark, style), (f" {run.name}", "bold"))
        if run.outcome is not None:
            return head.append(f"  {run.outcome.reason.value}", style).append(f"  {count(run.outcome.turns, 'turn')}")
        limit = run.limits.get("max_turns")
        head.append(f"  turn {run.turn}{f'/{limit:g}' if limit and run.parent is not None else ''}")
        if run.calls:
            head.append(f"  {count(run.calls, 'call')}")
        if run.tokens:
            head.append(f"  {run.tokens:,} tokens")
        head.append(f"  {run.elapsed_s(self._now()):.0f} s")
        if run.loops:
            head.append(f"  {count(run.loops, 'loop')}", "yellow")
        if run.doing:
            head.append(f"  {on_one_line(run.doing)}", "dim")
        return head

    def _bars(self, run: RunStatus, width: int, *, ascii_only: bool) -> list[Text]:
        """The limits of a run, as many beside each other as there is room for."""
        rows: list[Text] = []
        for source, limit in run.limits.items():
            used = self._used(run, source)
            if used is None or limit <= 0:
                continue
            bar = _bar(source, used, limit, wide=width >= NARROW, ascii_only=ascii_only)
            if rows and rows[-1].cell_len + bar.cell_len + 2 <= width:
                rows[-1].append("  ").append_text(bar)
            else:
                rows.append(Text("  ").append_text(bar))
        return rows

    def _used(self, run: RunStatus, source: str) -> float | None:
        """How much of a limit is used. `None`: the events do not say that."""
        name, _, kind = source.partition(".")
        known: float | None = None
        if name in _COUNTED:
            known = float(_COUNTED[name](run))
        elif name == "timeout":
            known = run.elapsed_s(self._now())
        elif source == "Budget.tokens":
            known = float(run.tokens)
        elif name == "token_limit":
            known = float(getattr(run.usage, kind, 0))
        elif source in _MONEY and self._price is not None:
            known = self._price.cost(run.usage)
        warned = run.warned.get(source)
        return known if warned is None else max(known or 0.0, warned)


_MONEY: Final = frozenset({"cost_limit", "Budget.usd"})
_COUNTED: Final[dict[str, Callable[[RunStatus], int]]] = {
    "max_turns": lambda run: run.turn,
    "max_model_calls": lambda run: run.model_calls,
    "max_tool_calls": lambda run: run.calls,
}


def _follow(run: RunStatus, event: events.Event) -> None:  # noqa: C901, PLR0912 - one case for each event
    match event:
        case events.TurnStarted(turn=turn, model_call=call):
            run.turn, run.model_calls, run.doing = turn, call, "asks the model"
        case events.StreamContinued(model_call=call):
            run.model_calls = call
        case events.ChunkReceived(chunk=TextDelta()) | events.FirstChunk():
            run.doing = "answers"
        case events.ChunkReceived(chunk=ReasoningDelta()):
            run.doing = "thinks"
        case events.TurnEnded(turn=turn):
            run.usage += turn.usage
            run.doing = ""
        case events.ToolStarted(call=call):
            run.calls += 1
            run.open_calls[call.id] = call
        case events.ToolFinished(result=result):
            run.open_calls.pop(result.id, None)
        case events.RetryScheduled(why=why):
            run.doing = f"waits: {why}"
        case events.DetectionRaised(detection=found):
            run.loops += found.level == "loop"
        case events.LimitWarning(source=source, value=value):
            run.warned[source] = value
        case events.ApprovalRequested():
            run.doing = "waits for a person"
        case events.CompactionStarted(background=False):
            run.doing = "summarises"
        case events.Paused():
            run.paused, run.doing = True, "paused"
        case events.Resumed():
            run.paused, run.doing = False, ""
        case events.RunTerminated(outcome=outcome):
            run.outcome, run.doing = outcome, ""
        case _:
            return
    if isinstance(event, events.ToolStarted | events.ToolFinished):
        run.doing = _calls(list(run.open_calls.values()))


def _calls(calls: Sequence[ToolCall]) -> str:
    if not calls:
        return ""
    return f"→ {call_in_words(calls[0])}{f' and {len(calls) - 1} more' if len(calls) > 1 else ''}"


def _chosen(nested: Sequence[RunStatus]) -> tuple[Sequence[RunStatus], int]:
    """The runs that are shown, and how many are not."""
    if len(nested) <= MOST_NESTED:
        return nested, 0
    ended = [run for run in nested if run.outcome is not None]
    going = [run for run in nested if run.outcome is None]
    room = max(0, MOST_NESTED - len(going))
    kept = {id(run) for run in [*going, *ended[len(ended) - room :]]}
    return [run for run in nested if id(run) in kept], len(ended) - min(room, len(ended))


def _mark(outcome: Outcome | None) -> tuple[str, str]:
    if outcome is None:
        return "●", "cyan"
    if outcome.ok:
        return "✓", "green"
    return ("✗" if failed(outcome) else "■"), "red"


def _bar(source: str, used: float, limit: float, *, wide: bool, ascii_only: bool) -> Text:
    share = min(1.0, used / limit)
    style = "red" if share >= 1 else "yellow" if share >= NEAR else "green"
    numbers = f"{_number(used, limit, source)}/{_number(limit, limit, source)}"
    bar = Text.assemble((f"{on_one_line(source)} ", "dim"))
    if wide:
        full = round(share * BAR)
        done, left = ("#", "-") if ascii_only else ("━", "─")
        bar.append(done * full, style).append(left * (BAR - full), "dim").append(" ")
    return bar.append(numbers, "" if wide else style)


def _number(value: float, limit: float, source: str) -> str:
    """`value` in the precision of its unit and of its limit."""
    digits = 2 if source in _MONEY else 1 if limit < 10 and limit % 1 else 0  # noqa: PLR2004 - tenths of a few seconds
    return f"{value:,.{digits}f}"


def name_of(envelope: Envelope) -> str:
    """The name of a run, for people."""
    return on_one_line(envelope.agent or (envelope.run[:8] if envelope.parent else "run"))


# --------------------------------------------------------------------------------------------------
# A line at the bottom of a live view, in which a person writes to the run.

Send: TypeAlias = Callable[[str, SteerKind, bool], object]
"""Takes a text, when it enters the run, and whether the present stream is ended for it."""

WAYS: Final[tuple[tuple[str, SteerKind, bool], ...]] = (
    ("say", "steer", False),
    ("now", "steer", True),
    ("later", "follow_up", False),
)
"""The ways to say something, which Tab goes through: the word that is shown, and what it means."""
_SEQUENCE: Final = re.compile("\x1b(?:[\\[O][0-9;]*[A-Za-z~]?|.)?")
"""A key without a character, such as an arrow. It does nothing."""


class InputLine:
    """What a person has typed so far. Enter sends it, Tab changes when the run gets it, Ctrl-U
    clears it, Ctrl-W removes a word.
    """

    def __init__(self) -> None:
        self.send: Send = lambda *_: None
        self.opens: Callable[[], object] = lambda: None
        """Is called when the line is shown: keys belong to it from now on."""
        self.closes: Callable[[], object] = lambda: None
        """Is called when the line is hidden: somebody else may read the keys."""
        self.text = ""
        self._way = 0

    def feed(self, keys: str) -> None:
        """Take in what was typed."""
        for key in _SEQUENCE.sub("", keys):
            match key:
                case "\r" | "\n":
                    text, self.text = self.text.strip(), ""
                    if text:
                        _, kind, now = WAYS[self._way]
                        self._way = 0
                        self.send(text, kind, now)
                case "\t":
                    self._way = (self._way + 1) % len(WAYS)
                case "\x7f" | "\b":
                    self.text = self.text[:-1]
                case "\x15":
                    self.text = ""
                case "\x17":
                    self.text = self.text[: len(self.text.rstrip()) - len(_last_word(self.text))]
                case _ if key.isprintable():
                    self.text += key
                case _:
                    pass

    def shown(self, width: int) -> Text:
        """The line in at most `width` columns: of a long text its end."""
        way = f"{WAYS[self._way][0]} > "
        room, text = max(1, width - cell_len(way) - 1), self.text
        while cell_len(text) > room:
            text = text[1:]
        return Text.assemble((way, "bold cyan"), text, ("_", "dim"), no_wrap=True)


def _last_word(text: str) -> str:
    words = text.split()
    return words[-1] if words else ""
