"""`agent-monitor demo`: see a loop stopped. Three recorded runs on a local server, or one question
to a real model.
"""

from __future__ import annotations

import importlib
import os
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from rich.console import Console
from rich.text import Text

import monitor
from monitor.cli.inputs.demo_runs import DemoRun, demo_runs
from monitor.cli.options.shared import flag, option
from monitor.cli.render import output, table
from monitor.errors import ConfigError, MissingExtra, TerminateReason
from monitor.view.status import count, ms, style, why

if TYPE_CHECKING:
    from monitor.cli.inputs.demo_model import DemoResult

PACE_S, THINK_S = 0.015, 0.25
"""Seconds between two events, and before a turn: about 400 characters a second, which people can
still read.
"""
FAST_PACE_S, FAST_THINK_S = 0.001, 0.0
"""Without a pause, the server would write the whole answer into the socket before the client could
read it.
"""
PROMPT = "Explain in about 200 words why an agent that calls tools can get stuck in a loop."


def demo(
    fast: Annotated[bool, flag("--fast", "Stream without a readable pace: one millisecond between events.")] = False,
    model: Annotated[
        str | None,
        option("NAME", "Ask this Gemini model instead. Needs GEMINI_API_KEY in the environment."),
    ] = None,
    prompt: Annotated[str | None, option("TEXT", "What to ask it. Only with --model.")] = None,
) -> None:
    """Show three recorded runs, stopped while they are being written. No key, no network.

    They are an answer that repeats itself, an agent that repeats a tool call, and an agent that
    does its work and is left alone.

    A server on this machine plays them in Gemini's wire form, the real google-genai SDK reads them,
    and agent-monitor watches it.

    Examples:
      agent-monitor demo
      agent-monitor demo --fast
      agent-monitor demo --model gemini-2.5-flash --prompt "Tell me a story."

    Exit code: 0; 1 if the model that was asked failed; 2 if an argument, the key or a package is
    missing.
    """
    console = output.stdout()
    if model is not None:
        _ask(console, model, prompt or PROMPT)
    elif prompt is not None:
        raise ConfigError("--prompt needs a model to ask: add --model NAME")
    else:
        _show_recorded(console, fast=fast)


# ------------------------------------------------------------------ recorded runs


def _show_recorded(console: Console, *, fast: bool) -> None:
    gemini, runs = _gemini(), demo_runs()
    console.print(Text("agent-monitor demo", style="bold"))
    console.print(
        f"{len(runs)} recorded runs, put into Gemini's wire form and served by a local server; the real google-genai"
        " SDK reads them, agent-monitor watches it.",
        width=output.columns(console),
    )
    pace_s, think_s = (FAST_PACE_S, FAST_THINK_S) if fast else (PACE_S, THINK_S)
    played: list[tuple[DemoRun, DemoResult]] = []
    for number, run in enumerate(runs, 1):
        output.heading(console, f"{number} of {len(runs)}: {run.title}")
        _introduce(console, run)
        screen = gemini.DemoScreen(console)
        end = anyio.run(partial(gemini.play, run, screen, pace_s=pace_s, think_s=think_s))
        screen.ended(end.outcome)
        output.card(console, _title(end.outcome), _facts(end), style=style(end.outcome))
        played.append((run, end))
    _summarise(console, played)


def _introduce(console: Console, run: DemoRun) -> None:
    origin = f"recorded run of {run.model}, put into Gemini's wire form ({run.source.partition(':')[0]}, {run.license})"
    console.print(Text(origin, style="italic"), width=output.columns(console))
    output.said_by_user(console, run.prompt)


def _facts(end: DemoResult) -> list[tuple[str, str | Text]]:
    rows = why(end.outcome)
    if not end.outcome.ok:
        rows.append(("saved", _saved(end)))
        rows.append(("closed", _closed(end)))
    else:
        did = count(end.recorded.tool_calls, "tool call")
        rows.append(
            ("watched", f"{count(end.outcome.turns, 'turn')}, {did}, {end.sent.chars:,} characters; no reason to stop")
        )
    return rows


