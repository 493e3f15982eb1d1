"""The parts that the adapters of frameworks share: a framework's exception has an SDK's behind it,
and what it passes on of an answer is not always all.
"""

from __future__ import annotations

import json
from typing import Any

from monitor.adapters.adapter import find_adapter
from monitor.adapters.decoding import SdkAdapter
from monitor.adapters.error_causes import causes
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError
from monitor.models import ModelError


class FrameworkAdapter(SdkAdapter):
    """Reads the streams of a framework. A subclass writes `_decode` and `finish`."""

    needs_finish = False  # a framework may not pass on why its model has stopped

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream

    def classify(self, error: BaseException) -> ModelError:
        return classify(error)

    def _gives(self, kind: str) -> None:
        """A part is of a kind other than text, thinking and calls."""
        if kind not in self.gave:
            self.gave = (*self.gave, kind)


def classify(error: BaseException) -> ModelError:
    """The failure, by the nearest exception of a known SDK among the causes of `error`; else by
    `error` itself, its HTTP status and its words.
    """
    for cause in causes(error):
        factory = find_adapter(cause)
        if factory is not None and not isinstance(cause, ConfigError):
            return factory(0).classify(cause)
    return OpenAIAdapter().classify(error)


def written(arguments: Any) -> str:
    """The arguments of a call as a text: a framework gives a text, an object or nothing."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
