"""`agent-monitor run`, and `sessions resume`: drive a run from the shell, or go on with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import monitor
from monitor.adapters.replay_model import ReplayModel
from monitor.cli.foreground import can_type, drive, log_of
from monitor.cli.options.run_arguments import (
    SAMPLE_TASK,
    BaseUrlOption,
    RunCommandOptions,
    ShownOptions,
    arguments_in,
    as_node,
)
from monitor.cli.options.session_file import FolderOption, SessionArgument, opened_reader, session_to_write
from monitor.cli.options.shared import option
from monitor.cli.options.supervisor_arguments import approver, task_of
from monitor.cli.render.output import STDIN
from monitor.cli.render.screen import EventFeed, RunHeading, screen_of
from monitor.errors import ConfigError, TerminateReason
from monitor.events import TurnEnded
from monitor.models import Model
from monitor.runs.record.recorder import TASK
from monitor.sessions import RunRecord, RunStage, SessionStore
from monitor.sessions.closed_runs import MAIN
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.tools import PendingApprovals


def run(options: RunCommandOptions, shown: ShownOptions) -> None:
    """Drive a model to its outputs, within limits, and say how it ended and why.

    The model works alone: it calls the tools you give it, emits each output, and is reminded
    of missing outputs if it stops too early.

    Examples:
      agent-monitor run --demo
      agent-monitor run "Why is the sky blue?" --model google:gemini-2.5-flash
      agent-monitor run "Review setup.py" --model google:gemini-2.5-flash \\
        --tool my_tools:read_file --output summary:str --output risk:float
      agent-monitor run "Tidy up the tests" --model google:gemini-2.5-flash \\
        --workspace . --session tidy
      git diff | agent-monitor run - --instructions "Review this change." \\
        --model google:gemini-2.5-flash --output 'issues:list\\[str]' --json

    With --json, stdout is JSON lines: events as they come, each with its "type";
    the last one is "run_terminated" and holds the "outcome". With --verbose the
    pieces of the answer are among them.

    With --session, the run survives its process: what it said and did is stored
    step by step, and agent-monitor sessions resume NAME goes on with it.

    On a terminal, what you type goes to the model: Enter sends it, and it is read
    before the next model call. Tab changes that to now (the answer that is being
    written ends) or later (where the run would end). agent-monitor sessions tell NAME does
    the same from elsewhere.

    Ctrl-C ends the run and closes its connection; a second one leaves at once.

    Exit code:
      0    the goal was reached
      1    the model ended the run with failure
      2    an option, the key or a package is wrong or missing
      3    a limit: turns, calls, tokens, money, time
      4    a loop
      5    outputs are missing: the model stopped without them
      6    the model call failed, was blocked or was cut off
      7    another part crashed: a detector, a condition
      8    it waits for an approval: agent-monitor sessions resume asks for it
      130  Ctrl-C (143: SIGTERM; 141: nobody reads what is printed)
    """
    demo, session = options.demo, options.session
    task = options.task or (SAMPLE_TASK if demo else None)
    said = None if task == STDIN else task_of(task)
    arguments = options.arguments()
    store = session_to_write(session) if session is not None else None
    screen = screen_of(
        as_json=shown.as_json, verbose=shown.verbose, price=arguments.priced, session=session, types=can_type()
    )
    feed = EventFeed(screen)
    with log_of(shown.log) as sinks:
        made, close = arguments.made_model()
        asks = approver() or (PendingApprovals() if session is not None else None)
        supervisor = arguments.supervisor(made, approver=asks, sinks=[feed, *sinks])
        wanted = task_of(task) if said is None else said  # read stdin only after the options are checked

        async def begin(opened: SessionStore | None) -> monitor.Run:
            if opened is not None:
                await _check_over(opened, session)
                await opened.append(as_node(arguments))
            command = f"agent-monitor run{' --demo' if demo else ''}"
            screen.begin(RunHeading(command, made.name, [*supervisor.tools], outputs_in(supervisor), wanted))
            return supervisor.stream(wanted, session=opened)

        drive(begin, store, feed, close)


def outputs_in(supervisor: monitor.Supervisor) -> list[str]:
    """The names of the declared outputs."""
    return supervisor.outputs.names if supervisor.outputs is not None else []


async def _check_over(session: SessionStore, name: str | None) -> None:
    """Raises `ConfigError` if a run of the session has not ended."""
    if any(one.purpose == MAIN and one.state is not RunStage.ENDED for one in await session.runs()):
        raise ConfigError(
            f"a run of the session {name} has not ended: agent-monitor sessions resume {name} goes on with it"
        )


# --------------------------------------------------------------------------------------------------
# `agent-monitor sessions resume`: go on with a run that is stored in a session.

_OVER = frozenset({TerminateReason.GOAL.value, TerminateReason.STREAM_ENDED.value, TerminateReason.TERMINATED.value})
"""Ends after which there is nothing to go on with."""


def resume(
    session: SessionArgument,
    *,
    model: Annotated[
        str | None,
        option("NAME", "Another model than before; see agent-monitor run --help."),
    ] = None,
    base_url: BaseUrlOption = None,
    folder: FolderOption = None,
    shown: ShownOptions,
) -> None:
    """Go on with a run that agent-monitor run --session has stored.

    Its process may have died, it may wait for an approval, or Ctrl-C, a limit, a loop
    or an error may have ended it. The model, the tools and all options are as they
    were, and limits count anew.

    What about calls that were being made?
      a call that was not begun is made now;
      a call that had begun may have had its effect: the model reads that this is
      unknown, unless the tool says that a second call does no harm;
      a call that waits for an approval is asked for on this terminal.

    Examples:
      agent-monitor run "Tidy up the tests" --model google:gemini-2.5-flash \\
        --workspace . --session tidy
      agent-monitor sessions resume tidy
      agent-monitor sessions resume tidy --model openai:gpt-5.2

    Output, Ctrl-C and exit codes are those of agent-monitor run.
    Without a terminal, a call that needs an approval goes on waiting: exit code 8.
    A session that another process is writing is refused, and stays as it is.
    """
    stored = session_to_write(session, create=False, folder=folder)
    with opened_reader(session, folder) as there:
        record, arguments = _to_go_on(there.runs(), session), arguments_in(there)
        ended = [one.event.turn for one in there.events(record.id) if isinstance(one.event, TurnEnded)]
        turns = sum(turn.model_error is None for turn in ended)
    if arguments is None:
        raise ConfigError(
            f"the run of {session} was begun by a program, which has its tools: there, supervisor.resume(session)"
            " goes on with it"
        )
    arguments.go_there()
    if model is not None or base_url is not None:
        arguments = replace(arguments, model=model or arguments.model, base_url=base_url, demo=False)
    screen = screen_of(
        as_json=shown.as_json, verbose=shown.verbose, price=arguments.priced, session=session, types=can_type()
    )
    feed = EventFeed(screen)
    with log_of(shown.log) as sinks:
        made, close = arguments.made_model()
        if model is None:
            _skip(made, turns)
        supervisor = arguments.supervisor(made, approver=approver() or PendingApprovals(), sinks=[feed, *sinks])

        async def begin(store: SessionStore | None) -> monitor.Run:
            screen.begin(_heading(session, record, supervisor))
            return await supervisor.resume_stream(store, run=record.id)

        drive(begin, stored, feed, close)


def _heading(session: str, record: RunRecord, supervisor: monitor.Supervisor) -> RunHeading:
    command = f"agent-monitor sessions resume {without_password(session)}"
    task = str(record.data.get(TASK, ""))
    return RunHeading(command, supervisor.model.name, [*supervisor.tools], outputs_in(supervisor), task)


def _to_go_on(runs: Sequence[RunRecord], session: str) -> RunRecord:
    """The newest run, if there is anything left to do in it. Raises `ConfigError` otherwise."""
    of_user = [run for run in runs if run.purpose == MAIN]
    if not of_user:
        raise ConfigError(f"the session {session} has no run")
    newest = of_user[-1]
    if newest.state is RunStage.ENDED and (newest.data.get("ok") or newest.data.get("reason") in _OVER):
        raise ConfigError(
            f"the last run of {session} is over ({newest.data.get('reason')}: {newest.data.get('detail')});"
            f' agent-monitor run "..." --session {session} goes on with the conversation'
        )
    return newest


def _skip(model: Model, turns: int) -> None:
    """A recorded model goes on behind the turns that it has had."""
    if isinstance(model, ReplayModel):
        model.calls = turns
