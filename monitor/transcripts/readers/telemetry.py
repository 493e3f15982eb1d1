"""Traces of OpenTelemetry: OTLP (one document, or one a line), Tempo, Jaeger, and dumps of its
JavaScript SDK; with the names of the GenAI conventions, of OpenInference, and of the AI SDK.

One trace is one run. Each model span repeats the whole prompt, so only its answer is read, and the
prompt of the first. A request may give two or three spans, one inside the other (a framework, an
SDK): the outer one that has an answer counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, ReadReport, RecordedCall, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.chat import message_of, message_of_parts, messages_of, messages_of_contents
from monitor.transcripts.readers.values import (
    as_float,
    call_of,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    text,
    whole,
    words,
)
from monitor.transcripts.source import Source

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
            return bool(document) and all(
                "spanContext" in table(one) or _has_spans(table(one)) for one in document[:20]
            )
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
        context = table(document["spanContext"])
        parent = table(document.get("parentSpanContext")).get("spanId") or document.get("parentSpanId")
        start = rows(document.get("startTime"))
        yield _Span(
            text(context.get("traceId")),
            text(context.get("spanId")),
            text(parent),
            text(document.get("name")),
            as_float(start[0]) + as_float(start[1]) / 1e9 if len(start) > 1 else 0.0,
            dict(table(document.get("attributes"))),
        )
    for resource in map(table, rows(document.get("resourceSpans")) or rows(document.get("batches"))):
        scopes = rows(resource.get("scopeSpans")) or rows(resource.get("instrumentationLibrarySpans"))
        for span in (table(span) for scope in scopes for span in rows(table(scope).get("spans"))):
            status = table(span.get("status"))
            yield _Span(
                text(span.get("traceId")),
                text(span.get("spanId")),
                text(span.get("parentSpanId")),
                text(span.get("name")),
                seconds(span.get("startTimeUnixNano")) or 0.0,
                {text(one.get("key")): _otlp(one.get("value")) for one in map(table, rows(span.get("attributes")))},
                text(status.get("message")) if status.get("code") in (2, "STATUS_CODE_ERROR") else "",
            )
    for trace in map(table, rows(document.get("data"))):
        for span in map(table, rows(trace.get("spans"))):
            parents = [text(table(one).get("spanID")) for one in rows(span.get("references"))]
            yield _Span(
                text(span.get("traceID")),
                text(span.get("spanID")),
                parents[0] if parents else "",
                text(span.get("operationName")),
                as_float(span.get("startTime")) / 1e6,
                {text(tag.get("key")): tag.get("value") for tag in map(table, rows(span.get("tags")))},
            )


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
        entries = map(table, rows(table(given["kvlistValue"]).get("values")))
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
    state = OpenRun(trace)
    name = text(agents[0].facts.get("gen_ai.agent.name")) if agents else spans[0].name
    yield Began(run=trace, title=name, model=next(filter(None, map(_model, calling)), ""))
    known: set[str] = set()
    first = True
    for span in calling:
        if _is_tool(span):
            yield from _tool(state, span, known)
            continue
        if first:
            for message in _prompt(span):
                yield state.said(message)
        first = False
        for message in answers[span.id]:
            known.update(call.id or "" for call in message.tool_calls)
            yield state.said(message)
    if failed := calling[-1].failed:
        state.ended = ("failed", failed[:200])
    yield state.end()


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


def _tool(state: OpenRun, span: _Span, known: set[str]) -> Iterator[TranscriptEntry]:
    facts = span.facts
    name = _first(facts, "gen_ai.tool.name", "tool.name", "ai.toolCall.name") or span.name.removeprefix("execute_tool ")
    given = _first(
        facts, "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "ai.toolCall.args", "input.value"
    )
    id = _first(facts, "gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id") or span.id
    answered = _first(
        facts, "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "ai.toolCall.result", "output.value"
    )
    if id not in known:
        yield state.said(RecordedMessage("assistant", "", (call_of(name, parsed(given), id),), at=span.start))
    result = result_of(name, span.failed or answered, is_error=bool(span.failed), call_id=id)
    yield state.said(RecordedMessage("tool", tool_results=(result,), at=span.start))


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
    facts = span.facts
    usage = _usage(facts)
    found: list[RecordedMessage] = []
    if isinstance(messages := _json(facts.get("gen_ai.output.messages")), list):
        found = [message for one in map(table, messages) for message in _genai(one, "assistant")]
    elif numbered := _numbered(facts, "gen_ai.completion") or _numbered(facts, "llm.output_messages"):
        found = [message for one in numbered for message in message_of({"role": "assistant", **one})]
    elif isinstance(response := _json(facts.get("gcp.vertex.agent.llm_response")), dict):
        content = table(response.get("content"))
        found = [*message_of_parts("assistant", map(table, rows(content.get("parts"))))]
    elif "ai.response.text" in facts or "ai.response.object" in facts or "ai.response.toolCalls" in facts:
        calls: tuple[RecordedCall, ...] = tuple(
            call_of(one.get("toolName"), parsed(one.get("input", one.get("args"))), one.get("toolCallId"))
            for one in map(table, rows(_json(facts.get("ai.response.toolCalls"))))
        )
        said = text(facts.get("ai.response.text")) or text(facts.get("ai.response.object"))
        found = [RecordedMessage("assistant", said, calls)]
    for message in found:
        if message.role == "assistant":
            yield RecordedMessage(
                "assistant",
                message.text,
                message.tool_calls,
                reasoning=message.reasoning,
                at=span.start,
                usage=usage,
                model=_model(span),
            )


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
    for part in map(table, rows(message.get("parts"))):
        match part.get("type"):
            case "tool_call":
                blocks.append(
                    {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
                )
            case "tool_call_response":
                said = part.get("response", part.get("result"))
                shown = said if isinstance(said, str) else json.dumps(said)
                blocks.append({"type": "tool_result", "tool_use_id": part.get("id"), "content": shown})
            case "reasoning" | "thinking":
                blocks.append({"type": "thinking", "thinking": words(part)})
            case _:
                blocks.append({"type": "text", "text": words(part)})
    own = text(message.get("role")) or role
    known = {"system", "user", "assistant", "tool"}
    yield from message_of({"role": "user" if own == "tool" else own if own in known else role, "content": blocks})


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
    def number(*names: str) -> int:
        return next((whole(facts[name]) for name in names if name in facts), 0)

    given = number(
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    )
    answered = number(
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    )
    if not given and not answered:
        return None
    thinking = number("gen_ai.usage.reasoning_tokens", "ai.usage.reasoningTokens")
    cached = number(
        "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens", "ai.usage.cachedInputTokens"
    )
    return Usage(given, answered, thinking, cached, given + answered)
