"""Inspect: `.eval` archives (ZIP, a member a sample) and logs as one JSON document. A long text may
stand once among the attachments of its sample, and be named elsewhere.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from monitor.chunks import Usage
from monitor.transcripts.base import Began, EndState, ReadReport, RunTotals, TranscriptEntry
from monitor.transcripts.readers.base import RunIds, TranscriptReader, whole_run
from monitor.transcripts.readers.chat import messages_of, usage_of, with_model
from monitor.transcripts.readers.values import id_of, rows, table, text
from monitor.transcripts.source import MAX_DOCUMENT_BYTES, ZIP_MAGIC, Source, damage

_ATTACHED = "attachment://"


class InspectAiReader(TranscriptReader):
    """Reads evaluation logs of Inspect."""

    format = "inspect"
    agent = "Inspect"

    def fits(self, source: Source) -> bool:
        """An archive with the journal of an evaluation, or a document with one."""
        if source.head.startswith(ZIP_MAGIC):
            return any(name in {"header.json", "_journal/start.json"} for name in _names(source))
        document = source.document
        return (
            isinstance(document, dict)
            and isinstance(document.get("eval"), dict)
            and ("samples" in document or {"version", "status"} <= document.keys())
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if source.head.startswith(ZIP_MAGIC):
            yield from _archive(source, report)
            return
        document = table(source.document)
        head, names = table(document.get("eval")), RunIds()
        for sample in rows(document.get("samples")):
            yield from _sample(table(sample), head, source, names, report)


def _names(source: Source) -> list[str]:
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except damage():
        return []


def _archive(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            head: Mapping[str, Any] = {}
            ids = RunIds()
            for name in ("header.json", "_journal/start.json"):
                if name in names and not head:
                    head = table(table(_member(archive, name, report)).get("eval"))
            for name in names:
                if name.startswith("samples/"):
                    yield from _sample(table(_member(archive, name, report)), head, source, ids, report)
    except damage(NotImplementedError) as error:
        report.cannot_read(1, f"the archive cannot be read: {error}")


def _member(archive: zipfile.ZipFile, name: str, report: ReadReport) -> object:
    if archive.getinfo(name).file_size > MAX_DOCUMENT_BYTES:
        report.cannot_read(1, f"{name} is longer than {MAX_DOCUMENT_BYTES} bytes")
        return None
    try:
        return json.loads(archive.read(name))
    except damage(ValueError, RecursionError, NotImplementedError) as error:
        report.cannot_read(1, f"{name}: {error}")
        return None


def _sample(
    sample: Mapping[str, Any], head: Mapping[str, Any], source: Source, names: RunIds, report: ReadReport
) -> Iterator[TranscriptEntry]:
    if not sample:
        return
    attached = table(sample.get("attachments"))
    model = text(head.get("model"))
    ended: tuple[EndState, str] | None = None
    if limit := table(sample.get("limit")):
        ended = ("limit", text(limit.get("type")) or "limit")
    elif error := table(sample.get("error")):
        ended = ("failed", text(error.get("message"))[:200])
    began = Began(
        run=names.of(f"{source.stem}#{id_of(sample.get('id'))}.{id_of(sample.get('epoch', 1))}"),
        project=text(head.get("task")),
        model=model,
    )
    messages = (_resolved(message, attached, 0) for message in rows(sample.get("messages")))
    totals = RunTotals(usage=tuple(_usage_by_model(table(sample.get("model_usage")))))
    yield from whole_run(began, with_model(messages_of(messages, report), model), ended=ended, totals=totals)


def _usage_by_model(given: Mapping[str, Any]) -> Iterator[tuple[str, Usage]]:
    """The tokens of all models of a sample, those of a grader too."""
    for name, usage in given.items():
        if (counted := usage_of(table(usage))) is not None:
            yield name, counted


def _resolved(value: Any, attached: Mapping[str, Any], depth: int) -> Any:
    """`value` with its attachments in their places."""
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if depth > MOST_DEPTH or not attached:
        return value
    if isinstance(value, dict):
        return {key: _resolved(item, attached, depth + 1) for key, item in value.items()}
    return [_resolved(item, attached, depth + 1) for item in value] if isinstance(value, list) else value


MOST_DEPTH = 16
