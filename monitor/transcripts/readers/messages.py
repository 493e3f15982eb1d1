"""Bare messages: a list of them, one a line, a request with its answer (LiteLLM's logs), or the
messages of an interface (`parts`). No run has an id here, and most have no times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.transcripts.base import Began, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, LineReader, whole_run
from monitor.transcripts.readers.chat import are_messages, is_message, message_of, messages_of, with_model
from monitor.transcripts.readers.values import call_of, in_tier, result_of, rows, table, tables, text, words
from monitor.transcripts.source import Source


class MessagesReader(LineReader):
    """Reads messages of OpenAI and Anthropic, and of interfaces. Cursor CLI writes one a line, with
    the content one level deeper.
    """

    format = "messages"
    agent = "OpenAI or Anthropic messages"

    def fits(self, source: Source) -> bool:
        """Everything in it is a message with a role."""
        document = source.document
        if isinstance(document, dict) and not _is_line(document):
            return are_messages(document.get("messages"))
        if isinstance(document, list):
            return are_messages(document) or _are_ui(document) or _are_langchain(document)
        return bool(source.first_records) and all(map(_is_line, source.first_records))

    def reading_of(self, source: Source) -> LineReader | None:
        """A reading of messages on lines."""
        document = source.document
        is_lines = document is None or (isinstance(document, dict) and _is_line(document))
        return super().reading_of(source) if is_lines else None

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self.begin()
        one = {**record, **table(record.get("message"))}
        if is_message(one):
            yield from map(self.run.said, message_of(one))
        else:
            report.does_not_know(record.get("role", record.get("type")))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self.begin()
        yield from super().end(report)

    def read_document(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if isinstance(document, dict):
            yield from _request(source.stem, document, report)
            return
        if _are_langchain(document):
            document = [{**table(one["data"]), "role": one["type"]} for one in document]
        is_ui = _are_ui(document)
        found = (m for one in document for m in _ui(table(one))) if is_ui else messages_of(rows(document), report)
        yield from whole_run(Began(run=source.stem), found)


def _is_line(record: Mapping[str, Any]) -> bool:
    return is_message(record) or is_message({"role": record.get("role"), **table(record.get("message"))})


def _request(stem: str, request: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
    """A request, and the answer that its log has."""
    response = table(request.get("response"))
    model = in_tier(text(request.get("model")) or text(response.get("model")), response)
    answers = [table(table(choice).get("message")) for choice in rows(response.get("choices"))][:1]
    usage = response.get("usage")
    everything = [*rows(request.get("messages")), *({**answer, "usage": usage} for answer in answers if answer)]
    if "content" in response and "role" in response:
        everything.append(response)
    began = Began(run=text(response.get("id")) or stem, model=model)
    yield from whole_run(began, with_model(messages_of(everything, report), model))


def _are_langchain(document: list[Any]) -> bool:
    """Messages as `messages_to_dict` writes them."""
    return bool(document) and all(
        isinstance(one, dict)
        and text(one.get("type")) in {"human", "ai", "system", "tool", "function"}
        and isinstance(one.get("data"), dict)
        and "content" in one["data"]
        for one in document
    )


def _are_ui(document: list[Any]) -> bool:
    return bool(document) and all(
        isinstance(one, dict)
        and text(one.get("role")) in {"user", "assistant", "system"}
        and isinstance(one.get("parts"), list)
        and all(isinstance(part, dict) and "type" in part for part in one["parts"])
        for one in document
    )


def _ui(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    """A message of an interface: a call and its result are one part."""
    held = HeldResponse(id="")
    for part in tables(message.get("parts")):
        kind = text(part.get("type"))
        if kind == "text":
            held.text.append(text(part.get("text")))
        elif kind == "reasoning":
            held.reasoning.append(text(part.get("text")) or text(part.get("reasoning")))
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            inside = table(part.get("toolInvocation")) or part
            name = text(inside.get("toolName")) or kind.removeprefix("tool-")
            call = call_of(name, inside.get("input", inside.get("args")), inside.get("toolCallId"))
            held.calls.append(call)
            if text(inside.get("state")) in {"output-available", "output-error", "result"}:
                failed = inside["state"] == "output-error"
                output = inside.get("errorText" if failed else "output", inside.get("result"))
                held.answers.append(result_of(name, _shown(output), is_error=failed, call_id=call.id))
    if message.get("role") == "assistant":
        yield from held.messages()
    else:
        yield RecordedMessage("user" if message.get("role") == "user" else "system", "\n".join(held.text))


def _shown(output: object) -> str:
    return output if isinstance(output, str) else words(output) or repr(output)
