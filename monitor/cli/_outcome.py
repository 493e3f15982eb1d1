"""How a run ended, in words and as an exit code."""

from __future__ import annotations

import json
from typing import Final

from rich.text import Text

import monitor
from monitor._util.codec import to_plain
from monitor.cli import INTERRUPTED, _view
from monitor.reasons import TerminateReason

EXCERPT_CHARS = 70

GAVE_UP, WRONG_USE, LIMIT, LOOP, MISSING, PROVIDER, CRASHED, WAITS = 1, 2, 3, 4, 5, 6, 7, 8
"""Exit codes of `run`. 0: the goal was reached. 130: Ctrl-C."""

_CODES: Final = {
    TerminateReason.TERMINATED: GAVE_UP,
    TerminateReason.MAX_TURNS: LIMIT,
    TerminateReason.MODEL_CALL_LIMIT: LIMIT,
    TerminateReason.TOOL_CALL_LIMIT: LIMIT,
    TerminateReason.TOKEN_LIMIT: LIMIT,
    TerminateReason.COST_LIMIT: LIMIT,
    TerminateReason.TIMEOUT: LIMIT,
    TerminateReason.IDLE_TIMEOUT: LIMIT,
    TerminateReason.CONDITION_MET: LIMIT,
    TerminateReason.CONSECUTIVE_ERRORS: LIMIT,
    TerminateReason.WINDOW_TOO_SMALL: LIMIT,
    TerminateReason.LOOP_DETECTED: LOOP,
    TerminateReason.MISSING_OUTPUTS: MISSING,
    TerminateReason.RATE_LIMITED: PROVIDER,
    TerminateReason.PROMPT_TOO_LONG: PROVIDER,
    TerminateReason.COMPACTION_INEFFECTIVE: PROVIDER,
    TerminateReason.BLOCKED: PROVIDER,
    TerminateReason.INVALID_STREAM: PROVIDER,
    TerminateReason.TRUNCATED: PROVIDER,
    TerminateReason.PAUSED: WAITS,
    TerminateReason.ABORTED: INTERRUPTED,
    TerminateReason.CANCELLED: INTERRUPTED,
    TerminateReason.CLOSED_BY_CALLER: INTERRUPTED,
}


def exit_code(outcome: monitor.Outcome) -> int:
    """0: ok; else one number for each family of reasons."""
    if outcome.ok:
        return 0
    if outcome.reason is TerminateReason.ERROR:
        return PROVIDER if outcome.source == "provider" else CRASHED
    return _CODES.get(outcome.reason, CRASHED)


def failed(outcome: monitor.Outcome) -> bool:
    """Whether the run ended by a failure, and not by a decision."""
    return exit_code(outcome) in (PROVIDER, CRASHED)


def why(outcome: monitor.Outcome) -> list[tuple[str, str | Text]]:
    """The rows of a card about the end: reason, sentence, evidence."""
    rows: list[tuple[str, str | Text]] = [
        ("reason", Text(outcome.reason.value, style=f"bold {style(outcome)}")),
        ("because", _view.printable(outcome.detail)),
    ]
    found = outcome.evidence
    if isinstance(found, monitor.Detection):
        excerpt = _view.on_one_line(found.evidence.excerpt)
        shown = excerpt if len(excerpt) <= EXCERPT_CHARS else f"{excerpt[:EXCERPT_CHARS]}…"
        rows.append(("evidence", Text.assemble((shown, "yellow"), f"  x {found.count}  xxh3 {found.evidence.xxhash}")))
        unit = "tool call" if found.channel == "tools" else "character"
        shift = 1 if found.channel == "tools" else 0  # calls are counted from 0; people count from 1
        rows.append(
            ("where", f"began at {unit} {found.start_offset + shift:,}, seen at {unit} {found.offset + shift:,}")
        )
    return rows


def results(outcome: monitor.Outcome) -> list[tuple[str, str | Text]]:
    """The rows about the results: outputs that were emitted, and missing ones."""
    rows: list[tuple[str, str | Text]] = []
    for name, value in outcome.emitted.items():
        said = value if isinstance(value, str) else json.dumps(to_plain(value), ensure_ascii=False)
        rows.append(
            ("" if rows else "outputs", Text.assemble((f"{_view.on_one_line(name)} ", "cyan"), _view.printable(said)))
        )
    if outcome.missing:
        rows.append(("missing", Text(_view.on_one_line(", ".join(outcome.missing)), style="red")))
    if outcome.recovered_from is not None:
        rows.append(("saved by", f"a last turn, after {outcome.recovered_from.value}"))
    return rows


def used(outcome: monitor.Outcome, tool_calls: int, *, priced: bool) -> str:
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
    money = [f"{outcome.cost_usd:.4f} USD"] if priced else []
    did = [count(outcome.turns, "turn"), count(tool_calls, "tool call"), f"{tokens}: {', '.join(parts)}"]
    return "; ".join([*did, *money, f"{outcome.elapsed_s:.1f} s"])


def style(outcome: monitor.Outcome) -> str:
    """The colour of an end."""
    return "green" if outcome.ok else "red"


def ms(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{seconds * 1000:.1f} ms"


def count(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
