"""`agent-monitor deliver`: the result of a call that comes from outside."""

from __future__ import annotations

import json
from typing import Annotated, Final

import anyio
import typer

from monitor._util.codec import to_plain
from monitor.cli.options.session_file import FolderOption, JsonOption, SessionArgument, session_to_write
from monitor.cli.options.supervisor_arguments import stdin_of
from monitor.cli.render import output, table
from monitor.errors import ConfigError
from monitor.messages import CallRecord
from monitor.sessions import deliver as store_result
from monitor.sessions import waiting_calls
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.postgres_session import is_database


def deliver(
    session: SessionArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The result; - reads it from stdin. Without it: what waits.")
    ] = None,
    *,
    key: Annotated[str | None, typer.Option("--call", metavar="KEY", help="Which call, if several wait.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The call has failed, and TEXT says why.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the result of a call that comes from outside. A run has paused for it.

    Without TEXT the calls that wait are listed, with their keys: a tool has sent
    its key along. Then agent-monitor resume, or the program of the run, goes on.
    Delivering the same result again changes nothing.

    \b
    Examples:
      agent-monitor deliver letters
      agent-monitor deliver letters "The office says yes."
      agent-monitor deliver letters - --call 5f1c... < answer.txt
      agent-monitor deliver letters "Nobody has answered." --failed

    \b
    Exit code:
      0    it is stored, or the calls are listed
      2    there is no such session, no such call waits, or a process has the session open
    """  # noqa: D301 - \b keeps the lines of an example apart
    if text is None and (key is not None or failed):
        raise ConfigError("say what the result is: agent-monitor deliver SESSION TEXT")
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
        said = f"the result of {found[0].tool} is stored; agent-monitor resume {name} goes on with the run"
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
