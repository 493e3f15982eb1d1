"""Google Antigravity, editor and command line: `transcript.jsonl` of a conversation, a step a line.

A step of the model names its calls. The steps after it are their results, without an id, in the
order of the calls. Each result begins with the times of its call, which would make equal results
differ. A step that is still running is written again when it is done.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import CompactionSeen, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import NOTHING, LineReader, RecentIds
from monitor.transcripts.readers.values import answer_of, call_of, id_of, seconds, tables, text, whole
from monitor.transcripts.source import Source

_RUNNING: Final = frozenset({"RUNNING", "PENDING", "GENERATING", "QUEUED", "WAITING"})
_MODEL: Final = re.compile(r"`Model Selection` from [^\n]{1,80}? to ([^\n]{1,60}?)(?:\. |\.?\n|\.?$)")
_TIMES: Final = re.compile(r"(?:(?:Created|Completed) At: [^\n]{0,60}\n){1,2}")
_FAILED: Final = "Encountered error in step execution"
_LABELS: Final = frozenset({"toolSummary", "toolAction"})
"""What the model says of a call, for people: the tool does not get it."""


class AntigravityReader(LineReader):
    """Reads conversations of Antigravity."""

    format = "antigravity"
    agent = "Antigravity"
    places: ClassVar[tuple[str, ...]] = (".gemini/antigravity*/brain/*/.system_generated/logs/transcript.jsonl",)
    head: ClassVar[Mapping[str, str]] = {"run": "", "model": "model"}

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self.run.id = _conversation(source)
        self._seen = RecentIds()
        self._open: deque[str] = deque(maxlen=1_000)
        """The ids of the calls without a result, oldest first."""

    def fits(self, source: Source) -> bool:
        """Steps with a number, a source and a type."""
        first = source.first_record
        return {"step_index", "source", "type"} <= first.keys() and text(first.get("type")).isupper()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at, run = text(record.get("type")), seconds(record.get("created_at")), self.run
        if "step_index" not in record or not kind:
            report.does_not_know(kind)
            return
        if text(record.get("status")) in _RUNNING:
            return
        if not self._seen.is_new(id_of(record["step_index"])):
            report.repeated += 1
            return
        said = text(record.get("content"))
        if not self.known:
            model = _MODEL.search(said)
            yield from self.begin({"model": model[1]} if model else {})
        if kind == "USER_INPUT":
            self._open.clear()
            yield run.said(RecordedMessage("user", _request(said), at=at))
        elif kind == "CHECKPOINT":
            yield CompactionSeen(run=run.id, at=at)
        elif kind == "PLANNER_RESPONSE" or "tool_calls" in record:
            yield run.said(self._response(record, said, at))
        elif self._open and text(record.get("source")) != "SYSTEM":
            said = _TIMES.sub("", said, count=1) if said.startswith(("Created At: ", "Completed At: ")) else said
            failed = text(record.get("status")) == "ERROR" or whole(record.get("exit_code")) > 0
            failed = failed or said.startswith(_FAILED)
            yield run.said(answer_of("", said, at=at, is_error=failed, call_id=self._open.popleft()))
        elif said:
            yield run.said(RecordedMessage("system", said, synthetic=True, at=at))

    def _response(self, record: Mapping[str, Any], said: str, at: float | None) -> RecordedMessage:
        step = id_of(record["step_index"])
        calls = [
            call_of(call.get("name"), _arguments(call.get("args", call.get("arguments"))), f"{step}.{number}")
            for number, call in enumerate(tables(record.get("tool_calls")))
        ]
        self._open.extend(call.id for call in calls if call.id is not None)
        return RecordedMessage("assistant", said, tuple(calls), reasoning=text(record.get("thinking")), at=at)


def _conversation(source: Source) -> str:
    """The id of the conversation, which is the name of a folder above the file."""
    folders = source.name.replace("\\", "/").split("/")[:-1]
    return folders[-3] if folders[-2:] == [".system_generated", "logs"] and len(folders) > 2 else source.stem  # noqa: PLR2004


def _request(said: str) -> str:
    """The words of the person, without what the program adds to them."""
    _, begins, rest = said.partition("<USER_REQUEST>")
    request, ends, _ = rest.partition("</USER_REQUEST>")
    return request.strip() if begins and ends else said


def _arguments(given: object) -> object:
    return {name: value for name, value in given.items() if name not in _LABELS} if isinstance(given, dict) else given
