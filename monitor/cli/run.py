"""`agent-monitor run`: drive a whole run from the shell."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import anyio
import typer

import monitor
from monitor.cli import UNREAD, _sample, _view
from monitor.cli._clients import Closing
from monitor.cli._given import (
    STDIN,
    approval_of,
    approver,
    budget_of,
    instructions_of,
    limits_of,
    model_of,
    model_settings_of,
    nothing_to_close,
    number_or_off,
    plan_of,
    price_of,
    servers_of,
    task_of,
    tools_of,
    variables_of,
    workspace_tools,
)
from monitor.cli._outcome import exit_code
from monitor.cli._screen import ForPeople, JsonLines, Shown
from monitor.cli._settings import SETTINGS, ConfigOption, DetectorsOption, SetOption, settings_of
from monitor.cli._types import outputs_of
from monitor.compaction.preset import PRESETS
from monitor.errors import ConfigError

_WHAT, _LIMITS, _SHOWN = "The run", "Limits", "What is shown"
STRAGGLER_S = 0.2
"""How long the command waits for the thread of an abandoned tool, in seconds."""


def run(  # noqa: PLR0917 - typer calls it by name
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="google:gemini-2.5-flash, openai:..., anthropic:..., or replay:FILE.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="A sample: a recorded model, a tool and two outputs. No key, no network.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="NAME:TYPE",
            help=(
                "What the model must emit; may be given again. str, int, float, bool, json, list\\[str], module:Model,"
                " or a JSON schema."
            ),
            rich_help_panel=_WHAT,
        ),
    ] = None,
    instructions: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="The system prompt; ${name} is a variable.", rich_help_panel=_WHAT),
    ] = None,
    var: Annotated[
        list[str] | None,
        typer.Option("--var", metavar="NAME=VALUE", help="A variable of the instructions.", rich_help_panel=_WHAT),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", metavar="MODULE:FUNCTION", help="A Python function the model may call.", rich_help_panel=_WHAT
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option(
            "--mcp",
            metavar="COMMAND|URL",
            help="An MCP server whose tools the model may call; may be given again.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            metavar="FOLDER",
            help="Tools for the files in this folder, and a shell that begins there.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    approval: Annotated[
        str | None,
        typer.Option(
            "--approval",
            metavar="MODE|FILE",
            help=(
                "Which calls need a yes on the terminal: default (all that do not read; so it is with --workspace),"
                " auto_edit, yolo (none), plan (only reads run), or a TOML file with rules."
            ),
            rich_help_panel=_WHAT,
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="The steps of the task, one a line.", rich_help_panel=_WHAT),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="TEXT", help="One step; may be given again.", rich_help_panel=_WHAT),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Of the model.", rich_help_panel=_WHAT)
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME=VALUE",
            help="A setting of the provider's own, as its SDK names it.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url", metavar="URL", help="A compatible server in the place of the service.", rich_help_panel=_WHAT
        ),
    ] = None,
    max_turns: Annotated[str, typer.Option(metavar="N|off", help="Turns.", rich_help_panel=_LIMITS)] = "30",
    timeout: Annotated[
        str, typer.Option(metavar="SECONDS|off", help="For the whole run.", rich_help_panel=_LIMITS)
    ] = "600",
    idle_timeout: Annotated[
        str, typer.Option(metavar="SECONDS|off", help="How long the model may send nothing.", rich_help_panel=_LIMITS)
    ] = "off",
    max_tool_calls: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tool calls.", rich_help_panel=_LIMITS)
    ] = None,
    budget_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Tokens, in and out, those of subagents included.", rich_help_panel=_LIMITS
        ),
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Money; needs --price.", rich_help_panel=_LIMITS)
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="IN,OUT",
            help="US dollars per million tokens, e.g. 0.30,2.50; a third number: cached.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    last_turn: Annotated[
        str,
        typer.Option(
            metavar="SECONDS|off", help="One more turn, to emit what there is, after a limit.", rich_help_panel=_LIMITS
        ),
    ] = "60",
    max_nudges: Annotated[
        int, typer.Option(metavar="N", min=0, help="How often missing outputs are asked for.", rich_help_panel=_LIMITS)
    ] = 3,
    detectors: DetectorsOption = None,
    no_detectors: Annotated[
        bool, typer.Option("--no-detectors", help="Look for no loops.", rich_help_panel=SETTINGS)
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="What follows from a loop: ladder (the default), stop or observe.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    compaction: Annotated[
        str | None,
        typer.Option(
            "--compaction",
            metavar="PRESET|off",
            help=f"How the history is kept inside the model's window: {', '.join(PRESETS)}, or off.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            "--window",
            metavar="N",
            min=1,
            help="The model's window in tokens, where no table knows it.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON lines: one event each; the last is the outcome.", rich_help_panel=_SHOWN
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="The thinking too, and every event, whole.", rich_help_panel=_SHOWN)
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", help="Append every event to this file, as JSON lines.", rich_help_panel=_SHOWN
        ),
    ] = None,
) -> None:
    """Drive a model to its outputs, within limits, and say how it ended and why.

    The model works alone: it calls the tools you give it, emits each output, and is reminded
    of missing outputs if it stops too early.

    \b
    Examples:
      agent-monitor run --demo
      agent-monitor run "Why is the sky blue?" --model google:gemini-2.5-flash
      agent-monitor run "Review setup.py" --model google:gemini-2.5-flash \\
        --tool my_tools:read_file --output summary:str --output risk:float
      git diff | agent-monitor run - --instructions "Review this change." \\
        --model google:gemini-2.5-flash --output 'issues:list\\[str]' --json

    \b
    With --json, stdout is JSON lines: events as they come, each with its "type";
    the last one is "run_terminated" and holds the "outcome". With --verbose the
    pieces of the answer are among them.

    \b
    Ctrl-C ends the run and closes its connection; a second one leaves at once.

    \b
    Exit code:
      0    the goal was reached
      1    the model ended the run with failure
      2    an option, the key or a package is wrong or missing
      3    a limit: turns, calls, tokens, money, time
      4    a loop
      5    outputs are missing: the model stopped without them
      6    the model call failed, was blocked or was cut off
      7    another part crashed: a detector, a condition
      130  Ctrl-C (143: SIGTERM; 141: nobody reads what is printed)
    """  # noqa: D301 - \b keeps the lines of an example apart
    console = _view.stdout()
    with _view.tidy_exit():
        if demo:
            task, tool, output = task or _sample.TASK, tool or [_sample.TOOL], output or list(_sample.OUTPUTS)
        said = None if task == STDIN else task_of(task)
        priced = price_of(price)
        if no_detectors and detectors is not None:
            raise ConfigError("--detectors and --no-detectors say different things; give one of them")
        chosen = settings_of(config, detectors, settings, policy, compaction)
        seconds = number_or_off(last_turn, "--last-turn")
        screen = JsonLines(chunks=verbose) if as_json else ForPeople(console, verbose=verbose, price=priced, demo=demo)
        shown = Shown(screen)
        with _log(log) as sinks:
            sampled = demo and model is None and base_url is None
            asked, close = (_sample.sample_model(), nothing_to_close) if sampled else model_of(model, base_url)
            supervisor = monitor.Supervisor(
                asked,
                instructions=instructions_of(instructions),
                variables=variables_of(var or ()),
                tools=[*tools_of(tool or ()), *servers_of(mcp or ()), *workspace_tools(workspace)],
                approval=approval_of(approval, workspace),
                approver=approver(),
                outputs=outputs_of(output) if output else None,
                stop_when=limits_of(
                    max_turns=max_turns, timeout=timeout, idle_timeout=idle_timeout, max_tool_calls=max_tool_calls
                ),
                budget=budget_of(budget_tokens, budget_usd, priced),
                prices=priced,
                detectors=None if no_detectors else chosen.detectors(),
                policy=chosen.policy(),
                window=window,
                compaction=chosen.compaction(),
                plan=plan_of(plan, step or ()),
                last_turn=monitor.LastTurn(seconds) if seconds is not None else None,
                max_nudges=max_nudges,
                model_settings=model_settings_of(temperature, setting or ()),
                sinks=[shown, *sinks],
            )
            said = task_of(task) if said is None else said  # read stdin only after the options are checked
            screen.begin(supervisor, said)
            before = set(threading.enumerate())
            ended = anyio.run(partial(_driven, supervisor, said, shown, close))
        code = exit_code(ended.outcome) if ended.code is None else ended.code
        _leave_stragglers(before, code)
        raise typer.Exit(code)


def _log(file: Path | None) -> AbstractContextManager[list[Any]]:
    if file is None:
        return nullcontext([])

    @contextmanager
    def opened() -> Iterator[list[Any]]:
        with monitor.JsonlSink(file) as sink:
            yield [sink]

    return opened()


# ------------------------------------------------------------------ the run


@dataclass(slots=True)
class _Ended:
    outcome: monitor.Outcome
    code: int | None = None
    """The exit code, if something outside the run ended it."""


async def _driven(supervisor: monitor.Supervisor, task: str, shown: Shown, close: Closing) -> _Ended:
    try:
        async with supervisor.stream(task) as run:
            shown.abort = run.abort
            with _aborting(run.abort) as received:
                async for envelope in run.envelopes():
                    shown.handed_out(envelope)
    finally:
        shown.flush()
        shown.close()
        await close()
    if shown.failure is not None:
        raise shown.failure
    if run.outcome.reason is not monitor.TerminateReason.ABORTED:
        return _Ended(run.outcome)
    return _Ended(run.outcome, 128 + received[0] if received else UNREAD if _view.nobody_reads() else None)


@contextmanager
def _aborting(abort: Callable[[str], None]) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM abort the run; the second one ends the process without waiting for
    anything. Yields the signals that came.
    """
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os.write(2, b"\nagent-monitor: interrupted twice, leaving at once\n")
            os._exit(128 + number)
        abort("interrupted by Ctrl-C" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}")

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_stragglers(before: set[threading.Thread], code: int) -> None:
    """Exit without waiting for a tool that is stuck in a thread. Nothing can end such a thread, and
    Python would wait for it.
    """
    others = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in others:
        thread.join(STRAGGLER_S)
    if any(thread.is_alive() for thread in others):
        _view.stderr().print("agent-monitor: a tool is still at work; leaving it", style="yellow", soft_wrap=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
