"""`agent-monitor inbox`: the runs of all sessions that have not ended, and answers to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from rich.console import Console
from rich.text import Text

from monitor.cli.options.session_file import (
    DatabaseOption,
    FolderOption,
    JsonOption,
    complete,
    found_file,
    session_name,
)
from monitor.cli.render import output, table
from monitor.cli.render.session_view import age
from monitor.errors import ConfigError
from monitor.messages import ApprovalDecision, request_codec
from monitor.sessions import WaitingRun, answer, default_folder
from monitor.sessions import inbox as waiting_in
from monitor.sessions.mail.waiting import runs_of
from monitor.sessions.postgres.postgres_reader import PostgresReader, without_password
from monitor.sessions.postgres.postgres_session import is_database, parts_of
from monitor.tools.approvals.approvers import shown
from monitor.view.status import count

STATES = ("waiting", "stopped", "running", "ended")


def inbox(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Show this one, with its questions whole.", autocompletion=complete),
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Answer its question: the call may be made.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Answer its question: the call may not be made.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for the model.")] = "",
    question: Annotated[
        str | None, typer.Option("--question", metavar="ID", help="Which one, if there are several.")
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who answers.")] = "",
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help=f"Only these: {', '.join(STATES)}.")
    ] = None,
    older: Annotated[
        float | None, typer.Option("--older-than", metavar="MINUTES", min=0, help="Only those not written for so long.")
    ] = None,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that have not ended, and answer their questions.

    A run is "running" while a process carries it out, "waiting" if it waits for an
    answer, and "stopped" if its process has gone. Answering stores the answer;
    agent-monitor resume, or the program of the run, goes on with it.

    \b
    Examples:
      agent-monitor inbox
      agent-monitor inbox --state waiting --older-than 60 --json
      agent-monitor inbox letters
      agent-monitor inbox letters --yes
      agent-monitor inbox letters --no --why "Not on a Sunday."
    """  # noqa: D301 - \b keeps the lines of an example apart
    if state is not None and state not in STATES:
        raise ConfigError(f"--state {state}: give one of {', '.join(STATES)}")
    if session is not None:
        rows = runs_of(*_place(session, folder))
        if yes or no or why:
            _answer(rows, question, yes=yes, no=no, why=why, by=by, as_json=as_json)
            return
    elif yes or no or why or question is not None:
        raise ConfigError("say which session the answer is for: agent-monitor inbox SESSION --yes")
    else:
        rows = waiting_in(database or folder, ended=state == "ended")
    before_s = time.time() - (older or 0) * 60
    rows = [one for one in rows if state in (None, one.state) and (older is None or one.changed_s < before_s)]
    console = output.stdout()
    if rows or as_json:
        _RUNS.print(rows, as_json=as_json)
    if as_json:
        return
    if session is not None:
        _show_questions(console, rows)
    else:
        where = without_password(database or str(folder or default_folder()))
        output.line(console, f"{count(len(rows), 'run')} in {where}")


def _answer(
    rows: Sequence[WaitingRun], question: str | None, *, yes: bool, no: bool, why: str, by: str, as_json: bool
) -> None:
    if yes == no:
        raise ConfigError("say --yes or --no")
    there = [(one.session, asked) for one in rows for asked in one.questions if question in (None, asked.id)]
    if len(there) != 1:
        ids = ", ".join(asked.id for _, asked in there)
        raise ConfigError(f"name one of the open questions with --question: {ids}" if ids else "no question is open")
    ((path, asked),) = there
    decision: ApprovalDecision = "approved" if yes else "denied"
    anyio.run(partial(answer, path, asked.id, decision, reason=why, by=by or "the person at the terminal"))
    if as_json:
        output.write_json({"question": asked.id, "decision": decision})
    else:
        said = f"{decision}; agent-monitor resume {session_name(path)} goes on with the run"
        output.line(output.stdout(), said)


def _place(session: str, folder: Path | None) -> tuple[Path | str, float]:
    """The place of a session, and the time of its last write in seconds since 1970."""
    if is_database(session):
        with PostgresReader(*parts_of(session)) as stored:
            return session, stored.changed_s
    path = found_file(session, folder)
    return path, path.stat().st_mtime


def _task(one: WaitingRun) -> str:
    return str(one.run.data.get("task", ""))


_RUNS: Final = table.RowKind[WaitingRun](
    table.Fact("session", table.Column("session", "middle"), lambda one: session_name(one.session)),
    table.Fact("path", None, lambda one: without_password(str(one.session))),
    table.Fact("run", None, lambda one: one.run.id),
    table.Fact("state", "state", lambda one: one.state),
    table.Fact("task", None, lambda one: one.run.data.get("task", "")),
    table.Fact("started_s", None, lambda one: one.run.started_at_s),
    table.Fact("changed_s", "changed", lambda one: one.changed_s, lambda changed_s: age(changed_s, time.time())),
    table.Fact(
        "questions",
        table.Column("questions", right=True),
        lambda one: [request_codec.to_dict(asked) for asked in one.questions],
        lambda questions: f"{len(questions) or ''}",
    ),
    table.Fact("messages", None, lambda one: [letter.message.text for letter in one.letters]),
    table.Fact(None, table.Column("task", "end"), _task, lambda task: output.on_one_line(" ".join(task.split()))),
)
"""The columns of a run that has not ended."""


def _show_questions(console: Console, rows: Sequence[WaitingRun]) -> None:
    for asked in (asked for one in rows for asked in one.questions):
        output.line(console, f"question {asked.id}", "bold")
        for line in shown(asked):
            console.print(Text(f"  {line}"), soft_wrap=True)
