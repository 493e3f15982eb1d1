"""Gemini CLI: a session as one JSON document (older), as JSON lines (0.40 and later), and a saved
chat, which is a bare list of contents.

In JSON lines a message may come again under its id: the last one counts, in the place of the first.
`$set` changes the session, `$rewindTo` removes everything after a message. A call holds its own
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from monitor._util.lazy import LazyModule
from monitor.chunks import Usage
from monitor.transcripts.base import Began, EndState, ReadReport, RecordedMessage, RunTotals, TranscriptEntry
from monitor.transcripts.readers.base import (
    NOTHING,
    HeldResponse,
    LineReader,
    RecentIds,
    TranscriptReader,
    began_of,
    chain_of,
    whole_run,
)
from monitor.transcripts.readers.values import (
    answer_of,
    are_objects,
    call_of,
    result_of,
    rows,
    seconds,
    table,
    tables,
    text,
    tokens_of,
    words,
)
from monitor.transcripts.source import Source

if TYPE_CHECKING:
    from monitor.wires import gemini as signs
else:
    signs = LazyModule("monitor.wires.gemini")  # a hook is waited for, and reads no saved chat

# --------------------------------------------------------------------------------------------------
# What `gemini --output-format stream-json` prints: a line with the session, pieces of messages,
# calls, results, and the sums.


class GeminiStreamReader(LineReader):
    """Reads the events of one run of the command."""

    format = "gemini-cli"
    agent = "Gemini CLI"
    head: ClassVar[Mapping[str, str]] = {"run": "session_id", "model": "model"}
    between = ""

    def fits(self, source: Source) -> bool:
        """The first line begins a session, and a line after it is one of its events."""
        first, rest = source.first_record, source.first_records[1:]
        if first.get("type") != "init" or "session_id" not in first:
            return False
        return not rest or any("role" in one or "tool_id" in one or one.get("type") == "result" for one in rest)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("timestamp"))
        yield from self.begin(record)
        match kind:
            case "init":
                self.run.model = text(record.get("model"))
            case "message" if record.get("role") == "user":
                yield from self.flush()
                yield self.run.said(RecordedMessage("user", words(record.get("content")), at=at))
            case "message":
                yield from self.piece(at)
                self.run.held.text.append(words(record.get("content")))
            case "tool_use":
                yield from self.piece(at)
                call = call_of(record.get("tool_name"), record.get("parameters"), record.get("tool_id"))
                self.run.held.calls.append(call)
            case "tool_result":
                failed, id = record.get("status") == "error", record.get("tool_id")
                said = words(record.get("output")) or text(table(record.get("error")).get("message"))
                self.run.held.results.append(answer_of("", said, at=at, is_error=failed, call_id=id))
            case "error":
                self.run.ended = ("failed", text(record.get("message"))[:200])
            case "result":
                yield from self.flush()
                self._end(record)
            case _:
                report.does_not_know(kind)

    def _end(self, record: Mapping[str, Any]) -> None:
        error = text(table(record.get("error")).get("message"))[:200]
        if record.get("status") == "success":
            self.run.ended = ("finished", "success")
        else:
            self.run.ended = ("limit" if "turns" in error.lower() else "failed", error or text(record.get("status")))
        stats = table(record.get("stats"))
        usage = tokens_of(stats, "input_tokens", "output_tokens", cached="cached", total="total_tokens")
        if usage is not None:
            self.run.totals = RunTotals(usage=((self.run.model, usage),))


# --------------------------------------------------------------------------------------------------
# Sessions and saved chats.

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


class GeminiCliReader(LineReader):
    """Reads sessions and saved chats. Of a session on lines, the last message is held, because it
    may come again. The beginning is held until a model has answered: then the run is known.
    """

    format = "gemini-cli"
    agent = "Gemini CLI"
    places = (
        ".gemini/tmp/*/chats/*.json",
        ".gemini/tmp/*/chats/*.jsonl",
        ".gemini/tmp/*/checkpoint-*.json",
    )

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self._stem = source.stem
        self._records = -1
        self._session: dict[str, Any] = {}
        self._began: Began | None = None
        self._ids = RecentIds()
        self._last: tuple[str, Mapping[str, Any]] | None = None
        """The last message, with its id."""
        self._first: list[RecordedMessage] = []

    def fits(self, source: Source) -> bool:
        """A session has the hash of its project, or times and messages of a person and of Gemini; a
        saved chat has contents with parts.
        """
        first = source.first_record
        if {"sessionId", "projectHash"} <= first.keys() or _STREAM.fits(source):
            return True
        if _is_header(first) and any(map(_is_own, source.first_records[1:])):
            return True
        document = source.document
        if isinstance(document, dict):
            messages = tables(document.get("messages"))[:20]
            return _is_header(document) and ("projectHash" in document or any(map(_is_own, messages)))
        return are_objects(rows(document)[:20], lambda one: signs.is_content(one, strict=False))

    def reading_of(self, source: Source) -> LineReader | None:
        """A reading of JSON lines that goes on while nothing but the last message changes."""
        if _STREAM.fits(source):
            return _STREAM.reading_of(source)
        document = source.document
        is_lines = document is None or (isinstance(document, dict) and "messages" not in document)
        return type(self)(source) if is_lines else None

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if _STREAM.fits(source):
            yield from _STREAM.read(source, report)
        elif isinstance(document, list):
            yield from whole_run(Began(run=source.stem), messages_of_contents(document))
        else:
            is_session = isinstance(document, dict) and "messages" in document
            session, messages = (document, tables(document["messages"])) if is_session else _replayed(source, report)
            reading = type(self)(source)
            found = [message for one in messages for message in reading.messages_of(one, report)]
            model = next((message.model for message in found if message.model), "")
            yield from whole_run(_began(session, source.stem, model), found, ended=reading.run.ended)

    def messages_of(self, one: Mapping[str, Any], report: ReadReport) -> Iterator[RecordedMessage]:
        """The messages of a record. What it says about the end is noted in the run."""
        kind, at, said = text(one.get("type")), seconds(one.get("timestamp")), words(one.get("content"))
        if kind == "gemini":
            self.run.ended = None
            yield from _turn(one, said, at)
        elif kind == "user":
            if not _only_answers(one.get("content")):  # 0.61 writes the results of the calls again
                self.run.ended = None
                yield RecordedMessage("user", said, synthetic=said.startswith(_CONTEXT), at=at)
        elif kind in {"info", "error", "warning"}:
            yield RecordedMessage("system", said, synthetic=True, at=at)
            self.run.ended = _end_of(said) or (("failed", said[:200]) if kind == "error" else self.run.ended)
        else:
            report.does_not_know(kind)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        self._records += 1
        if "$set" in record:
            self._change(table(record["$set"]))
        elif "$rewindTo" in record:
            to = text(record["$rewindTo"])
            last = self._last[0] if self._last is not None else ""
            self.stale = self.stale or (to != last and not self._ids.would_be_new(to))
        elif _is_header(record):
            self._foreign = _begins_another(self._session, record)
            if not self._foreign:
                self._change(record)
        elif not self.is_foreign(None, report):
            yield from self._message(text(record.get("id")) or f"#{self._records}", record, report)

    def _change(self, session: Mapping[str, Any]) -> None:
        self._session.update(session)
        self.stale |= isinstance(self._session.pop("messages", None), list)
        if self._began is not None:
            self.stale |= _began(self._session, self._stem, self._began.model) != self._began

    def _message(self, id: str, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._last is not None and self._last[0] == id:
            report.repeated += 1
        else:
            self.stale |= not self._ids.is_new(id)
            yield from self._take_last(report)
        self._last = (id, record)

    def _take_last(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        last, self._last = self._last, None
        for message in self.messages_of(last[1], report) if last is not None else ():
            if self._began is None:
                self._first.append(message)
                if message.model:
                    yield from self._begin(message.model)
            else:
                yield self.run.said(message)

    def _begin(self, model: str) -> Iterator[TranscriptEntry]:
        self._began = _began(self._session, self._stem, model)
        self.run.id = self._began.run
        yield self._began
        yield from map(self.run.said, self._first)
        self._first = []

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self._take_last(report)
        if self._began is None:
            yield from self._begin("")
        yield self.run.end()


_STREAM = GeminiStreamReader()


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


def _replayed(source: Source, report: ReadReport) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The session and the messages after all JSON lines."""
    session: dict[str, Any] = {}
    messages: dict[str, Mapping[str, Any]] = {}
    foreign = False
    for number, record in enumerate(source.records(report)):
        if "$set" in record:
            session.update(table(record["$set"]))
            if isinstance(replaced := session.pop("messages", None), list):
                messages = {text(one.get("id")) or f"#{at}": one for at, one in enumerate(tables(replaced))}
        elif "$rewindTo" in record:
            back_to = text(record["$rewindTo"])
            while back_to in messages and next(reversed(messages)) != back_to:
                messages.popitem()
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


