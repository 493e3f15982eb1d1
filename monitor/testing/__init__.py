"""For tests of programs that use agent-monitor, and of agent-monitor itself: scripted streams and
models, a clock, local servers, and made loops.
"""

from monitor.testing import anthropic_steps, gemini_steps, loops, openai_steps
from monitor.testing.fake_clock import CapturedEvents, FakeAlarm, FakeClock, capture_events
from monitor.testing.local_server import ReceivedRequest
from monitor.testing.local_services import LocalAnthropic, LocalGemini, LocalOpenAI
from monitor.testing.scripted import Do, Pause, ScriptedModel, ScriptedStream, Stall, call, cut, rechunk
from monitor.testing.temporal_server import LocalTemporal

__all__ = [
    "CapturedEvents",
    "Do",
    "FakeAlarm",
    "FakeClock",
    "LocalAnthropic",
    "LocalGemini",
    "LocalOpenAI",
    "LocalTemporal",
    "Pause",
    "ReceivedRequest",
    "ScriptedModel",
    "ScriptedStream",
    "Stall",
    "anthropic_steps",
    "call",
    "capture_events",
    "cut",
    "gemini_steps",
    "loops",
    "openai_steps",
    "rechunk",
]
__dir__ = __all__.copy
