"""Traces of model calls and tool calls: of OpenTelemetry, and of LangSmith.

One trace is one run. Each model call repeats the messages before it, so only its answer is read,
and the prompt of the first call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.chat import message_of, messages_of, usage_of
from monitor.transcripts.readers.gemini_cli import message_of_parts, messages_of_contents
from monitor.transcripts.readers.values import (
    answer_of,
    as_float,
    call_of,
    parsed,
    rows,
    seconds,
    table,
    tables,
    text,
    whole,
    words,
)
from monitor.transcripts.source import Source

# --------------------------------------------------------------------------------------------------
# OpenTelemetry: OTLP (one document, or one a line), Tempo, Jaeger, and dumps of its JavaScript SDK;
# with the names of the GenAI conventions, of OpenInference, and of the AI SDK.
#
# A request may give two or three spans, one inside the other (a framework, an SDK): the outer one
# that has an answer counts.

_NUMBERED: Final = re.compile(
    r"^(gen_ai\.prompt|gen_ai\.completion|llm\.input_messages|llm\.output_messages)\.(\d{1,6})\.(.{1,200})$"
)
_TOOL_CALL: Final = re.compile(r"^(?:message\.)?tool_calls\.(\d{1,6})\.(?:tool_call\.)?(.{1,100})$")


@dataclass(slots=True)
class _Span:
    trace: str
    id: str
    parent: str
    name: str
    start: float
    facts: dict[str, Any]
    failed: str = ""

    @classmethod
    def of(cls, span: Mapping[str, Any], id: str, parent: object, start: float, facts: dict[str, Any]) -> _Span:
        """`id`: how the names of the ids end in `span`."""
        ids = text(span.get(f"trace{id}")), text(span.get(f"span{id}")), text(parent)
        return cls(*ids, text(span.get("operationName")), start, facts)


class TelemetryReader(TranscriptReader):
    """Reads traces of OpenTelemetry and OpenInference."""

    format = "otel"
    agent = "OpenTelemetry, OpenInference"

    def fits(self, source: Source) -> bool:
        """One of the containers of spans."""
        document = source.document
        if isinstance(document, dict):
            return _has_spans(document)
        if isinstance(document, list):
            found = tables(document[:20])
            return bool(found) and all("spanContext" in one or _has_spans(one) for one in found)
        return bool(source.first_records) and all(map(_has_spans, source.first_records))

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """A run for each trace in which a model or a tool was called."""
        document = source.document
        documents: Iterable[Any] = document if isinstance(document, list) else [document]
        if document is None:
            documents = source.records(report, grows=False)
        traces: dict[str, dict[object, _Span]] = {}
        for span in (span for one in documents for span in _spans(table(one))):
            known = traces.setdefault(span.trace, {})
            key = span.id or len(known)
            report.repeated += key in known  # an exporter that got no answer sends again
            known[key] = span
        for trace, spans in traces.items():
            yield from _trace(trace, sorted(spans.values(), key=lambda span: span.start))


def _has_spans(document: Mapping[str, Any]) -> bool:
    if isinstance(document.get("resourceSpans"), list) or isinstance(document.get("batches"), list):
        return True
    return any("spans" in table(one) for one in rows(document.get("data")))


def _spans(document: Mapping[str, Any]) -> Iterator[_Span]:
    if "spanContext" in document:
        facts = {**document, **table(document["spanContext"]), "operationName": document.get("name")}
        parent = table(document.get("parentSpanContext")).get("spanId") or document.get("parentSpanId")
        start = [*map(as_float, rows(document.get("startTime")))]
        at = start[0] + start[1] / 1e9 if len(start) > 1 else 0.0
        yield _Span.of(facts, "Id", parent, at, dict(table(document.get("attributes"))))
    for resource in tables(document.get("resourceSpans")) or tables(document.get("batches")):
        scopes = tables(resource.get("scopeSpans")) or tables(resource.get("instrumentationLibrarySpans"))
        for span in (span for scope in scopes for span in tables(scope.get("spans"))):
            told, at = tables(span.get("attributes")), seconds(span.get("startTimeUnixNano")) or 0.0
            facts = {text(one.get("key")): _otlp(one.get("value")) for one in told}
            found = _Span.of({**span, "operationName": span.get("name")}, "Id", span.get("parentSpanId"), at, facts)
            status = table(span.get("status"))
            if status.get("code") in (2, "STATUS_CODE_ERROR"):
                found.failed = text(status.get("message"))
            yield found
    for span in (span for trace in tables(document.get("data")) for span in tables(trace.get("spans"))):
        parents = [one.get("spanID") for one in tables(span.get("references"))]
        facts = {text(tag.get("key")): tag.get("value") for tag in tables(span.get("tags"))}
        yield _Span.of(span, "ID", parents[0] if parents else "", as_float(span.get("startTime")) / 1e6, facts)


def _otlp(value: object) -> Any:
    """The plain value of a typed value of OTLP."""
    given = table(value)
    for name in ("stringValue", "intValue", "doubleValue", "boolValue"):
        if name in given:
            inner = given[name]
            return int(inner) if name == "intValue" and isinstance(inner, str) and inner.isdecimal() else inner
    if "arrayValue" in given:
        return [_otlp(one) for one in rows(table(given["arrayValue"]).get("values"))]
    if "kvlistValue" in given:
        entries = tables(table(given["kvlistValue"]).get("values"))
        return {text(one.get("key")): _otlp(one.get("value")) for one in entries}
    return None


def _trace(trace: str, spans: list[_Span]) -> Iterator[TranscriptEntry]:
    answers = {span.id: [*_answer(span)] for span in spans if not _is_tool(span)}
    asked = {id for id, found in answers.items() if found}
    above = {span.id: span.parent for span in spans}
    calling = [span for span in spans if (span.id in asked and not _inside(span, asked, above)) or _is_tool(span)]
    if not calling:
        return
    agents = [span for span in spans if span.facts.get("gen_ai.operation.name") == "invoke_agent"]
    run = OpenRun(trace)
    name = text(agents[0].facts.get("gen_ai.agent.name")) if agents else spans[0].name
    yield Began(run=trace, title=name, model=next(filter(None, map(_model, calling)), ""))
    known: set[str] = set()
    asked_first = next((span for span in calling if not _is_tool(span)), None)
    for span in calling:
        if _is_tool(span):
            yield from map(run.said, _tool(span, known))
            continue
        if span is asked_first:
            yield from map(run.said, _prompt(span))
        known.update(call.id or "" for message in answers[span.id] for call in message.tool_calls)
        yield from map(run.said, answers[span.id])
    if failed := calling[-1].failed:
        run.ended = ("failed", failed[:200])
    yield run.end()


def _inside(span: _Span, asked: set[str], above: Mapping[str, str]) -> bool:
    """Whether another model span with an answer is above `span`."""
    parent, steps = span.parent, 0
    while parent and steps < MOST_DEPTH:
        if parent in asked:
            return True
        parent, steps = above.get(parent, ""), steps + 1
    return False


MOST_DEPTH: Final = 256


def _is_tool(span: _Span) -> bool:
    facts = span.facts
    return (
        facts.get("gen_ai.operation.name") == "execute_tool"
        or facts.get("openinference.span.kind") == "TOOL"
        or facts.get("ai.operationId") == "ai.toolCall"
        or span.name.startswith("execute_tool ")
    )


def _tool(span: _Span, known: set[str]) -> Iterator[RecordedMessage]:
    name, given, id, answered = (_first(span.facts, *names) for names in _TOOL_FACTS)
    name, id = name or span.name.removeprefix("execute_tool "), id or span.id
    if id not in known:
        yield RecordedMessage("assistant", "", (call_of(name, parsed(given), id),), at=span.start)
    yield answer_of(name, span.failed or answered, at=span.start, is_error=bool(span.failed), call_id=id)


_TOOL_FACTS: Final = (
    ("gen_ai.tool.name", "tool.name", "ai.toolCall.name"),
    ("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "ai.toolCall.args", "input.value"),
    ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id"),
    ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "ai.toolCall.result", "output.value"),
)
"""Where a tool's name, arguments, id and result stand."""