def _turn(message: Mapping[str, Any], said: str, at: float | None) -> Iterator[RecordedMessage]:
    usage = tokens_of(
        table(message.get("tokens")), "input", "output thoughts", thinking="thoughts", cached="cached", total="total"
    )
    held = HeldResponse(at, text(message.get("model")), usage, id="")
    held.text.append(said)
    for thought in tables(message.get("thoughts")):
        held.reasoning.append("\n".join(filter(None, (text(thought.get("subject")), text(thought.get("description"))))))
    for one in tables(message.get("toolCalls")):
        call = call_of(one.get("name"), one.get("args"), one.get("id"))
        held.calls.append(call)
        status = text(one.get("status"))
        if status in {"success", "error", "cancelled"}:
            answer = "\n".join(map(response_of, rows(one.get("result")))) or words(one.get("resultDisplay"))
            refusal = "Tool execution blocked: " if status == "error" else None
            failed = status != "success"
            held.answers.append(result_of(call.name, answer, is_error=failed, call_id=call.id, refusal=refusal))
    yield from held.messages()


def _only_answers(content: object) -> bool:
    parts = rows(content)
    return bool(parts) and all("functionResponse" in table(part) for part in parts)


# --------------------------------------------------------------------------------------------------
# Gemini's contents, whose parts are texts, thoughts, calls and results.


