"""Sinks: receivers of a run's events."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.sinks.base import AsyncEnvelopeSink as AsyncEnvelopeSink
    from monitor.sinks.base import AsyncEventSink as AsyncEventSink
    from monitor.sinks.base import EnvelopeSink as EnvelopeSink
    from monitor.sinks.base import EventSink as EventSink
    from monitor.sinks.base import FanOut as FanOut
    from monitor.sinks.base import Sink as Sink
    from monitor.sinks.base import listening as listening
    from monitor.sinks.jsonl import JsonlSink as JsonlSink
    from monitor.sinks.lines import line_of as line_of
    from monitor.sinks.log import LogSink as LogSink
    from monitor.sinks.memory import MemorySink as MemorySink
    from monitor.sinks.otel.sink import OtelSink as OtelSink
    from monitor.sinks.otel.sink import in_tool_span as in_tool_span
    from monitor.sinks.otel.sink import tool_context as tool_context

__all__ = [
    "AsyncEnvelopeSink",
    "AsyncEventSink",
    "EnvelopeSink",
    "EventSink",
    "FanOut",
    "JsonlSink",
    "LogSink",
    "MemorySink",
    "OtelSink",
    "Sink",
    "in_tool_span",
    "line_of",
    "listening",
    "tool_context",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncEnvelopeSink": "monitor.sinks.base",
            "AsyncEventSink": "monitor.sinks.base",
            "EnvelopeSink": "monitor.sinks.base",
            "EventSink": "monitor.sinks.base",
            "FanOut": "monitor.sinks.base",
            "JsonlSink": "monitor.sinks.jsonl",
            "LogSink": "monitor.sinks.log",
            "MemorySink": "monitor.sinks.memory",
            "OtelSink": "monitor.sinks.otel.sink",
            "Sink": "monitor.sinks.base",
            "in_tool_span": "monitor.sinks.otel.sink",
            "line_of": "monitor.sinks.lines",
            "listening": "monitor.sinks.base",
            "tool_context": "monitor.sinks.otel.sink",
        },
    )
