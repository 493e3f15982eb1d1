"""`agent-monitor run`: drive a whole run from the shell."""

from __future__ import annotations

import monitor
from monitor.cli.foreground import can_type, drive, log_of
from monitor.cli.options import run_arguments
from monitor.cli.options.run_arguments import as_node
from monitor.cli.options.run_options import RunCommandOptions, ShownOptions
from monitor.cli.options.session_file import session_to_write
from monitor.cli.options.supervisor_arguments import approver, task_of
from monitor.cli.render.output import STDIN
from monitor.cli.render.screen import EventFeed, RunHeading, screen_of
from monitor.errors import ConfigError
from monitor.sessions import RunStage, SessionStore
from monitor.sessions.closed_runs import MAIN
from monitor.tools import PendingApprovals


def run(options: RunCommandOptions, shown: ShownOptions) -> None:
    """Drive a model to its outputs, within limits, and say how it ended and why.

    The model works alone: it calls the tools you give it, emits each output, and is reminded
    of missing outputs if it stops too early.

    \b
    Examples:
      agent-monitor run --demo
      agent-monitor run "Why is the sky blue?" --model google:gemini-2.5-flash
      agent-monitor run "Review setup.py" --model google:gemini-2.5-flash \\
        --tool my_tools:read_file --output summary:str --output risk:float
      agent-monitor run "Tidy up the tests" --model google:gemini-2.5-flash \\
        --workspace . --session tidy
      git diff | agent-monitor run - --instructions "Review this change." \\
        --model google:gemini-2.5-flash --output 'issues:list\\[str]' --json

    \b
    With --json, stdout is JSON lines: events as they come, each with its "type";
    the last one is "run_terminated" and holds the "outcome". With --verbose the
    pieces of the answer are among them.

    \b
    With --session, the run survives its process: what it said and did is stored
    step by step, and agent-monitor resume NAME goes on with it.

    \b
    On a terminal, what you type goes to the model: Enter sends it, and it is read
    before the next model call. Tab changes that to now (the answer that is being
    written ends) or later (where the run would end). agent-monitor tell NAME does
    the same from elsewhere.

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
      8    it waits for an approval: agent-monitor resume asks for it
      130  Ctrl-C (143: SIGTERM; 141: nobody reads what is printed)
    """  # noqa: D301 - \b keeps the lines of an example apart
    demo, session = options.demo, options.session
    task = options.task or (run_arguments.TASK if demo else None)
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
        raise ConfigError(f"a run of the session {name} has not ended: agent-monitor resume {name} goes on with it")
