"""Gemini CLI: a session as one JSON document (older), as JSON lines (0.40 and later), and a saved
chat, which is a bare list of contents.

In JSON lines a message may come again under its id: the last one counts, in the place of the first.
`$set` changes the session, `$rewindTo` removes everything after a message. A call holds its own
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from monitor._util.lazy import LazyModule
from monitor.transcripts.base import (
    Began,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RunTotals,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import HeldResponse, LineReader, LineReading, OpenRun, RecentIds, whole_run
from monitor.transcripts.readers.values import call_of, result_of, rows, seconds, table, text, tokens_of, words
from monitor.transcripts.source import Source

# --------------------------------------------------------------------------------------------------
# What `gemini --output-format stream-json` prints: a line with the session, pieces of messages,
# calls, results, and the sums.


def is_gemini_stream(source: Source) -> bool:
    """Whether the first line begins a session, and a line after it is one of its events."""
    first, rest = source.first_record, source.first_records[1:]
    if first.get("type") != "init" or "session_id" not in first:
        return False
    return not rest or any("role" in one or "tool_id" in one or one.get("type") == "result" for one in rest)


class GeminiStreamLines(LineReading):
    """The events of one run of the command."""

    def __init__(self, source: Source) -> None:
        self._run = OpenRun(source.stem)
        self._began = False
        self._model = ""
        self._held = HeldResponse()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("timestamp"))
        if not self._began:
            self._began = True
            self._run.id = text(record.get("session_id")) or self._run.id
            self._model = text(record.get("model"))
            yield Began(run=self._run.id, model=self._model)
        match kind:
            case "init":
                pass
            case "message" if record.get("role") == "user":
                yield from self._flush()
                yield self._run.said(RecordedMessage("user", words(record.get("content")), at=at))
            case "message" | "tool_use":
                if self._held.results:
                    yield from self._flush()
                self._held.at = self._held.at or at
                if kind == "message":
                    self._held.text.append(words(record.get("content")))
                else:
                    call = call_of(record.get("tool_name"), record.get("parameters"), record.get("tool_id"))
                    self._held.calls.append(call)
            case "tool_result":
                failed = record.get("status") == "error"
                said = words(record.get("output")) or text(table(record.get("error")).get("message"))
                result = result_of("", said, is_error=failed, call_id=text(record.get("tool_id")) or None)
                self._held.results.append(RecordedMessage("tool", tool_results=(result,), at=at))
            case "error":
                self._run.ended = ("failed", text(record.get("message"))[:200])
            case "result":
                yield from self._flush()
                self._end(record)
            case _:
                report.does_not_know(kind)

    def _end(self, record: Mapping[str, Any]) -> None:
        error = text(table(record.get("error")).get("message"))[:200]
        if record.get("status") == "success":
            self._run.ended = ("finished", "success")
        else:
            self._run.ended = ("limit" if "turns" in error.lower() else "failed", error or text(record.get("status")))
        stats = table(record.get("stats"))
        usage = tokens_of(
            stats, given=("input_tokens",), answered=("output_tokens",), cached="cached", total="total_tokens"
        )
        if usage is not None:
            self._run.totals = RunTotals(usage=((self._model, usage),))

    def _flush(self) -> Iterator[TranscriptEntry]:
        held, self._held = self._held, HeldResponse(model=self._model)
        held.model = self._model
        yield from map(self._run.said, held.messages(""))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._began:
            yield from self._flush()
            yield self._run.end()


if TYPE_CHECKING:
    from monitor.wires import gemini as signs
else:
    signs = LazyModule("monitor.wires.gemini")  # a hook is waited for, and reads no saved chat

_CONTEXT = "<session_context>"
"""The first message of newer versions, which no person wrote."""
_SESSION_FIELDS = {"projectHash", "startTime", "lastUpdated"}
_ENDS: dict[str, tuple[EndState, str]] = {
    "request cancelled": ("aborted", "Request cancelled."),
    "loop was detected": ("loop", "a potential loop was detected"),
    "potential loop": ("loop", "a potential loop was detected"),
    "maximum number of turns": ("limit", "the maximum number of turns"),
    "max session turns": ("limit", "the maximum number of turns"),
}
"""The program's own words about the end, in lower case, and the end that they mean."""


def _began(session: Mapping[str, Any], stem: str, model: str) -> Began:
    return Began(
        run=text(session.get("sessionId")) or stem,
        project=next(iter(map(text, rows(session.get("directories")))), ""),
        title=text(session.get("summary")),
        model=model,
        parent=None if session.get("kind") != "subagent" else text(session.get("parentSessionId")) or None,
    )


