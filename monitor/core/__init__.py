"""The core decides but performs nothing: chunks, results and times go in; verdicts and events come
out.
"""

from monitor.core.run import Companion as Companion
from monitor.core.run import RunCore as RunCore

__all__ = ["Companion", "RunCore"]
