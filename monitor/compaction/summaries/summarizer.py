"""The protocol of summarisers: what one receives, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from monitor.compaction.records import AskTurn, CompactionError
from monitor.compaction.summaries.templates import SummaryTask
from monitor.errors import describe
from monitor.reasons import CompactionFailure


@dataclass(slots=True, frozen=True, kw_only=True)
class Checkpoint:
    """How far a summary has come that is made window by window. The next try goes on from here
    after a timeout.
    """

    covers: int
    """The number of the task's messages that the text covers."""
    identity: str
    """xxh3-64 over the messages that the text covers, the earlier summary and the prompt. Only the
    same task, or a longer one that begins with it, may use the checkpoint.
    """
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionProgress:
    """One step of a summary is done."""

    done_messages: int
    of_messages: int
    checkpoint: Checkpoint | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Summary:
    """The summary that a summariser made of a task."""

    text: str
    by: str
    """The model by name, or `extractive`."""


class Summarizer(Protocol):
    """Makes a summary of a task."""

    @property
    def name(self) -> str:
        """The name that records and warnings say."""
        ...

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        /,
        *,
        progress: Callable[[CompactionProgress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """The summary of `task`. Raises `CompactionError` if there is none to be had, and
        `TimeoutError`.
        """
        ...


async def ask_for_summary(
    summarizer: Summarizer,
    task: SummaryTask,
    *,
    ask: AskTurn,
    progress: Callable[[CompactionProgress], None],
    checkpoint: Checkpoint | None,
) -> Summary:
    """Let `summarizer` make a summary of `task`. Whatever it raises becomes a `CompactionError`."""
    try:
        summary: object = await summarizer.summarize(task, ask, progress=progress, checkpoint=checkpoint)
    except CompactionError:
        raise
    except TimeoutError as error:
        raise CompactionError(CompactionFailure.TIMEOUT, str(error) or "it took too long") from error
    except Exception as error:
        raise CompactionError(CompactionFailure.CRASHED, f"{summarizer.name} raised {describe(error)}") from error
    if not isinstance(summary, Summary) or not isinstance(summary.text, str):
        raise CompactionError(
            CompactionFailure.INVALID, f"{summarizer.name} gave {summary!r:.200}, which is no Summary"
        )
    if not summary.text.strip():
        raise CompactionError(CompactionFailure.EMPTY, f"{summarizer.name} wrote nothing")
    return summary
