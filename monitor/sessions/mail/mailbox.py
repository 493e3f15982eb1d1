"""Messages and answers of other processes to the runs of a session: files in a folder beside it.

Only its owner writes a session, so another process cannot put a row there. It leaves a file. The
owner makes a row of the file, and removes the file when the row is on the disk. If the owner dies
between the two, the id of the message says that its row is there.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from monitor._util.codec import Codec
from monitor.errors import ConfigError
from monitor.messages import ApprovalAnswer, SteerMessage
from monitor.sessions.nodes import canonical
from monitor.sessions.tables.marked_folder import MarkedFolder

_OURS: Final = re.compile(r"\d{14}-[0-9a-f]{16}\.json(\.[0-9a-f]{8})?")
"""The name of a letter, or of one that was not finished."""
_WHOLE: Final = ".json"


@dataclass(slots=True, frozen=True, kw_only=True)
class Letter:
    """A message of another process to a run."""

    run: str
    """The id of the run that is to get it."""
    message: SteerMessage
    sent_at_s: float
    """The time of sending, in seconds since 1970."""
    file: str = ""
    """The name of its file."""


@dataclass(slots=True, frozen=True, kw_only=True)
class AnswerLetter:
    """The answer of another process to an open question of a session."""

    answer: ApprovalAnswer
    file: str = ""
    """The name of its file."""


class Mailbox(Protocol):
    """Where other processes leave messages and answers for the runs of a session."""

    def put(self, run: str, message: SteerMessage, /) -> Letter:
        """Leave `message` for the run with the id `run`. It is stored when this returns."""
        ...

    def letters(self) -> list[Letter]:
        """The letters that are there, oldest first."""
        ...

    def put_answer(self, answer: ApprovalAnswer, /) -> AnswerLetter:
        """Leave an answer to an open question. It is stored when this returns."""
        ...

    def answers(self) -> list[AnswerLetter]:
        """The answers that are there, oldest first."""
        ...

    def remove(self, letters: Iterable[Letter | AnswerLetter], /) -> None:
        """Remove letters whose messages or answers are stored in the session."""
        ...

    async def look(self) -> None:
        """Let `letters` and `answers` know everything that is there now."""
        ...


letter_codec: Codec[Letter | AnswerLetter] = Codec(Letter, AnswerLetter)
"""The JSON form of a letter."""


_NS_A_MS: Final = 1_000_000


class _Latest:
    """The time of the newest letter of this process, in nanoseconds since 1970."""

    at_ns = 0


def new_file() -> str:
    """The name of a new letter: names are in the order of time, and one process makes no two of one
    time.
    """
    _Latest.at_ns = now = max(_Latest.at_ns + 1, time.time_ns())
    return f"{now // _NS_A_MS:014}-{now % _NS_A_MS:05x}{secrets.token_hex(6)[:11]}"


def made(run: str, message: SteerMessage, file: str) -> Letter:
    """A new letter. Raises `ConfigError` for an empty text."""
    if not message.text.strip():
        raise ConfigError("a message to a run has a text")
    return Letter(run=run, message=message, sent_at_s=time.time(), file=file)


def mailbox_of(path: Path) -> MailFolder:
    """The mailbox of the session at `path`."""
    return MailFolder(path.with_name(f"{path.name}.mail"))


class MailFolder:
    """A mailbox as a folder: one file for each letter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._marked = MarkedFolder(folder, _OURS)

    def put(self, run: str, message: SteerMessage) -> Letter:
        """See `Mailbox.put`. Raises `ConfigError` for an empty text, and `SessionUnavailable` if
        the letter cannot be written.
        """
        letter = made(run, message, new_file() + _WHOLE)
        self._marked.write(letter.file, canonical(letter_codec.to_dict(letter)).encode())
        return letter

    def put_answer(self, answer: ApprovalAnswer) -> AnswerLetter:
        """See `Mailbox.put_answer`. Raises `SessionUnavailable` if it cannot be written."""
        letter = AnswerLetter(answer=answer, file=new_file() + _WHOLE)
        self._marked.write(letter.file, canonical(letter_codec.to_dict(letter)).encode())
        return letter

    async def look(self) -> None:
        """See `Mailbox.look`: files are read whenever they are asked for."""

    def letters(self) -> list[Letter]:
        """See `Mailbox.letters`. A file that cannot be read is left where it is."""
        return [one for one in self._all() if isinstance(one, Letter)]

    def answers(self) -> list[AnswerLetter]:
        """See `Mailbox.answers`. A file that cannot be read is left where it is."""
        return [one for one in self._all() if isinstance(one, AnswerLetter)]

    def _all(self) -> list[Letter | AnswerLetter]:
        try:
            names = sorted(one.name for one in self._folder.iterdir())
        except OSError:
            return []
        if not self._marked.is_marked:
            return []
        read = [self._read(name) for name in names if name.endswith(_WHOLE) and _OURS.fullmatch(name)]
        return [one for one in read if one is not None]

    def _read(self, name: str) -> Letter | AnswerLetter | None:
        try:
            return letter_codec.from_dict(json.loads((self._folder / name).read_bytes()))
        except (OSError, ValueError):
            return None

    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        """See `Mailbox.remove`. A letter that cannot be removed is known by its message's id."""
        for letter in letters:
            if _OURS.fullmatch(letter.file):
                with contextlib.suppress(OSError):
                    (self._folder / letter.file).unlink()

    def discard(self) -> None:
        """Remove the folder with all letters, if it has our mark."""
        self._marked.remove()
