"""The parts around a scheduler of calls: its listener, and the admission of each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio.lowlevel

from monitor.chunks import ToolCall
from monitor.messages import ApprovalRequest, CallRecord, CallState
from monitor.tools.base import ToolContext
from monitor.tools.registry import ToolEntry


class CallListener:
    """Is called with each step of a call while it is carried out. This class ignores them all."""

    listens = True
    """Whether `changed` has to be called for each step."""

    def changed(self, record: CallRecord) -> None:
        """A call has taken a step, which is stored."""

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        """A tool has written live output. This may wait until somebody has read it."""
        await anyio.lowlevel.checkpoint()

    def progressed(self, call: ToolCall, done: float | None, total: float | None, note: str) -> None:
        """A tool has reported how far its call is."""

    def process_started(self, call: ToolCall, pid: int) -> None:
        """A tool has started a process."""

    def dropped(self, call: ToolCall, why: str) -> None:
        """A tool has answered after its call had got another result."""

    async def ended(self) -> None:
        """A call has got its result, and others may take longer. This may wait until its end is on
        record.
        """


class _NoListener(CallListener):
    listens = False


NO_LISTENER = _NoListener()


@dataclass(slots=True, frozen=True)
class Admission:
    """Says whether a call may be made, and why not."""

    state: CallState | None = None
    """`None`: the call may be made. `DENIED`, `EXPIRED`: it ends in this state.
    `AWAITING_APPROVAL`: it stays open, and the run has to end, because a person will answer later.
    """
    text: str = ""
    """Why the call may not be made, for the model."""
    arguments: Mapping[str, Any] | None = None
    """The arguments to use instead of the model's."""
    approval: str | None = None
    """The id of the question that was asked."""


ADMITTED: Final = Admission()


class AdmissionControl(Protocol):
    """Decides whether calls may be made; `monitor.tools.approvals.approval.Approvals` is one."""

    def admit(
        self, entry: ToolEntry, arguments: Mapping[str, Any], context: ToolContext
    ) -> Admission | ApprovalRequest:
        """The decision about a call, or the question to a person that it depends on."""
        ...

    async def ask(self, request: ApprovalRequest, entry: ToolEntry, arguments: Mapping[str, Any]) -> Admission:
        """The decision that a person has made about a call."""
        ...
