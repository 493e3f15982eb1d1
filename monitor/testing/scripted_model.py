"""A model that a test scripts, turn by turn. It keeps the requests that it gets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from monitor.chunks import CHUNK_TYPES, TextDelta, ToolCall, TurnFinished
from monitor.models import ModelRequest
from monitor.reasons import FinishReason
from monitor.testing.scripted import ScriptedStream

Answer: TypeAlias = Callable[[ModelRequest], Any] | object
"""One turn: a text, a `ToolCall`, an exception, or a list of these, of any chunks, and of `Pause`,
`Stall` and `Do`; or a function that makes one of the `ModelRequest`.
"""

_numbers = itertools.count()


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call with a new id, for a script."""
    return ToolCall(f"call_{next(_numbers)}", name, arguments)


class ScriptedModel:
    """Answers its `n`-th request with the `n`-th of `answers`. A single function answers all of
    them.

        model = ScriptedModel("Hello", [call("search", q="x"), "looking"], ConnectionError("gone"))

    An answer without a `TurnFinished` and an exception ends with `DONE`; with `finishes=False`, it
    ends without a finish reason. A request beyond the script is an `AssertionError`, which ends the
    run with `error`.
    """

    def __init__(
        self,
        *answers: Answer,
        name: str = "scripted:model",
        finishes: bool = True,
        suspends: bool = False,
    ) -> None:
        self._answers: list[Any] = list(answers)
        self._finishes = finishes
        self._suspends = suspends
        self.name = name
        self.requests: list[ModelRequest] = []
        """The requests that the model was sent, in order."""
        self.streams: list[ScriptedStream] = []
        """The streams of its answers; each says whether it was read to its end and closed."""

    def stream(self, request: ModelRequest) -> ScriptedStream:
        """Stream the next answer of the script."""
        self.requests.append(request)
        number = len(self.requests) - 1
        if len(self._answers) == 1 and _is_function(self._answers[0]):
            answer = self._answers[0](request)
        elif number < len(self._answers):
            answer = self._answers[number]
            if _is_function(answer):
                answer = answer(request)
        else:
            raise AssertionError(
                f"the script of {self.name} has {len(self._answers)} answers, and this is request {number + 1}"
            )
        stream = ScriptedStream(*self._steps(answer), suspends=self._suspends)
        self.streams.append(stream)
        return stream

    def _steps(self, answer: Answer) -> Iterable[Any]:
        steps = list(answer) if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
        steps = [TextDelta(step) if isinstance(step, str) else step for step in steps]
        ends = any(isinstance(step, TurnFinished | BaseException) for step in steps)
        return steps if ends or not self._finishes else [*steps, TurnFinished(FinishReason.DONE)]


def _is_function(answer: object) -> bool:
    return callable(answer) and not isinstance(answer, (type, *CHUNK_TYPES))
