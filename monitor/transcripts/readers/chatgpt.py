"""Exports of ChatGPT (`conversations.json`): a list of conversations, each a tree of messages. The
branch that ends in the current node counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.transcripts.base import Began, ReadReport, RecordedCall, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import RunIds, TranscriptReader, whole_run
from monitor.transcripts.readers.values import parsed, result_of, rows, seconds, table, text, words
from monitor.transcripts.source import Source

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
            messages = [message for node in _branch(one) for message in _messages(node)]
            model = next((message.model for message in messages if message.model), "")
            yield from whole_run(Began(run=names.of(id), title=text(one.get("title")), model=model), messages)


def _conversations(source: Source) -> list[Mapping[str, Any]]:
    document = source.document
    return [*map(table, document if isinstance(document, list) else [document] if isinstance(document, dict) else [])]


def _branch(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes from the root to the current one."""
    mapping = table(conversation.get("mapping"))
    found: list[Mapping[str, Any]] = []
    id, seen = text(conversation.get("current_node")), set[str]()
    while id and id in mapping and id not in seen:
        seen.add(id)
        node = table(mapping[id])
        found.append(table(node.get("message")))
        id = text(node.get("parent"))
    return found[::-1]


def _messages(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    author, content = table(message.get("author")), table(message.get("content"))
    role, at = author.get("role"), seconds(message.get("create_time"))
    said = words(rows(content.get("parts"))) or text(content.get("text")) or text(content.get("result"))
    if role == "assistant":
        model = text(table(message.get("metadata")).get("model_slug"))
        recipient = text(message.get("recipient"))
        if recipient not in _TO_ALL:
            yield RecordedMessage("assistant", tool_calls=(RecordedCall(recipient, parsed(said)),), at=at, model=model)
        elif text(content.get("content_type")) in {"thoughts", "reasoning_recap"}:
            yield RecordedMessage("assistant", reasoning=said or words(content.get("content")), at=at, model=model)
        else:
            yield RecordedMessage("assistant", said, at=at, model=model)
    elif role == "tool":
        yield RecordedMessage("tool", tool_results=(result_of(text(author.get("name")), said),), at=at)
    elif role == "user" and said:
        yield RecordedMessage("user", said, at=at)
