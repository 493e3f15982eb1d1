"""The records that a session holds beside its tree, and the changes of one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from monitor._util.codec import Codec
from monitor.calls import ApprovalAnswer, ApprovalRequest, CallRecord
from monitor.chunks import Chunk
from monitor.events import Event
from monitor.sessions.nodes import Draft, Node
from monitor.sessions.tree import ACTIVE


class RunStage(StrEnum):
    """The state of a run of a session."""

    RUNNING = "running"
    WAITING = "waiting"
    """The run waits for an approval, and its process may have ended."""
    ENDED = "ended"


MAIN: Final = "main"
"""The purpose of a run that was started from outside."""
SUBAGENT: Final = "subagent"
"""The purpose of a run that another run called as a tool."""
COMPACT: Final = "compact"
"""The purpose of a run that summarised the history of another one."""
HIDDEN: Final = frozenset({COMPACT})
"""Purposes of runs that listings do not show, because they serve another run."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunRecord:
    """A run of a session. Writing a record replaces the one with the same `id`."""

    id: str
    parent_run: str | None = None
    """The run that started it. `None`: it was started from outside."""
    agent: str = ""
    purpose: str = MAIN
    """`main`, `subagent`, `compact`, or a word of the caller's."""
    state: RunStage = RunStage.RUNNING
    started_at_s: float = 0.0
    """The time at which the run began, in seconds since 1970."""
    ended_at_s: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON data: how it ended, what it was given."""

    @property
    def hidden(self) -> bool:
        """Whether listings leave the run out."""
        return self.purpose in HIDDEN


run_codec: Codec[RunRecord] = Codec(RunRecord)


@dataclass(slots=True, frozen=True)
class StoredEvent:
    """An event of a run, as a session stores it."""

    seq: int
    run: str | None
    at_ms: int
    event: Event


@dataclass(slots=True, frozen=True)
class TurnChunks:
    """Some chunks of a turn in their order, each with the reading of the run's clock in seconds."""

    run: str | None
    turn: int
    chunks: tuple[tuple[float, Chunk], ...]
    inputs: tuple[Mapping[str, Any], ...] = ()
    """The other inputs of the run, as JSON data: see `monitor.core.tape`."""


@dataclass(slots=True, frozen=True)
class ApprovalState:
    """A question, and its answer. `answer` is `None` while the question is open."""

    request: ApprovalRequest
    answer: ApprovalAnswer | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Changes:
    """The changes of one step. Either all of them are written, or none.

    A call that is `intended` is stored unless its key is known. Any other record of a call is its
    next step, which must be allowed, see `CallLedger.advance`. Runs are written first, so nodes and
    events may belong to a run of the same step.
    """

    nodes: Sequence[Draft] = ()
    branch: str = ACTIVE
    """The branch whose head the nodes follow. It is made by its first node."""
    runs: Sequence[RunRecord] = ()
    calls: Sequence[CallRecord] = ()
    requests: Sequence[ApprovalRequest] = ()
    answers: Sequence[ApprovalAnswer] = ()
    events: Sequence[Event] = ()
    events_run: str | None = None
    """The run that the events belong to."""
    chunks: Sequence[TurnChunks] = ()


@dataclass(slots=True, frozen=True)
class Committed:
    """The nodes that one step has stored."""

    nodes: tuple[Node, ...]
    head: str | None
    """The id of the newest node of the branch."""
