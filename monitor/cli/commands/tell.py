"""`agent-monitor tell`: say something to a run that goes on in another process."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from monitor.cli.options.session_file import FolderOption, JsonOption, SessionArgument, found_file, opened_reader
from monitor.cli.options.supervisor_arguments import task_of
from monitor.cli.render import output
from monitor.errors import ConfigError
from monitor.events import SteerDelivered, SteerReturned
from monitor.sessions import Letter
from monitor.sessions import tell as told
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.postgres_session import is_database

LOOK_S: Final = 0.1
"""Seconds between two looks at the session, while the command waits."""
RETURNED: Final = 1
"""The exit code if the run has ended without the message, or has not read it in time."""


def tell(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    *,
    now: Annotated[bool, typer.Option("--now", help="End the answer that the model is writing.")] = False,
    later: Annotated[bool, typer.Option("--later", help="Say it where the run would end.")] = False,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who says it.")] = "",
    data: Annotated[bool, typer.Option("--data", help="It is the result of a program.")] = False,
    id: Annotated[str | None, typer.Option("--id", help="Sent again with this id, it is said once.")] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait until the run has it.")
    ] = 0.0,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to a run that goes on, or is to be resumed.

    The model reads it before its next call: no call of a tool is cut off.

    \b
    Examples:
      agent-monitor tell tidy "Leave the tests as they are."
      agent-monitor tell tidy "Stop, and look at main.py first." --now
      agent-monitor tell tidy "Then write a changelog." --later

    \b
    Exit code:
      0    it is stored; with --wait, the run has it
      1    with --wait: the run has ended without it, or has not read it in time
      2    there is no such session, or no run that goes on
    """  # noqa: D301 - \b keeps the lines of an example apart
    if now and later:
        raise ConfigError("--now and --later say different things; give one of them")
    where = session if is_database(session) else str(found_file(session, folder))
    letter = told(where, task_of(text), kind="follow_up" if later else "steer", now=now, by=by, data=data, id=id)
    state = _state(where, letter, wait)
    owned = _is_owned(where)
    if as_json:
        output.write_json({"id": letter.message.id, "run": letter.run, "state": state, "running": owned})
    else:
        how = _WORDS[state] if owned or state != "accepted" else _RESUMES.format(without_password(session))
        output.line(output.stdout(), how)
    if wait and state != "delivered":
        raise typer.Exit(RETURNED)


_WORDS: Final = {
    "accepted": "stored; the run reads it before its next model call",
    "delivered": "the run has it",
    "returned": "the run has ended without it",
}
_RESUMES: Final = "stored; no process carries the run out now: agent-monitor resume {} goes on with it"


def _is_owned(where: str) -> bool:
    """Whether a process has the session now."""
    with opened_reader(where, None) as session:
        return session.owner is not None


def _state(where: str, letter: Letter, wait_s: float) -> str:
    """The state of the message after at most `wait_s` seconds."""
    until = time.monotonic() + wait_s
    while True:
        with opened_reader(where, None) as session:
            for one in session.events(letter.run):
                event = one.event
                if isinstance(event, SteerDelivered | SteerReturned) and event.message.id == letter.message.id:
                    return "delivered" if isinstance(event, SteerDelivered) else "returned"
        if time.monotonic() >= until:
            return "accepted"
        time.sleep(LOOK_S)
