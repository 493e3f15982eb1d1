"""Says something to a run of a session from another process."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from os import PathLike

from monitor.errors import ConfigError
from monitor.messages import SteerKind, SteerMessage
from monitor.sessions.beside.mailbox import Letter
from monitor.sessions.postgres.session_address import reader_at
from monitor.sessions.run_records import MAIN, RunRecord, RunStage


def tell(
    path: str | PathLike[str],
    text: str,
    *,
    kind: SteerKind = "steer",
    now: bool = False,
    by: str = "",
    data: bool = False,
    id: str | None = None,
    run: str | None = None,
) -> Letter:
    """Say something to a run of the session at `path`, from any process: see `Run.steer`. `path`:
    its file, or `postgresql://user@host/db#name`.

    `run`: its id, also of a nested run; by default the run that has not ended and was started from
    outside. The message is stored when this returns,
    and the run gets it within a second, or when it is resumed.

    Raises `ConfigError` for an empty text, and if there is no such run or it has ended.
    """
    message = SteerMessage(id=id or uuid.uuid4().hex, text=text, kind=kind, now=now, by=by, data=data)
    with reader_at(path) as session:
        return session.put_letter(_going(session.runs(), run).id, message)


def _going(runs: Sequence[RunRecord], run: str | None) -> RunRecord:
    """The run that gets a message."""
    of_user = [one for one in runs if (one.purpose == MAIN if run is None else one.id == run)]
    going = [one for one in of_user if one.state is not RunStage.ENDED]
    if going:
        return going[-1]
    if not of_user:
        raise ConfigError("the session has no run" if run is None else f"the session has no run {run}")
    last = of_user[-1]
    raise ConfigError(f"the run {last.id} has ended ({last.data.get('reason')}), so it gets no message")
