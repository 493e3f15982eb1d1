"""Sinks: receivers of a run's events."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names
from monitor.sinks.base import EventSink, FanOut, listening
from monitor.sinks.jsonl import JsonlSink
from monitor.sinks.lines import line_of
from monitor.sinks.memory import MemorySink

if TYPE_CHECKING:
    from monitor.sinks.log import LogSink

__all__ = ["EventSink", "FanOut", "JsonlSink", "LogSink", "MemorySink", "line_of", "listening"]

__getattr__ = lazy_names(__name__, {"LogSink": "monitor.sinks.log"})  # only a program that logs loads structlog
