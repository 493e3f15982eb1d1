"""LangSmith: requests of its SDKs (`post` and `patch`), and exported runs, one a line or a list.

The calls of a model and of tools of one trace are one run. A model call repeats the messages before
it, so only its answer is read, and the messages of the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from monitor.transcripts.base import Began, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.chat import message_of, messages_of, usage_of
from monitor.transcripts.readers.values import result_of, rows, seconds, table, text, words
from monitor.transcripts.source import Source


class LangSmithReader(TranscriptReader):
    """Reads requests to LangSmith, and its exports."""

    format = "langsmith"
    agent = "LangSmith"

    def fits(self, source: Source) -> bool:
        """`post` or `patch` with runs, or runs with a type and a trace."""
        document = source.document
        if isinstance(document, dict) and not _is_run(document):
            sent = rows(document.get("post")) + rows(document.get("patch"))
            return bool(sent) and any(map(_is_run, sent))
        found = document if isinstance(document, list) else source.first_records
        return bool(found) and all(map(_is_run, found[:20]))

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if isinstance(document, dict) and not _is_run(document):
            sent = [*rows(document.get("post")), *rows(document.get("patch"))]
        else:
            sent = [*(document if isinstance(document, list) else source.records(report, grows=False))]
        spans = _completed(map(table, sent))
        traces: dict[str, list[Mapping[str, Any]]] = {}
        for span in spans:
            traces.setdefault(text(span.get("trace_id")) or text(span.get("id")), []).append(span)
        for trace, found in traces.items():
            yield from _trace(trace, sorted(found, key=lambda span: text(span.get("dotted_order"))))


def _is_run(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return ("id" in value and "run_type" in value and "inputs" in value) or {"trace_id", "dotted_order"} <= value.keys()


def _completed(sent: Iterator[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each run once: a patch completes the run that was posted before it."""
    runs: dict[str, dict[str, Any]] = {}
    for one in sent:
        id = text(one.get("id")) or text(one.get("dotted_order"))
        known = runs.get(id) or next(
            (
                run
                for run in runs.values()
                if one.get("dotted_order") and run.get("dotted_order") == one["dotted_order"]
            ),
            None,
        )
        given = {name: value for name, value in one.items() if value not in (None, {}, [])}
        if known is None:
            runs[id] = given
        else:
            known.update(given)
    return list(runs.values())


def _trace(trace: str, spans: list[Mapping[str, Any]]) -> Iterator[TranscriptEntry]:
    state = OpenRun(trace)
    root = spans[0]
    yield Began(run=trace, project=text(root.get("session_name")), title=text(root.get("name")))
    first = True
    for span in spans:
        kind, outputs, inputs = span.get("run_type"), table(span.get("outputs")), table(span.get("inputs"))
        if kind == "llm":
            if first:
                for message in messages_of(_given(inputs)):
                    yield state.said(message)
            first = False
            for message in _answers(outputs, span):
                yield state.said(message)
            if error := text(span.get("error")):
                state.ended = ("failed", error[:200])
        elif kind == "tool":
            error = text(span.get("error"))
            said = error or words(outputs.get("output", outputs)) or repr(outputs)
            result = result_of(text(span.get("name")), said, is_error=bool(error), call_id=_call_id(outputs))
            yield state.said(RecordedMessage("tool", tool_results=(result,), at=seconds(span.get("end_time"))))
    yield state.end()


def _given(inputs: Mapping[str, Any]) -> list[Any]:
    messages = rows(inputs.get("messages"))
    return rows(messages[0]) if messages and isinstance(messages[0], list) else messages


def _call_id(outputs: Mapping[str, Any]) -> str | None:
    output = table(outputs.get("output"))
    return text(output.get("tool_call_id")) or None


def _answers(outputs: Mapping[str, Any], span: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    choices = [table(table(choice).get("message")) for choice in rows(outputs.get("choices"))][:1]
    generations = [table(one) for group in rows(outputs.get("generations")) for one in (rows(group) or [group])][:1]
    found = choices or [
        table(table(one.get("message")).get("kwargs")) or table(one.get("message")) for one in generations
    ]
    metadata = table(table(span.get("extra")).get("metadata"))
    for answer in filter(None, found or [outputs if "content" in outputs else {}]):
        for message in message_of({"role": "assistant", **answer}):
            yield replace(
                message,
                usage=message.usage or usage_of(table(outputs.get("usage_metadata", outputs.get("usage")))),
                model=text(outputs.get("model")) or text(metadata.get("ls_model_name")),
                at=seconds(span.get("start_time")),
            )
