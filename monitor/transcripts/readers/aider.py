"""aider's chat history: Markdown that grows over months, without ids and without calls. Each
`# aider chat started at` begins a run. `#### ` is the user, `> ` the program, the rest the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, ReadReport, RecordedMessage, Role, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, OpenRun, TranscriptReader
from monitor.transcripts.readers.values import seconds
from monitor.transcripts.source import Source

_STARTED: Final = "# aider chat started at "
_TOKENS: Final = re.compile(
    r"([0-9.,]{1,12})(k?) (?:sent|prompt tokens)[^0-9]{0,40}([0-9.,]{1,12})(k?) (?:received|completion tokens)"
)
_COST: Final = re.compile(r"\$([0-9]{1,9}(?:\.[0-9]{1,12})?) message|\$([0-9]{1,9}(?:\.[0-9]{1,12})?) cost")
_THOUSAND: Final = 1_000


class AiderReader(TranscriptReader):
    """Reads chat histories of aider."""

    format = "aider"
    agent = "aider"

    def fits(self, source: Source) -> bool:
        """The file begins with the start of a chat."""
        return source.head.lstrip().startswith(_STARTED.encode())

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        chat: _Chat | None = None
        number = 0
        for _, raw in source.lines(report):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith(_STARTED):
                if chat is not None:
                    yield from chat.finish()
                number += 1
                chat = _Chat(f"{source.stem}#{number}", line.removeprefix(_STARTED).strip())
                yield Began(run=chat.id)
            elif chat is not None:
                yield from chat.take(line)
        if chat is not None:
            yield from chat.finish()


class _Chat(OpenRun):
    def __init__(self, id: str, started: str) -> None:
        super().__init__(id)
        self._at = seconds(started)
        self._role: Role = "system"
        self._lines: list[str] = []

    def take(self, line: str) -> Iterator[TranscriptEntry]:
        role: Role = "user" if line.startswith("#### ") else "system" if line.startswith("> ") else "assistant"
        if role != self._role:
            yield from self._over()
            self._role = role
        self._lines.append(line if role == "assistant" else line.removeprefix("#### ").removeprefix("> "))

    def _over(self) -> Iterator[TranscriptEntry]:
        """The lines of one speaker are over. An answer is held until the program has said what it
        cost.
        """
        said, self._lines = "\n".join(self._lines).strip(), []
        if not said:
            return
        if self._role == "assistant":
            yield from self.flush()
            self.held = HeldResponse(self._at, text=[said])
            return
        by_program = self._role == "system"
        if by_program:
            usage, cost = _spent(said)
            self.held.usage, self.held.cost_usd = usage, cost
            if not self.held and usage is not None:  # the model has written nothing but an edit, or was asked again
                yield self.said(RecordedMessage("system", synthetic=True, at=self._at, usage=usage, cost_usd=cost))
        yield from self.flush()
        yield self.said(RecordedMessage(self._role, said, synthetic=by_program, at=self._at))

    def finish(self) -> Iterator[TranscriptEntry]:
        """The last lines, and the end of the run."""
        yield from self._over()
        yield from self.flush()
        yield self.end()


def _spent(said: str) -> tuple[Usage | None, float | None]:
    """The tokens and the cost of the requests that the program names, in either of its forms."""
    usage: Usage | None = None
    for found in _TOKENS.finditer(said):
        given, answered = _number(found[1], found[2]), _number(found[3], found[4])
        one = Usage(given, answered, total_tokens=given + answered)
        usage = one if usage is None else usage + one
    costs = [float(found[1] or found[2]) for found in _COST.finditer(said)]
    return usage, sum(costs) if costs else None


def _number(digits: str, unit: str) -> int:
    try:
        return int(float(digits.replace(",", "")) * (_THOUSAND if unit else 1))
    except ValueError:
        return 0