def _first(facts: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = facts.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, dict | list):
            return json.dumps(value)
    return ""


def _model(span: _Span) -> str:
    return _first(span.facts, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id")


def _answer(span: _Span) -> Iterator[RecordedMessage]:
    """The answer of the model in a span; nothing if the span is not of a model."""
    facts, usage, found = span.facts, _usage(span.facts), list[RecordedMessage]()
    if isinstance(messages := _json(facts.get("gen_ai.output.messages")), list):
        found = [message for one in map(table, messages) for message in _genai(one, "assistant")]
    elif numbered := _numbered(facts, "gen_ai.completion") or _numbered(facts, "llm.output_messages"):
        found = [message for one in numbered for message in message_of({"role": "assistant", **one})]
    elif isinstance(response := _json(facts.get("gcp.vertex.agent.llm_response")), dict):
        found = [*message_of_parts("assistant", tables(table(response.get("content")).get("parts")))]
    elif "ai.response.text" in facts or "ai.response.object" in facts or "ai.response.toolCalls" in facts:
        calls = tuple(
            call_of(one.get("toolName"), parsed(one.get("input", one.get("args"))), one.get("toolCallId"))
            for one in tables(_json(facts.get("ai.response.toolCalls")))
        )
        said = text(facts.get("ai.response.text")) or text(facts.get("ai.response.object"))
        found = [RecordedMessage("assistant", said, calls)]
    for message in found:
        if message.role == "assistant":
            yield replace(message, at=span.start, usage=usage, model=_model(span))


def _prompt(span: _Span) -> Iterator[RecordedMessage]:
    facts = span.facts
    if isinstance(messages := _json(facts.get("gen_ai.input.messages")), list):
        for one in map(table, messages):
            yield from _genai(one, "user")
    elif numbered := _numbered(facts, "gen_ai.prompt") or _numbered(facts, "llm.input_messages"):
        yield from messages_of(numbered)
    elif isinstance(request := _json(facts.get("gcp.vertex.agent.llm_request")), dict):
        yield from messages_of_contents(rows(request.get("contents")))
    elif (given := _json(facts.get("ai.prompt.messages"))) or (given := _json(facts.get("ai.prompt"))):
        inside = table(given)
        if isinstance(given, list) or "messages" in inside:
            yield from messages_of(rows(given) or rows(inside.get("messages")))
        elif isinstance(inside.get("prompt"), str):
            yield RecordedMessage("user", inside["prompt"])


def _genai(message: Mapping[str, Any], role: str) -> Iterator[RecordedMessage]:
    """A message with parts, as the GenAI conventions have it."""
    blocks: list[dict[str, Any]] = []
    for part in tables(message.get("parts")):
        match part.get("type"):
            case "tool_call":
                blocks.append({**part, "type": "tool_use", "input": part.get("arguments")})
            case "tool_call_response":
                said = part.get("response", part.get("result"))
                shown = said if isinstance(said, str) else json.dumps(said)
                blocks.append({"type": "tool_result", "tool_use_id": part.get("id"), "content": shown})
            case "reasoning" | "thinking":
                blocks.append({"type": "thinking", "thinking": words(part)})
            case _:
                blocks.append({"type": "text", "text": words(part)})
    own = text(message.get("role"))
    known = own if own in {"system", "user", "assistant"} else "user" if own == "tool" else role
    yield from message_of({"role": known, "content": blocks})


def _json(value: object) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _numbered(facts: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Messages whose fields are attributes with numbers in their names."""
    messages: dict[int, dict[str, Any]] = {}
    for key, value in facts.items():
        found = _NUMBERED.match(key)
        if found is None or found[1] != prefix:
            continue
        message = messages.setdefault(int(found[2]), {})
        if called := _TOOL_CALL.match(found[3]):
            calls = message.setdefault("tool_calls", {})
            call = calls.setdefault(int(called[1]), {})
            call[called[2].removeprefix("function.")] = value
        else:
            name = found[3].removeprefix("message.")
            message[name if name in {"role", "content", "tool_call_id", "name"} else "rest"] = value
    for message in messages.values():
        message["tool_calls"] = [call for _, call in sorted(message.get("tool_calls", {}).items())]
    return [message for _, message in sorted(messages.items())]


def _usage(facts: Mapping[str, Any]) -> Usage | None:
    given, answered, thinking, cached = (
        next((whole(facts[name]) for name in names if name in facts), 0) for names in _TOKEN_FACTS
    )
    return Usage(given, answered, thinking, cached, given + answered) if given or answered else None


_TOKEN_FACTS: Final = (
    (
        *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        *("ai.usage.inputTokens", "ai.usage.promptTokens"),
    ),
    (
        *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
        *("ai.usage.outputTokens", "ai.usage.completionTokens"),
    ),
    ("gen_ai.usage.reasoning_tokens", "ai.usage.reasoningTokens"),
    (
        *("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens"),
        "ai.usage.cachedInputTokens",
    ),
)
"""Where the tokens of the prompt, of the answer, of its thoughts and of the cache stand."""


# --------------------------------------------------------------------------------------------------
# LangSmith: requests of its SDKs (`post` and `patch`), and exported runs, one a line or a list.


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
            yield from _langsmith(trace, sorted(found, key=lambda span: text(span.get("dotted_order"))))


def _is_run(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return ("id" in value and "run_type" in value and "inputs" in value) or {"trace_id", "dotted_order"} <= value.keys()


def _completed(sent: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Each run once: a patch completes the run that was posted before it."""
    runs: dict[str, dict[str, Any]] = {}
    for one in sent:
        id, order = text(one.get("id")) or text(one.get("dotted_order")), one.get("dotted_order")
        same = (run for run in runs.values() if order and run.get("dotted_order") == order)
        known = runs.get(id) or next(same, None)
        given = {name: value for name, value in one.items() if value not in (None, {}, [])}
        if known is None:
            runs[id] = given
        else:
            known.update(given)
    return runs.values()


def _langsmith(trace: str, spans: list[Mapping[str, Any]]) -> Iterator[TranscriptEntry]:
    run, root = OpenRun(trace), spans[0]
    yield Began(run=trace, project=text(root.get("session_name")), title=text(root.get("name")))
    asked_first = next((span for span in spans if span.get("run_type") == "llm"), None)
    for span in spans:
        outputs, error = table(span.get("outputs")), text(span.get("error"))
        if span.get("run_type") == "llm":
            if span is asked_first:
                yield from map(run.said, messages_of(_given(table(span.get("inputs")))))
            yield from map(run.said, _answers(outputs, span))
            if error:
                run.ended = ("failed", error[:200])
        elif span.get("run_type") == "tool":
            id = table(outputs.get("output")).get("tool_call_id")
            said, at = error or words(outputs.get("output", outputs)) or repr(outputs), seconds(span.get("end_time"))
            yield run.said(answer_of(span.get("name"), said, at=at, is_error=bool(error), call_id=id))
    yield run.end()


def _given(inputs: Mapping[str, Any]) -> list[Any]:
    messages = rows(inputs.get("messages"))
    return rows(messages[0]) if messages and isinstance(messages[0], list) else messages


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
