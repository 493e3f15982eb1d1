"""The harness performs what the core decides: it reads streams, arms timers, carries out calls and
tells sinks.

`Guard` and `watch` serve a loop that the caller writes, `Supervisor` is the loop. Both drive the
same `RunCore`.
"""

from monitor.harness.guards.guard import Guard
from monitor.harness.guards.guard_streams import Watched
from monitor.harness.guards.watch import Watch, watch
from monitor.harness.streams.clock import Alarm, Clock, SystemClock

__all__ = ["Alarm", "Clock", "Guard", "SystemClock", "Watch", "Watched", "watch"]
__dir__ = __all__.copy
