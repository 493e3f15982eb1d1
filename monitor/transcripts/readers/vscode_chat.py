"""VS Code's chat: a session or an export (`requests`), and the replay of Copilot's chat (`prompts`
with their logs). A log of changes is JSON lines that must be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.transcripts.base import (
    Began,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import TranscriptReader, whole_run
from monitor.transcripts.readers.chat import usage_of
from monitor.transcripts.readers.values import call_of, parsed, result_of, rows, seconds, table, text, words
from monitor.transcripts.source import Source


class VsCodeChatReader(TranscriptReader):
    """Reads chats of VS Code, and replays of Copilot's chat."""

    format = "vscode-chat"
    agent = "VS Code chat"
    places = (
        ".config/Code/User/workspaceStorage/*/chatSessions/*.json*",
        ".config/Code/User/globalStorage/emptyWindowChatSessions/*.json*",
        "Library/Application Support/Code/User/workspaceStorage/*/chatSessions/*.json*",
        "AppData/Roaming/Code/User/workspaceStorage/*/chatSessions/*.json*",
    )

    def fits(self, source: Source) -> bool:
        """Requests of a responder, a log of changes, or prompts with logs."""
        document = source.document
        first = source.first_record
        if first.get("kind") == 0 and isinstance(first.get("v"), dict):
            return True
        if not isinstance(document, dict):
            return False
        if "prompts" in document and ("exportedAt" in document or "totalPrompts" in document):
            return True
        return isinstance(document.get("requests"), list) and (
            "responderUsername" in document or "requesterUsername" in document or "sessionId" in document
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        first = source.first_record
        document = _replayed(source, report) if first.get("kind") == 0 and "v" in first else table(source.document)
        began = Began(run=text(document.get("sessionId")) or source.stem, title=text(document.get("customTitle")))
        if "prompts" in document:
            found = [m for prompt in map(table, rows(document["prompts"])) for m in _prompt(prompt)]
            yield from whole_run(began, found)
            return
        requests = [*map(table, rows(document.get("requests")))]
        ended: tuple[EndState, str] | None = None
        if requests:
            details = table(table(requests[-1].get("result")).get("errorDetails"))
            if requests[-1].get("isCanceled") is True:
                ended = ("aborted", "cancelled")
            elif details:
                ended = ("failed", text(details.get("message"))[:200])
        yield from whole_run(began, (m for request in requests for m in _request(request)), ended=ended)


def _replayed(source: Source, report: ReadReport) -> Mapping[str, Any]:
    """The document after all changes of a log."""
    document: Any = {}
    for number, record in enumerate(source.records(report), 1):
        kind, path, value = record.get("kind"), rows(record.get("k")), record.get("v")
        if kind == 0:
            document = value
            continue
        try:
            _change(document, kind, path, record, value)
        except (KeyError, IndexError, TypeError) as error:
            report.cannot_read(number, f"a change of what is not there: {error!r}")
    return table(document)


def _change(document: Any, kind: object, path: list[Any], record: Mapping[str, Any], value: Any) -> None:
    """Make one change. 1 sets a value, 2 adds to a list, perhaps after cutting it at `i`, 3
    deletes.
    """
    target = document
    for step in path[:-1]:
        target = target[step]
    last = path[-1]
    if kind == 1:
        target[last] = value
    elif kind == 2:  # noqa: PLR2004 - the number is the format's
        if isinstance(at := record.get("i"), int):
            del target[last][at:]
        target[last].extend(rows(value))
    elif kind == 3:  # noqa: PLR2004 - the number is the format's
        del target[last]
    else:
        raise KeyError(kind)


def _request(request: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    at = seconds(request.get("timestamp"))
    yield RecordedMessage("user", words(request.get("message")), at=at)
    metadata = table(table(request.get("result")).get("metadata"))
    answers = table(metadata.get("toolCallResults"))
    rounds = [*map(table, rows(metadata.get("toolCallRounds")))]
    for one in rounds:
        calls = tuple(
            call_of(call.get("name"), parsed(call.get("arguments")), call.get("id"))
            for call in map(table, rows(one.get("toolCalls")))
        )
        yield RecordedMessage(
            "assistant", words(one.get("response")), calls, reasoning=words(one.get("thinking")), at=at
        )
        results = tuple(_answer(call, answers) for call in calls if call.id in answers)
        if results:
            yield RecordedMessage("tool", tool_results=results)
    if not rounds:
        said = "".join(_part(part) for part in map(table, rows(request.get("response"))))
        yield RecordedMessage("assistant", said, at=at, model=text(request.get("modelId")))


def _part(part: Mapping[str, Any]) -> str:
    value = part.get("value")
    return text(value) or text(table(value).get("value")) if text(part.get("kind")) in {"", "markdownContent"} else ""


def _answer(call: RecordedCall, answers: Mapping[str, Any]) -> RecordedResult:
    given = table(answers[call.id or ""])
    said = "\n".join(text(table(one).get("value")) or words(one) for one in rows(given.get("content")))
    return result_of(call.name, said, is_error=given.get("isError") is True, call_id=call.id)


def _prompt(prompt: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    """A prompt of a replay. A call of a tool belongs to the request before it."""
    if prompt.get("hasSeen") is not True:
        yield RecordedMessage("user", text(prompt.get("prompt")))
    for log in map(table, rows(prompt.get("logs"))):
        if log.get("kind") == "request":
            metadata = table(log.get("metadata"))
            response = table(log.get("response"))
            yield RecordedMessage(
                "assistant",
                words(response.get("message")) or words(response.get("value")),
                at=seconds(metadata.get("startTime")),
                usage=usage_of(table(metadata.get("usage"))),
                model=text(metadata.get("model")),
            )
        elif log.get("kind") == "toolCall":
            call = call_of(log.get("tool"), parsed(log.get("args")), log.get("id"))
            at = seconds(log.get("time"))
            yield RecordedMessage("assistant", "", (call,), at=at)
            result = result_of(call.name, words(log.get("response")), is_error="error" in log, call_id=call.id)
            yield RecordedMessage("tool", tool_results=(result,), at=at)
