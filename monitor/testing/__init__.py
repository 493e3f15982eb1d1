"""For tests of programs that use agent-monitor, and of agent-monitor itself: scripted streams and
models, a clock, local servers, and made loops.
"""

from monitor.testing import anthropic_steps as anthropic_steps
from monitor.testing import gemini_steps as gemini_steps
from monitor.testing import loops as loops
from monitor.testing import openai_steps as openai_steps
from monitor.testing.capture import CapturedEvents as CapturedEvents
from monitor.testing.capture import capture_events as capture_events
from monitor.testing.clock import FakeAlarm as FakeAlarm
from monitor.testing.clock import FakeClock as FakeClock
from monitor.testing.rechunk import cut as cut
from monitor.testing.rechunk import rechunk as rechunk
from monitor.testing.scripted import Do as Do
from monitor.testing.scripted import Pause as Pause
from monitor.testing.scripted import ScriptedStream as ScriptedStream
from monitor.testing.scripted import Stall as Stall
from monitor.testing.scripted_model import ScriptedModel as ScriptedModel
from monitor.testing.scripted_model import call as call
from monitor.testing.servers.anthropic_server import LocalAnthropic as LocalAnthropic
from monitor.testing.servers.gemini_server import LocalGemini as LocalGemini
from monitor.testing.servers.local_server import ReceivedRequest as ReceivedRequest
from monitor.testing.servers.openai_server import LocalOpenAI as LocalOpenAI
from monitor.testing.servers.temporal_server import LocalTemporal as LocalTemporal

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
