"""Chats of people: the exports of ChatGPT, and the chat of VS Code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from monitor.transcripts.readers.base import HeldResponse, RunIds, TranscriptReader, began_of, chain_of, whole_run
from monitor.transcripts.readers.chat import usage_of
from monitor.transcripts.readers.values import (
    answer_of,
    call_of,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    tables,
    text,
    words,
)
from monitor.transcripts.source import Source

# --------------------------------------------------------------------------------------------------
# Exports of ChatGPT (`conversations.json`): a list of conversations, each a tree of messages. The
# branch that ends in the current node counts.

_TO_ALL = ("all", "")
"""What a message to the person is addressed to; another address is a tool."""


class ChatGptReader(TranscriptReader):
    """Reads the conversations of an export."""

    format = "chatgpt"
    agent = "ChatGPT"

    def fits(self, source: Source) -> bool:
        """Conversations with a mapping of nodes and a current node."""
        found = _conversations(source)
        return bool(found) and all(isinstance(one.get("mapping"), dict) and "current_node" in one for one in found[:20])

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        names = RunIds()
        for number, one in enumerate(_conversations(source)):
            id = text(one.get("conversation_id")) or text(one.get("id")) or f"{source.stem}#{number}"
            messages = [message for node in _branch(one) for message in _node(node)]
            model = next((message.model for message in messages if message.model), "")
            yield from whole_run(Began(run=names.of(id), title=text(one.get("title")), model=model), messages)


def _conversations(source: Source) -> list[Mapping[str, Any]]:
    document = source.document
    return [document] if isinstance(document, dict) else tables(document)


def _branch(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes from the root to the current one."""
    nodes = {id: table(node) for id, node in table(conversation.get("mapping")).items()}
    parents = {id: text(node.get("parent")) for id, node in nodes.items()}
    chain = chain_of(parents, text(conversation.get("current_node")))
    return [table(nodes[id].get("message")) for id in reversed(chain) if id in nodes]


def _node(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    author, content = table(message.get("author")), table(message.get("content"))
    role, at = author.get("role"), seconds(message.get("create_time"))
    said = words(rows(content.get("parts"))) or text(content.get("text")) or text(content.get("result"))
    if role == "assistant":
        recipient, model = text(message.get("recipient")), text(table(message.get("metadata")).get("model_slug"))
        answer = RecordedMessage("assistant", at=at, model=model)
        if recipient not in _TO_ALL:
            yield replace(answer, tool_calls=(RecordedCall(recipient, parsed(said)),))
        elif text(content.get("content_type")) in {"thoughts", "reasoning_recap"}:
            yield replace(answer, reasoning=said or words(content.get("content")))
        else:
            yield replace(answer, text=said)
    elif role == "tool":
        yield answer_of(author.get("name"), said, at=at)
    elif role == "user" and said:
        yield RecordedMessage("user", said, at=at)


# --------------------------------------------------------------------------------------------------
# VS Code's chat: a session or an export (`requests`), and the replay of Copilot's chat (`prompts`
# with their logs). A log of changes is JSON lines that must be replayed.


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
        document, first = table(source.document), source.first_record
        if first.get("kind") == 0 and isinstance(first.get("v"), dict):
            return True
        if "prompts" in document and ("exportedAt" in document or "totalPrompts" in document):
            return True
        names = {"responderUsername", "requesterUsername", "sessionId"}
        return isinstance(document.get("requests"), list) and bool(names & document.keys())

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        first = source.first_record
        document = _replayed(source, report) if first.get("kind") == 0 and "v" in first else table(source.document)
        began = began_of(document, source.stem, run="sessionId", title="customTitle")
        if "prompts" in document:
            yield from whole_run(began, (m for prompt in tables(document["prompts"]) for m in _prompt(prompt)))
            return
        requests = tables(document.get("requests"))
        last = requests[-1] if requests else {}
        ended: tuple[EndState, str] | None = None
        if last.get("isCanceled") is True:
            ended = ("aborted", "cancelled")
        elif details := table(table(last.get("result")).get("errorDetails")):
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
    rounds = tables(metadata.get("toolCallRounds"))
    for one in rounds:
        held = HeldResponse(at, id="", text=[words(one.get("response"))], reasoning=[words(one.get("thinking"))])
        for made in tables(one.get("toolCalls")):
            call = call_of(made.get("name"), parsed(made.get("arguments")), made.get("id"))
            held.calls.append(call)
            if call.id is not None and call.id in answers:
                held.answers.append(_answer(call, table(answers[call.id])))
        yield from held.messages()
    if not rounds:
        said = "".join(map(_part, tables(request.get("response"))))
        yield RecordedMessage("assistant", said, at=at, model=text(request.get("modelId")))


def _part(part: Mapping[str, Any]) -> str:
    value = part.get("value")
    return text(value) or text(table(value).get("value")) if text(part.get("kind")) in {"", "markdownContent"} else ""


def _answer(call: RecordedCall, given: Mapping[str, Any]) -> RecordedResult:
    said = "\n".join(text(table(one).get("value")) or words(one) for one in rows(given.get("content")))
    return result_of(call.name, said, is_error=given.get("isError") is True, call_id=call.id)


def _prompt(prompt: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    """A prompt of a replay. A call of a tool belongs to the request before it."""
    if prompt.get("hasSeen") is not True:
        yield RecordedMessage("user", text(prompt.get("prompt")))
    for log in tables(prompt.get("logs")):
        metadata, response = table(log.get("metadata")), table(log.get("response"))
        if log.get("kind") == "request":
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
            said = words(log.get("response"))
            yield answer_of(call.name, said, at=at, is_error="error" in log, call_id=call.id)
