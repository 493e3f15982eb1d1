"""The ending of a run in words and as rows of a card."""

from __future__ import annotations

import json
from typing import Final

from rich.text import Text

from monitor._util.codec import to_plain
from monitor.outcome import Outcome
from monitor.reasons import TerminateReason
from monitor.verdicts import Detection
from monitor.view.terminal import on_one_line, printable

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
