"""The harness performs what the core decides: it reads streams, arms timers, carries out calls and
tells sinks.

`Guard` and `watch` serve a loop that the caller writes, `Supervisor` is the loop. Both drive the
same `RunCore`.
"""

from monitor.harness.guards.guard import Guard as Guard
from monitor.harness.guards.guard_streams import Watched as Watched
from monitor.harness.guards.watch import Watch as Watch
from monitor.harness.guards.watch import watch as watch
from monitor.harness.streams.clock import Alarm as Alarm
from monitor.harness.streams.clock import Clock as Clock
from monitor.harness.streams.clock import SystemClock as SystemClock

__all__ = ["Alarm", "Clock", "Guard", "SystemClock", "Watch", "Watched", "watch"]
__dir__ = __all__.copy