def messages_of_contents(contents: list[Any]) -> Iterator[RecordedMessage]:
    """The messages of a list of Gemini's contents."""
    for content in map(table, contents):
        role = "assistant" if content.get("role") == "model" else "user"
        yield from message_of_parts(role, tables(content.get("parts")))


def message_of_parts(role: str, parts: Iterable[Mapping[str, Any]]) -> Iterator[RecordedMessage]:
    """The message of Gemini's parts, and its results apart."""
    held = HeldResponse()
    for part in parts:
        if isinstance(call := part.get("functionCall", part.get("function_call")), dict):
            held.calls.append(call_of(call.get("name"), call.get("args"), call.get("id")))
        elif isinstance(response := part.get("functionResponse", part.get("function_response")), dict):
            inside = table(response.get("response"))
            said = words(inside.get("output", inside.get("error", inside.get("result")))) or response_of(part)
            held.answers.append(
                result_of(response.get("name"), said, is_error="error" in inside, call_id=response.get("id"))
            )
        elif said := words(part):
            (held.reasoning if part.get("thought") is True else held.text).append(said)
    if role == "assistant":
        yield held.message()
    elif held.text or not held.answers:
        yield RecordedMessage("user", "\n".join(held.text))
    yield from held.answered()


def response_of(part: object) -> str:
    """The text of a part that is the response of a tool."""
    response = table(table(table(part).get("functionResponse")).get("response"))
    return words(response.get("output", response.get("error"))) if response else words(part)


# --------------------------------------------------------------------------------------------------
# Qwen Code, a fork: JSON lines of a tree, with Gemini's parts. The model was shown the active
# chain, from the last record back to the root. A branch that was left does not count.

_TURNS: Final = frozenset({"user", "assistant", "tool_result"})


class QwenCodeReader(TranscriptReader):
    """Reads the active chain of a session of Qwen Code."""

    format = "qwen-code"
    agent = "Qwen Code"
    places = (".qwen/projects/*/chats/*.jsonl", ".qwen/tmp/*/chats/*.json")

    def fits(self, source: Source) -> bool:
        """A tree whose messages have parts."""
        return any(
            {"uuid", "sessionId"} <= record.keys() and "parts" in table(record.get("message"))
            for record in source.first_records
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The active chain of the session."""
        parents, leaf = _tree(source)
        active = set(chain_of(parents, leaf))
        report.unknown.clear()
        records = [
            record
            for record in source.records(report)
            if text(record.get("type")) in _TURNS and (text(record.get("uuid")) in active or not active)
        ]
        first = records[0] if records else {}
        model = next((text(record["model"]) for record in records if record.get("model")), "")
        began = began_of({**first, "model": model}, source.stem, run="sessionId", project="cwd", model="model")
        yield from whole_run(began, _joined(records))


def _tree(source: Source) -> tuple[dict[str, str], str]:
    """The parent of each record, and the last record of a turn."""
    parents: dict[str, str] = {}
    leaf = ""
    for record in source.records(ReadReport()):
        id, parent = text(record.get("uuid")), text(record.get("parentUuid"))
        if id and id != parent:
            parents.setdefault(id, parent)
            if text(record.get("type")) in _TURNS or record.get("subtype") == "rewind":
                leaf = id
    return parents, leaf


def _joined(records: list[Mapping[str, Any]]) -> Iterator[RecordedMessage]:
    """Lines with one uuid are one message."""
    held: tuple[str, RecordedMessage] | None = None
    for record in records:
        parts = tables(table(record.get("message")).get("parts"))
        role = "assistant" if record.get("type") == "assistant" else "user"
        for message in message_of_parts(role, parts):
            whole_message = replace(
                message,
                at=seconds(record.get("timestamp")),
                usage=_usage(table(record.get("usageMetadata"))),
                model=text(record.get("model")) if role == "assistant" else "",
            )
            id = text(record.get("uuid"))
            if held is not None and held[0] == id and role == "assistant" and held[1].role == "assistant":
                held = (id, _both(held[1], whole_message))
                continue
            if held is not None:
                yield held[1]
            held = (id, whole_message)
    if held is not None:
        yield held[1]


def _both(first: RecordedMessage, second: RecordedMessage) -> RecordedMessage:
    return replace(
        second,
        text="\n".join(filter(None, (first.text, second.text))),
        reasoning="\n".join(filter(None, (first.reasoning, second.reasoning))),
        tool_calls=first.tool_calls + second.tool_calls,
        at=first.at,
        usage=second.usage or first.usage,
        model=second.model or first.model,
    )


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    answered, thinking, cached = "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount"
    return tokens_of(usage, "promptTokenCount", f"{answered} {thinking}", thinking=thinking, cached=cached)
