"""`agent-monitor sessions inbox`, `tell` and `deliver`: answers, words and results for a run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from rich.console import Console
from rich.text import Text

from monitor._util.codec import to_plain
from monitor.cli.options.session_file import (
    DatabaseOption,
    FolderOption,
    SessionArgument,
    complete,
    found_file,
    opened_reader,
    session_name,
    session_to_write,
)
from monitor.cli.options.shared import JsonOption, argument, flag, option
from monitor.cli.options.supervisor_arguments import stdin_of, task_of
from monitor.cli.render import output, table
from monitor.cli.render.session_view import age
from monitor.errors import ConfigError
from monitor.events import SteerDelivered, SteerReturned
from monitor.messages import ApprovalDecision, CallRecord, request_codec
from monitor.sessions import Letter, WaitingRun, answer, default_folder, waiting_calls
from monitor.sessions import deliver as store_result
from monitor.sessions import inbox as waiting_in
from monitor.sessions import tell as told
from monitor.sessions.mail.waiting import runs_of
from monitor.sessions.postgres.postgres_reader import PostgresReader, without_password
from monitor.sessions.postgres.postgres_session import is_database, parts_of
from monitor.tools.approvals.approvers import shown
from monitor.view.status import count

STATES = ("waiting", "stopped", "running", "ended")


def inbox(
    session: Annotated[
        str | None,
        argument("SESSION", "Show this one, with its questions whole.", autocompletion=complete),
    ] = None,
    *,
    yes: Annotated[bool, flag("--yes", "Answer its question: the call may be made.")] = False,
    no: Annotated[bool, flag("--no", "Answer its question: the call may not be made.")] = False,
    why: Annotated[str, option("TEXT", "Why, for the model.")] = "",
    question: Annotated[str | None, option("ID", "Which one, if there are several.")] = None,
    by: Annotated[str, option("NAME", "Who answers.")] = "",
    state: Annotated[str | None, option("STATE", f"Only these: {', '.join(STATES)}.")] = None,
    older: Annotated[
        float | None, option("MINUTES", "Only those not written for so long.", "--older-than", min=0)
    ] = None,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that have not ended, and answer their questions.

    A run is "running" while a process carries it out, "waiting" if it waits for an
    answer, and "stopped" if its process has gone. Answering stores the answer;
    agent-monitor sessions resume, or the program of the run, goes on with it.

    Examples:
      agent-monitor sessions inbox
      agent-monitor sessions inbox --state waiting --older-than 60 --json
      agent-monitor sessions inbox letters
      agent-monitor sessions inbox letters --yes
      agent-monitor sessions inbox letters --no --why "Not on a Sunday."
    """
    if state is not None and state not in STATES:
        raise ConfigError(f"--state {state}: give one of {', '.join(STATES)}")
    if session is not None:
        rows = runs_of(*_place(session, folder))
        if yes or no or why:
            _answer(rows, question, yes=yes, no=no, why=why, by=by, as_json=as_json)
            return
    elif yes or no or why or question is not None:
        raise ConfigError("say which session the answer is for: agent-monitor sessions inbox SESSION --yes")
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
        said = f"{decision}; agent-monitor sessions resume {session_name(path)} goes on with the run"
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


# --------------------------------------------------------------------------------------------------
# `agent-monitor sessions tell`: say something to a run that goes on in another process.

LOOK_S: Final = 0.1
"""Seconds between two looks at the session, while the command waits."""
RETURNED: Final = 1
"""The exit code if the run has ended without the message, or has not read it in time."""


def tell(
    session: SessionArgument,
    text: Annotated[str, argument("TEXT", "What to say; - reads it from stdin.")],
    *,
    now: Annotated[bool, flag("--now", "End the answer that the model is writing.")] = False,
    later: Annotated[bool, flag("--later", "Say it where the run would end.")] = False,
    by: Annotated[str, option("NAME", "Who says it.")] = "",
    data: Annotated[bool, flag("--data", "It is the result of a program.")] = False,
    id: Annotated[str | None, option("ID", "Sent again with this id, it is said once.")] = None,
    wait: Annotated[float, option("SECONDS", "How long to wait until the run has it.", min=0)] = 0.0,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to a run that goes on, or is to be resumed.

    The model reads it before its next call: no call of a tool is cut off.

    Examples:
      agent-monitor sessions tell tidy "Leave the tests as they are."
      agent-monitor sessions tell tidy "Stop, and look at main.py first." --now
      agent-monitor sessions tell tidy "Then write a changelog." --later

    Exit code:
      0    it is stored; with --wait, the run has it
      1    with --wait: the run has ended without it, or has not read it in time
      2    there is no such session, or no run that goes on
    """
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
_RESUMES: Final = "stored; no process carries the run out now: agent-monitor sessions resume {} goes on with it"


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


# --------------------------------------------------------------------------------------------------
# `agent-monitor sessions deliver`: the result of a call that comes from outside.


def deliver(
    session: SessionArgument,
    text: Annotated[str | None, argument("TEXT", "The result; - reads it from stdin. Without it: what waits.")] = None,
    *,
    key: Annotated[str | None, option("KEY", "Which call, if several wait.", "--call")] = None,
    failed: Annotated[bool, flag("--failed", "The call has failed, and TEXT says why.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the result of a call that comes from outside. A run has paused for it.

    Without TEXT the calls that wait are listed, with their keys: a tool has sent
    its key along. Then agent-monitor sessions resume, or the program of the run, goes on.
    Delivering the same result again changes nothing.

    Examples:
      agent-monitor sessions deliver letters
      agent-monitor sessions deliver letters "The office says yes."
      agent-monitor sessions deliver letters - --call 5f1c... < answer.txt
      agent-monitor sessions deliver letters "Nobody has answered." --failed

    Exit code:
      0    it is stored, or the calls are listed
      2    no such session, no such call waits, or a process has the session open
    """
    if text is None and (key is not None or failed):
        raise ConfigError("say what the result is: agent-monitor sessions deliver SESSION TEXT")
    result = stdin_of("result") if text == output.STDIN else text
    name = without_password(session) if is_database(session) else session

    async def run() -> list[CallRecord]:
        async with session_to_write(session, create=False, folder=folder) as store:
            waiting = await waiting_calls(store)
            if result is None:
                return waiting
            return [await store_result(store, key or _only(waiting).key, result, is_error=failed)]

    found = anyio.run(run)
    if as_json or (result is None and found):
        _CALLS.print(found, as_json=as_json)
    elif result is None:
        output.stdout().print("no call waits for its result")
    else:
        said = f"the result of {found[0].tool} is stored; agent-monitor sessions resume {name} goes on with the run"
        output.line(output.stdout(), said)


def _only(waiting: list[CallRecord]) -> CallRecord:
    if len(waiting) == 1:
        return waiting[0]
    keys = ", ".join(one.key for one in waiting)
    raise ConfigError(f"name one of the calls with --call: {keys}" if keys else "no call waits for its result")


_CALLS: Final = table.RowKind[CallRecord](
    table.Fact("call", "call", lambda one: one.key),
    table.Fact("tool", "tool", lambda one: one.tool, output.on_one_line),
    table.Fact(
        "arguments",
        table.Column("arguments", "end"),
        lambda one: to_plain(one.arguments),
        lambda given: output.on_one_line(json.dumps(given, ensure_ascii=False)),
    ),
    table.Fact("run", None, lambda one: one.run),
    table.Fact("state", None, lambda one: one.state.value),
    table.Fact("text", None, lambda one: one.text),
)
"""The columns of a call that waits for its result, or has got it."""
