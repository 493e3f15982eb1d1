"""The guard: watches the streams of a loop that the caller writes, and ends them when the core says
so.

`watch` serves one stream, `Guard` a run of several. Both drive a `RunCore`, as `monitor.Supervisor`
does.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.guard.framework_guards import guarding as guarding
    from monitor.guard.guard import Guard as Guard
    from monitor.guard.guard_streams import Watched as Watched
    from monitor.guard.streams.wait import Alarm as Alarm
    from monitor.guard.streams.wait import Clock as Clock
    from monitor.guard.streams.wait import SystemClock as SystemClock
    from monitor.guard.watching import Watch as Watch
    from monitor.guard.watching import watch as watch
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
