"""Counts how often each tool has asked the model to make its call again, and bounds it."""

from __future__ import annotations

from dataclasses import replace

from monitor.chunks import ToolResult
from monitor.reasons import ToolErrorKind
from monitor.tools.calls.call_job import CallJob


class AskedTries:
    """The tries that tools have asked for with `ToolRetry`, in one run. The calls of one response
    count once, because the model has made them all before it read the first answer.
    """

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The turn in which the tool has asked last."""

    def counted(self, job: CallJob, result: ToolResult) -> ToolResult:
        """`result`. If its tool has asked for another try, it says how many are left."""
        name = job.call.name
        if result.error_kind is not ToolErrorKind.RETRY:
            if not result.is_error:
                self._asked.pop(name, None)
            return result
        if name not in self._asked or self._last[name] != job.turn or job.turn == 0:
            self._asked[name] = self._asked.get(name, 0) + 1
        self._last[name] = job.turn
        left = job.entry.traits.model_retries - self._asked[name] + 1
        if left > 0:
            times = "once" if left == 1 else f"{left} times"
            return replace(result, text=f"{result.text}\nCorrect the call and make it again; you may do so {times}.")
        said = "It has asked for other calls too often: do not call it in this way again, and go on without it."
        return replace(result, text=f"{result.text}\n{said}", error_kind=ToolErrorKind.EXECUTION_FAILED)
