"""The core decides but performs nothing: chunks, results and times go in; verdicts and events come
out.
"""

from monitor._util.lazy import lazy_names

TYPE_CHECKING = False  # a hook is waited for, and `typing` takes 3 ms

if TYPE_CHECKING:
    from monitor.core.limited_run import BackgroundWork as BackgroundWork
    from monitor.core.limited_run import Companion as Companion
    from monitor.core.run import RunCore as RunCore

    __all__ = ["BackgroundWork", "Companion", "RunCore"]
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
