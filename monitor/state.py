"""The run as numbers: what conditions and policies examine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from monitor._util.drafts import draft_of
from monitor.usage import Usage

__all__ = ["Phase", "RunState"]
__dir__ = __all__.copy

Phase: TypeAlias = Literal["before_call", "streaming", "after_call"]
"""Where in a turn the run is."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunState:
    """One moment of a run. Times are seconds since the run began."""

    elapsed_s: float = 0.0
    phase: Phase = "before_call"
    """`before_call`: the next model call would start now. `streaming`: a stream is being read.
    `after_call`: tools may be running.
    """
    turns: int = 0
    """Turns started. A turn whose stream failed counts again only when its retry has started."""
    model_calls: int = 0
    """Streams opened."""
    tool_calls: int = 0
    """Tool calls that the model has completed writing."""
    consecutive_errors: int = 0
    """Turns and attempts in a row that failed: the model call failed, or a tool did and none
    succeeded.
    """
    usage: Usage = field(default_factory=Usage)
    """Tokens of all turns together. The running turn counts by its latest report plus an estimate
    of what came since.
    """
    usage_estimated: bool = False
    """Whether part of `usage` is an estimate, because the provider has not reported it (yet)."""
    stream_started_s: float | None = None
    """When the running stream was first read. `None`: no stream is running."""
    first_chunk_seen: bool = False
    """Whether the running stream has delivered its first chunk."""
    waiting_since_s: float | None = None
    """When the pending read of the stream began. `None`: no read is pending."""
    cost_usd: float | None = 0.0
    """The cost of `usage` in US dollars, by the prices of the run or the list prices. `None`: some
    of the tokens have no known price.
    """
    paused_s: float = 0.0
    """Seconds during which a person was asked, including a pause that is not over."""
    paused: bool = False
    """Whether a person is being asked now."""
    retry_delay_s: float = 0.0
    """Seconds spent waiting before another attempt, because a provider failed or asked for it."""
    tools_called: tuple[str, ...] = ()
    """Names of the tools that have answered, each once."""
    missing_outputs: tuple[str, ...] | None = None
    """Declared outputs that are not emitted yet. `None`: no outputs are declared."""
    plan_done: bool | None = None
    """Whether no step of the plan is left to do. `None`: there is no plan."""
    task_done: bool | None = None
    """The judge's latest answer. `None`: the judge has not answered yet."""


StateDraft: Any = draft_of(RunState)