def _saved(end: DemoResult) -> str:
    saved = end.recorded - end.sent
    parts = []
    if end.recorded.chars:
        parts.append(f"{saved.chars:,} of {end.recorded.chars:,} recorded characters were never sent")
    if end.recorded.tool_calls:
        calls = f"{saved.tool_calls} of {end.recorded.tool_calls} recorded tool calls"
        parts.append(f"{calls} and {saved.turns} of {end.recorded.turns} model calls were never made")
    return "; ".join(parts)


def _closed(end: DemoResult) -> str:
    if end.seen_closed_after_s is None:
        return "the server did not see the connection close"
    return f"the server saw the connection close {ms(end.seen_closed_after_s)} after the decision"


def _summarise(console: Console, played: list[tuple[DemoRun, DemoResult]]) -> None:
    output.heading(console, "in short")
    columns = (table.Column("run", "fold"), "reason", "saved", "closed after")
    table.show(console, columns, [_summary(run, end) for run, end in played])
    console.print()
    console.print("The same around a stream of your own:")
    console.print(
        Text("  async with monitor.watch(stream) as watched:\n      async for chunk in watched: ...", style="cyan")
    )
    console.print("and over runs that you have recorded:")
    console.print(Text("  agent-monitor scan FILE", style="cyan"))
    console.print("A whole run, driven to its outputs:")
    console.print(Text("  agent-monitor run --demo", style="cyan"))


def _summary(run: DemoRun, end: DemoResult) -> tuple[str, Text, str, str]:
    saved = end.recorded - end.sent
    stopped = not end.outcome.ok
    return (
        run.title,
        Text(end.outcome.reason.value, style=style(end.outcome)),
        (
            (count(saved.tool_calls, "tool call") if saved.tool_calls else count(saved.chars, "character"))
            if stopped
            else "-"
        ),
        ms(end.seen_closed_after_s) if end.seen_closed_after_s is not None else "not seen" if stopped else "-",
    )


# ------------------------------------------------------------------ a real model


def _ask(console: Console, model: str, prompt: str) -> None:
    if not (os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY")):
        raise ConfigError(
            "--model asks a real model and needs a key: set GEMINI_API_KEY (without --model the demo needs none)"
        )
    gemini = _gemini()
    console.print(Text.assemble(("agent-monitor demo", "bold"), f": {output.printable(model)}, watched"))
    output.said_by_user(console, prompt)
    screen = gemini.DemoScreen(console)
    outcome: monitor.Outcome = anyio.run(gemini.ask_model, model, prompt, screen)
    screen.ended(outcome)
    rows = why(outcome)
    tokens = f"{outcome.usage.output_tokens or 0:,} output tokens{' (estimated)' if outcome.usage_estimated else ''}"
    rows.append(("watched", f"{screen.chars:,} characters, {tokens}, {outcome.elapsed_s:.1f} s"))
    if outcome.closed_after_s is not None and outcome.error is None:
        rows.append(("closed", f"{'yes' if outcome.closed else 'no'}, {ms(outcome.closed_after_s)} after the decision"))
    output.card(console, _title(outcome), rows, style=style(outcome))
    if not outcome.ok and outcome.reason is not TerminateReason.LOOP_DETECTED:
        raise typer.Exit(1)


# ------------------------------------------------------------------ both


def _title(outcome: monitor.Outcome) -> str:
    return "left alone" if outcome.ok else f"{'stopped' if outcome.error is None else 'failed'}: {outcome.source}"


def _gemini() -> ModuleType:
    """The module that needs the SDK."""
    try:
        return importlib.import_module("monitor.cli.inputs.demo_model")
    except ImportError as error:
        if (error.name or "").startswith("google"):
            raise MissingExtra("google-genai", "google") from None
        raise