class SessionMessages:
    """Reads messages in their order, and what they say about the end."""

    def __init__(self) -> None:
        self.ended: tuple[EndState, str] | None = None

    def messages(self, one: Mapping[str, Any], report: ReadReport) -> Iterator[RecordedMessage]:
        kind = text(one.get("type"))
        if kind == "gemini":
            self.ended = None
            yield from _turn(one)
        elif kind == "user":
            if _only_answers(one.get("content")):
                return  # 0.61 writes the results of the calls again
            self.ended = None
            said = words(one.get("content"))
            synthetic = said.startswith(_CONTEXT)
            yield RecordedMessage("user", said, synthetic=synthetic, at=seconds(one.get("timestamp")))
        elif kind in {"info", "error", "warning"}:
            said = words(one.get("content"))
            yield RecordedMessage("system", said, synthetic=True, at=seconds(one.get("timestamp")))
            self.ended = _end_of(said) or (("failed", said[:200]) if kind == "error" else self.ended)
        else:
            report.does_not_know(kind)


class GeminiCliLines(LineReading):
    """A session on lines. The last message is held, because it may come again. The beginning is
    held until a model has answered: then the run is known.
    """

    def __init__(self, source: Source) -> None:
        self._stem = source.stem
        self._records = -1
        self._session: dict[str, Any] = {}
        self._began: Began | None = None
        self._run: OpenRun | None = None
        self._messages = SessionMessages()
        self._ids = RecentIds()
        self._held: tuple[str, Mapping[str, Any]] | None = None
        self._first: list[RecordedMessage] = []
        self._foreign = False
        """The records are those of another session, which stands behind the own one."""

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        self._records += 1
        if "$set" in record:
            self._change(table(record["$set"]))
        elif "$rewindTo" in record:
            to = text(record["$rewindTo"])
            last = self._held[0] if self._held is not None else ""
            self.stale = self.stale or (to != last and not self._ids.would_be_new(to))
        elif _is_header(record):
            self._foreign = _begins_another(self._session, record)
            if not self._foreign:
                self._change(record)
        elif self._foreign:
            report.is_of_another_session()
        else:
            yield from self._message(text(record.get("id")) or f"#{self._records}", record, report)

    def _change(self, session: Mapping[str, Any]) -> None:
        self._session.update(session)
        self.stale = self.stale or isinstance(self._session.pop("messages", None), list)
        if self._began is not None:
            changed = _began(self._session, self._stem, self._began.model)
            self.stale = self.stale or changed != self._began

    def _message(self, id: str, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._held is not None and self._held[0] == id:
            report.repeated += 1
            self._held = (id, record)
            return
        self.stale = self.stale or not self._ids.would_be_new(id)
        self._ids.is_new(id)
        yield from self._flush(report)
        self._held = (id, record)

    def _flush(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        held, self._held = self._held, None
        for message in self._messages.messages(held[1], report) if held is not None else ():
            yield from self._said(message)

    def _said(self, message: RecordedMessage) -> Iterator[TranscriptEntry]:
        if self._run is None:
            self._first.append(message)
            if message.model:
                yield from self._begin(message.model)
            return
        yield self._run.said(message)

    def _begin(self, model: str) -> Iterator[TranscriptEntry]:
        self._began = _began(self._session, self._stem, model)
        self._run = OpenRun(self._began.run)
        yield self._began
        for message in self._first:
            yield self._run.said(message)
        self._first = []

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self._flush(report)
        if self._run is None:
            yield from self._begin("")
        if self._run is not None:
            self._run.ended = self._messages.ended
            yield self._run.end()


class GeminiCliReader(LineReader):
    """Reads sessions and saved chats."""

    format = "gemini-cli"
    agent = "Gemini CLI"
    places = (
        ".gemini/tmp/*/chats/*.json",
        ".gemini/tmp/*/chats/*.jsonl",
        ".gemini/tmp/*/checkpoint-*.json",
    )
    reading = GeminiCliLines

    def fits(self, source: Source) -> bool:
        """A session has the hash of its project, or times and messages of a person and of Gemini; a
        saved chat has contents with parts.
        """
        first = source.first_record
        if {"sessionId", "projectHash"} <= first.keys():
            return True
        if is_gemini_stream(source):
            return True
        if _is_header(first) and any(map(_is_own, source.first_records[1:])):
            return True
        document = source.document
        if isinstance(document, dict):
            messages = rows(document.get("messages"))[:20]
            return _is_header(document) and ("projectHash" in document or any(map(_is_own, map(table, messages))))
        found = rows(document)[:20]
        return bool(found) and all(isinstance(one, dict) and signs.is_content(one, strict=False) for one in found)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if is_gemini_stream(source):
            yield from GeminiStreamLines(source).read_all(source, report)
            return
        document = source.document
        if isinstance(document, list):
            yield from whole_run(Began(run=source.stem), messages_of_contents(document))
            return
        session, messages = (
            (document, rows(document.get("messages")))
            if isinstance(document, dict) and "messages" in document
            else _replayed(source, report)
        )
        read = SessionMessages()
        found = [message for one in map(table, messages) for message in read.messages(one, report)]
        model = next((message.model for message in found if message.model), "")
        yield from whole_run(_began(session, source.stem, model), found, ended=read.ended)

    def reading_of(self, source: Source) -> LineReading | None:
        """A reading of JSON lines that goes on while nothing but the last message changes."""
        if is_gemini_stream(source):
            return GeminiStreamLines(source)
        document = source.document
        is_lines = document is None or (isinstance(document, dict) and "messages" not in document)
        return GeminiCliLines(source) if is_lines else None


def _end_of(said: str) -> tuple[EndState, str] | None:
    lower = said.lower()
    return next((end for words_, end in _ENDS.items() if words_ in lower), None)


def _is_own(message: Mapping[str, Any]) -> bool:
    return text(message.get("type")) in {"user", "gemini"} and "content" in message


def _is_header(record: Mapping[str, Any]) -> bool:
    """The line of a session. Not all versions write the hash of the project."""
    return "sessionId" in record and "type" not in record and bool(_SESSION_FIELDS & record.keys())


def _begins_another(session: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    own = session.get("sessionId")
    return own is not None and bool(own != header.get("sessionId"))


def _replayed(source: Source, report: ReadReport) -> tuple[Mapping[str, Any], list[Any]]:
    """The session and the messages after all JSON lines."""
    session: dict[str, Any] = {}
    messages: dict[str, Mapping[str, Any]] = {}
    foreign = False
    for number, record in enumerate(source.records(report)):
        if "$set" in record:
            session.update(table(record["$set"]))
            if isinstance(replaced := session.pop("messages", None), list):
                messages = {text(one.get("id")) or f"#{at}": one for at, one in enumerate(map(table, replaced))}
        elif "$rewindTo" in record:
            ids = list(messages)
            back_to = text(record["$rewindTo"])
            if back_to in messages:
                for id in ids[ids.index(back_to) + 1 :]:
                    del messages[id]
        elif _is_header(record):
            foreign = _begins_another(session, record)
            session.update({} if foreign else record)
        elif foreign:
            report.is_of_another_session()
        else:
            id = text(record.get("id")) or f"#{number}"
            report.repeated += id in messages
            messages[id] = record
    return session, list(messages.values())


def _turn(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    calls: list[RecordedCall] = []
    results: list[RecordedResult] = []
    for call in map(table, rows(message.get("toolCalls"))):
        calls.append(call_of(call.get("name"), call.get("args"), call.get("id")))
        status = text(call.get("status"))
        if status in {"success", "error", "cancelled"}:
            said = "\n".join(map(_response, rows(call.get("result")))) or words(call.get("resultDisplay"))
            results.append(
                result_of(
                    calls[-1].name,
                    said,
                    is_error=status != "success",
                    call_id=calls[-1].id,
                    refusal="Tool execution blocked: " if status == "error" else None,
                )
            )
    thoughts = [
        "\n".join(filter(None, (text(thought.get("subject")), text(thought.get("description")))))
        for thought in map(table, rows(message.get("thoughts")))
    ]
    at = seconds(message.get("timestamp"))
    yield RecordedMessage(
        "assistant",
        words(message.get("content")),
        tuple(calls),
        reasoning="\n".join(thoughts),
        at=at,
        usage=tokens_of(
            table(message.get("tokens")),
            given=("input",),
            answered=("output", "thoughts"),
            thinking="thoughts",
            cached="cached",
            total="total",
        ),
        model=text(message.get("model")),
    )
    if results:
        yield RecordedMessage("tool", tool_results=tuple(results))


def _only_answers(content: object) -> bool:
    parts = rows(content)
    return bool(parts) and all("functionResponse" in table(part) for part in parts)


def _response(part: object) -> str:
    response = table(table(table(part).get("functionResponse")).get("response"))
    return words(response.get("output", response.get("error"))) if response else words(part)


def messages_of_contents(contents: list[Any]) -> Iterator[RecordedMessage]:
    """The messages of a list of Gemini's contents."""
    for content in map(table, contents):
        yield from message_of_parts(
            "assistant" if content.get("role") == "model" else "user", map(table, rows(content.get("parts")))
        )


def message_of_parts(role: str, parts: Iterator[Mapping[str, Any]]) -> Iterator[RecordedMessage]:
    """The message of Gemini's parts, and its results apart."""
    said: list[str] = []
    thought: list[str] = []
    calls: list[RecordedCall] = []
    results: list[RecordedResult] = []
    for part in parts:
        if isinstance(call := part.get("functionCall", part.get("function_call")), dict):
            calls.append(call_of(call.get("name"), call.get("args"), call.get("id")))
        elif isinstance(response := part.get("functionResponse", part.get("function_response")), dict):
            inside = table(response.get("response"))
            results.append(
                result_of(
                    text(response.get("name")),
                    words(inside.get("output", inside.get("error", inside.get("result")))) or _response(part),
                    is_error="error" in inside,
                    call_id=text(response.get("id")) or None,
                )
            )
        else:
            (thought if part.get("thought") is True else said).append(words(part))
    text_, reasoning = "\n".join(filter(None, said)), "\n".join(filter(None, thought))
    if role == "assistant":
        yield RecordedMessage("assistant", text_, tuple(calls), reasoning=reasoning)
    elif text_ or not results:
        yield RecordedMessage("user", text_)
    if results:
        yield RecordedMessage("tool", tool_results=tuple(results))
