"""aider's chat history: Markdown that grows over months, without ids and without calls. Each
`# aider chat started at` begins a run. `#### ` is the user, `> ` the program, the rest the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, ReadReport, RecordedMessage, Role, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
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
                    yield from chat.end()
                number += 1
                chat = _Chat(f"{source.stem}#{number}", line.removeprefix(_STARTED).strip())
                yield Began(run=chat.state.id)
            elif chat is not None:
                yield from chat.take(line)
        if chat is not None:
            yield from chat.end()


class _Chat:
    def __init__(self, id: str, started: str) -> None:
        self.state = OpenRun(id)
        self._at = seconds(started)
        self._role: Role = "system"
        self._lines: list[str] = []
        self._answer: RecordedMessage | None = None

    def take(self, line: str) -> Iterator[TranscriptEntry]:
        if line.startswith("#### "):
            role: Role = "user"
        elif line.startswith("> "):
            role = "system"
        else:
            role = "assistant"
        if role != self._role:
            yield from self._flush()
            self._role = role
        self._lines.append(line.removeprefix("#### ").removeprefix("> ") if role != "assistant" else line)

    def _flush(self) -> Iterator[TranscriptEntry]:
        said, self._lines = "\n".join(self._lines).strip(), []
        if not said:
            return
        if self._role == "assistant":
            yield from self._flush_answer()
            self._answer = RecordedMessage("assistant", said, at=self._at)
            return
        usage, cost = _spent(said) if self._role == "system" else (None, None)
        yield from self._flush_answer(usage, cost)
        yield self.state.said(RecordedMessage(self._role, said, synthetic=self._role == "system", at=self._at))

    def _flush_answer(self, usage: Usage | None = None, cost_usd: float | None = None) -> Iterator[TranscriptEntry]:
        """The answer is held until the program has said what it cost."""
        answer, self._answer = self._answer, None
        if answer is not None:
            yield self.state.said(replace(answer, usage=usage, cost_usd=cost_usd))
        elif usage is not None:  # the model has written nothing but an edit, or was asked again
            yield self.state.said(
                RecordedMessage("system", synthetic=True, at=self._at, usage=usage, cost_usd=cost_usd)
            )

    def end(self) -> Iterator[TranscriptEntry]:
        yield from self._flush()
        yield from self._flush_answer()
        yield self.state.end()


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
