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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

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


letter_codec: Codec[Letter | AnswerLetter] = Codec(Letter, AnswerLetter)
"""The JSON form of a letter."""


def encoded(letter: Letter | AnswerLetter) -> str:
    """The letter as it is stored."""
    return canonical(letter_codec.to_dict(letter))


def decoded(text: str, file: str) -> Letter | AnswerLetter | None:
    """The stored letter. `file`: its name. `None`: it cannot be read."""
    try:
        return replace(letter_codec.from_dict(json.loads(text)), file=file)
    except ValueError:
        return None


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


class Mailbox(ABC):
    """Where other processes leave messages and answers for the runs of a session."""

    def put(self, run: str, message: SteerMessage) -> Letter:
        """Leave `message` for the run with the id `run`. It is stored when this returns. Raises
        `ConfigError` for an empty text, and `SessionUnavailable` if it cannot be stored.
        """
        if not message.text.strip():
            raise ConfigError("a message to a run has a text")
        letter = Letter(run=run, message=message, sent_at_s=time.time(), file=new_file())
        self._store(letter)
        return letter

    def put_answer(self, answer: ApprovalAnswer) -> AnswerLetter:
        """Leave an answer to an open question. It is stored when this returns."""
        letter = AnswerLetter(answer=answer, file=new_file())
        self._store(letter)
        return letter

    def letters(self) -> list[Letter]:
        """The letters that are there, oldest first. One that cannot be read is left where it is."""
        return [one for one in self._all() if isinstance(one, Letter)]

    def answers(self) -> list[AnswerLetter]:
        """The answers that are there, oldest first. One that cannot be read is left where it is."""
        return [one for one in self._all() if isinstance(one, AnswerLetter)]

    async def look(self) -> None:
        """Let `letters` and `answers` know everything that is there now."""
        return

    @abstractmethod
    def take_back(self, letter: Letter) -> bool:
        """Remove a letter of the caller's own. False: the owner of the session has taken it."""

    @abstractmethod
    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        """Remove letters whose messages or answers are stored in the session. One that cannot be
        removed is known by its message's id.
        """

    @abstractmethod
    def _store(self, letter: Letter | AnswerLetter) -> None:
        """Store a letter."""

    @abstractmethod
    def _all(self) -> Sequence[Letter | AnswerLetter]:
        """The letters and answers, oldest first."""


def mailbox_of(path: Path) -> MailFolder:
    """The mailbox of the session at `path`."""
    return MailFolder(path.with_name(f"{path.name}.mail"))


class MailFolder(Mailbox):
    """A mailbox as a folder: one file for each letter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._marked = MarkedFolder(folder, _OURS)

    def _store(self, letter: Letter | AnswerLetter) -> None:
        self._marked.write(f"{letter.file}{_WHOLE}", encoded(letter).encode())

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
            return decoded((self._folder / name).read_text("utf-8"), name.removesuffix(_WHOLE))
        except OSError:
            return None

    def take_back(self, letter: Letter) -> bool:
        """See `Mailbox.take_back`."""
        try:
            (self._folder / f"{letter.file}{_WHOLE}").unlink()
        except OSError:
            return False
        return True

    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        """See `Mailbox.remove`."""
        for letter in letters:
            with contextlib.suppress(OSError):
                (self._folder / f"{letter.file}{_WHOLE}").unlink()

    def discard(self) -> None:
        """Remove the folder with all letters, if it has our mark."""
        self._marked.remove()
