"""Where events go."""

from monitor.sinks.base import EventSink as EventSink
from monitor.sinks.base import FanOut as FanOut
from monitor.sinks.base import listening as listening
from monitor.sinks.jsonl import JsonlSink as JsonlSink
from monitor.sinks.lines import line_of as line_of
from monitor.sinks.log import LogSink as LogSink
from monitor.sinks.memory import MemorySink as MemorySink
