"""Aborts and answers that people give to runs which other processes carry out.

A session has one owner, who writes to it. So what is said from outside stands beside it, until the
owner reads it there.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from monitor._util.codec import to_plain
from monitor.calls import ApprovalAnswer, answer_codec
from monitor.errors import SessionUnavailable, StoreError
from monitor.fleet.supervisors import check_name
from monitor.sessions.nodes import canonical
from monitor.sessions.tables.marked_folder import sync_folder, write_whole

_ABORT: Final = "abort"
_ANSWERS: Final = "answers"


class Control(Protocol):
    """Where aborts and answers stand. The methods are called in worker threads, and `answers` also
    in the event loop, when a run begins to wait for a person.
    """

    def abort(self, session: str, why: str, /) -> None:
        """Say that this session is to be aborted. Returns when that is stored."""
        ...

    def aborted(self, session: str, /) -> str | None:
        """Why this session is to be aborted. `None`: it is not."""
        ...

    def answer(self, session: str, answer: ApprovalAnswer, /) -> None:
        """Answer an open question of this session. Returns when that is stored."""
        ...

    def answers(self, session: str, /) -> Sequence[ApprovalAnswer]:
        """All answers that were given to questions of this session, the first one first. Of several
        answers to one question the first one counts.
        """
        ...


class FolderControl:
    """One small file for each thing that was said, in a folder that all workers share."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def abort(self, session: str, why: str) -> None:
        """Store the abort. The first reason stays."""
        path = self._path(session, _ABORT)
        if not path.exists():
            self._write(path, {"why": why})

    def aborted(self, session: str) -> str | None:
        path = self._path(session, _ABORT)
        return str(_read(path).get("why", "")) if path.exists() else None

    def answer(self, session: str, answer: ApprovalAnswer) -> None:
        folder = self._path(session, _ANSWERS)
        name = f"{time.time_ns():020}-{secrets.token_hex(4)}.json"
        self._write(folder / name, to_plain(answer_codec.to_dict(answer)))

    def answers(self, session: str) -> Sequence[ApprovalAnswer]:
        folder = self._path(session, _ANSWERS)
        if not folder.is_dir():
            return ()
        return [answer_codec.from_dict(_read(path)) for path in sorted(folder.glob("*.json"))]

    def _path(self, session: str, what: str) -> Path:
        check_name(session)  # it becomes the name of a file
        return self._folder / f"{session}.{what}"

    def _write(self, path: Path, data: object) -> None:
        """Write the whole file or nothing, and let it survive a power cut."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, canonical(data).encode())
            sync_folder(path.parent)
        except OSError as error:
            raise SessionUnavailable(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SessionUnavailable(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no JSON: {error}") from error
    if not isinstance(data, dict):
        raise StoreError(f"{path} holds no JSON object")
    return data
