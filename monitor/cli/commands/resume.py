"""`agent-monitor resume`: go on with a run that is stored in a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

import monitor
from monitor.adapters.replay_model import ReplayModel
from monitor.cli.commands.run import outputs_in
from monitor.cli.foreground import can_type, drive, log_of
from monitor.cli.options.run_arguments import arguments_in
from monitor.cli.options.run_options import BaseUrlOption, ShownOptions
from monitor.cli.options.session_file import FolderOption, SessionArgument, opened_reader, session_to_write
from monitor.cli.options.supervisor_arguments import approver
from monitor.cli.render.screen import EventFeed, RunHeading, screen_of
from monitor.errors import ConfigError, TerminateReason
from monitor.events import TurnEnded
from monitor.models import Model
from monitor.runs.record.recorder import TASK
from monitor.sessions import RunRecord, RunStage, SessionStore
from monitor.sessions.closed_runs import MAIN
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.tools import PendingApprovals

_OVER = frozenset({TerminateReason.GOAL.value, TerminateReason.STREAM_ENDED.value, TerminateReason.TERMINATED.value})
"""Ends after which there is nothing to go on with."""


def resume(
    session: SessionArgument,
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Another model than before; see agent-monitor run --help."),
    ] = None,
    base_url: BaseUrlOption = None,
    folder: FolderOption = None,
    shown: ShownOptions,
) -> None:
    """Go on with a run that agent-monitor run --session has stored.

    Its process may have died, it may wait for an approval, or Ctrl-C, a limit, a loop
    or an error may have ended it. The model, the tools and all options are as they
    were, and limits count anew.

    \b
    What about calls that were being made?
      a call that was not begun is made now;
      a call that had begun may have had its effect: the model reads that this is
      unknown, unless the tool says that a second call does no harm;
      a call that waits for an approval is asked for on this terminal.

    \b
    Examples:
      agent-monitor run "Tidy up the tests" --model google:gemini-2.5-flash \\
        --workspace . --session tidy
      agent-monitor resume tidy
      agent-monitor resume tidy --model openai:gpt-5.2

    \b
    What is printed, Ctrl-C and the exit codes are as those of agent-monitor run.
    Without a terminal, a call that needs an approval goes on waiting: exit code 8.
    A session that another process is writing is refused, and stays as it is.
    """  # noqa: D301 - \b keeps the lines of an example apart
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
    command = f"agent-monitor resume {without_password(session)}"
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
