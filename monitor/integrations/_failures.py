"""What kind of failure a framework's exception is: the SDK's exception behind it decides."""

from __future__ import annotations

from monitor.adapters.adapter import find_adapter
from monitor.adapters.error_causes import causes
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError
from monitor.models import ModelError


def classify(error: BaseException) -> ModelError:
    """The failure, by the nearest exception of a known SDK among the causes of `error`; else by
    `error` itself, its HTTP status and its words.
    """
    for cause in causes(error):
        factory = find_adapter(cause)
        if factory is not None and not isinstance(cause, ConfigError):
            return factory(0).classify(cause)
    return OpenAIAdapter().classify(error)
