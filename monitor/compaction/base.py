"""What a summariser is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from monitor.compaction.records import AskTurn, CompactionDetails, CompactionError
from monitor.compaction.templates import Template
from monitor.errors import describe
from monitor.messages import Message
from monitor.reasons import CompactionFailure


@dataclass(slots=True, frozen=True, kw_only=True)
class SummaryTask:
    """What is to be summarised, and how."""

    messages: tuple[Message, ...]
    """Oldest first, without the earlier summary. As they are: what a summariser cannot read it
    reduces itself.
    """
    previous: str | None = None
    """The earlier summary, to be brought up to date and not to be summarised again as text."""
    template: Template
    pinned: str = ""
    """What will stand beside the summary word for word, so that it need not be repeated."""
    identifiers: tuple[str, ...] = ()
    """Names of things that the summary should say literally: paths, addresses, numbers."""
    details: CompactionDetails = field(default_factory=CompactionDetails)
    """What is known of files and tools, as data."""
    max_tokens: int
    """The most tokens that the summary may have."""
    split_turn: bool = False
    """The last user turn in `messages` is only the beginning of one; its rest stays."""
    hints: tuple[str, ...] = ()
    """What hooks add to the prompt."""
    prompt: str | None = None
    """Instead of the template's own instructions."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Checkpoint:
    """How far a summary has come that is made window by window: a try that ran out of time is gone
    on with.
    """

    covers: int
    """The number of the task's messages that are in it."""
    identity: str
    """xxh3-64 over what it covers, the earlier summary and the prompt: it is of use for the same
    task only, or for one that goes on.
    """
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Progress:
    """A step of a summary is done."""

    done_messages: int
    of_messages: int
    checkpoint: Checkpoint | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Summary:
    """The answer to a task."""

    text: str
    by: str
    """The model by name, or `extractive`."""
    calls: int = 0
    """Model calls that it took."""
    media_removed: bool = False
    """There were media in what was summarised, and the summariser read their names only."""


class Summarizer(Protocol):
    """Makes a summary of a task."""

    @property
    def name(self) -> str:
        """Stands in the record."""
        ...

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        *,
        progress: Callable[[Progress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """The summary. Raises `CompactionError` for what is none, and `TimeoutError`."""
        ...


async def ask_for_summary(
    summarizer: Summarizer,
    task: SummaryTask,
    *,
    ask: AskTurn,
    progress: Callable[[Progress], None],
    checkpoint: Checkpoint | None,
) -> Summary:
    """What `summarizer` makes of `task`. Whatever it raises becomes a `CompactionError`."""
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
