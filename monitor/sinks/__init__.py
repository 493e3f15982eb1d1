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
    from monitor.sinks.log import JsonlSink as JsonlSink
    from monitor.sinks.log import LogSink as LogSink
    from monitor.sinks.log import MemorySink as MemorySink
    from monitor.sinks.log import line_of as line_of
    from monitor.sinks.otel.sink import OtelSink as OtelSink
    from monitor.sinks.otel.sink import RequestSpans as RequestSpans
    from monitor.sinks.otel.sink import in_tool_span as in_tool_span
    from monitor.sinks.otel.sink import tool_context as tool_context
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
