"""Qwen Code: JSON lines of a tree, with Gemini's parts. The model was shown the active chain, from
the last record back to the root. A branch that was left does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import TranscriptReader, whole_run
from monitor.transcripts.readers.gemini_cli import message_of_parts
from monitor.transcripts.readers.values import rows, seconds, table, text, tokens_of
from monitor.transcripts.source import Source

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
        active = set(_chain(parents, leaf))
        report.unknown.clear()
        records = [
            record
            for record in source.records(report)
            if text(record.get("type")) in _TURNS and (text(record.get("uuid")) in active or not active)
        ]
        first = records[0] if records else {}
        began = Began(
            run=text(first.get("sessionId")) or source.stem,
            project=text(first.get("cwd")),
            model=next((text(record["model"]) for record in records if record.get("model")), ""),
        )
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


def _chain(parents: Mapping[str, str], leaf: str) -> Iterator[str]:
    seen: set[str] = set()
    while leaf and leaf not in seen:
        seen.add(leaf)
        yield leaf
        leaf = parents.get(leaf, "")


def _joined(records: list[Mapping[str, Any]]) -> Iterator[RecordedMessage]:
    """Lines with one uuid are one message."""
    held: tuple[str, RecordedMessage] | None = None
    for record in records:
        parts = map(table, rows(table(record.get("message")).get("parts")))
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
    return tokens_of(
        usage,
        given=("promptTokenCount",),
        answered=("candidatesTokenCount", "thoughtsTokenCount"),
        thinking="thoughtsTokenCount",
        cached="cachedContentTokenCount",
    )
