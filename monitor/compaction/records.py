"""What a compaction is asked for, what it answers, and how it fails. The compactions themselves are
in `monitor.compaction`.

A compaction puts a summary in the place of old messages. It is proposed against a version of the
history, accepted only if the whole next request gets small enough, and recorded, so that what the
model is shown can be made again from the originals: `shown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from monitor._util.codec import Codec
from monitor.errors import ConfigError, MonitorError, StoreError
from monitor.messages import Message
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.reasons import RETRYABLE, CompactionFailure, CompactionReason
from monitor.usage import AskCost


class CompactionError(MonitorError):
    """A compaction that was none. The history is as it was."""

    def __init__(
        self, failure: CompactionFailure, message: str, *, media_removed: bool = False, passing: bool = False
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.media_removed = media_removed
        """Media had been taken out of what the summariser reads before it failed."""
        self.retryable = passing or failure in RETRYABLE
        """Whether another try may get past it as things stand: a wrong key and a block by a safety
        filter stay what they are.
        """

    def __reduce__(self) -> tuple[Callable[[], CompactionError], tuple[()]]:
        again = partial(
            CompactionError, self.failure, str(self), media_removed=self.media_removed, passing=self.retryable
        )
        return again, ()


class CompactionIneffective(CompactionError):
    """The next request would not have become small enough."""

    def __init__(self, message: str, *, tokens_before: int, tokens_after: int, target_tokens: int) -> None:
        super().__init__(CompactionFailure.INEFFECTIVE, message)
        self.tokens_before = tokens_before
        self.tokens_after = tokens_after
        self.target_tokens = target_tokens

    def __reduce__(self) -> tuple[Callable[[], CompactionError], tuple[()]]:
        sizes = {name: getattr(self, name) for name in ("tokens_before", "tokens_after", "target_tokens")}
        return partial(CompactionIneffective, str(self), **sizes), ()


AskTurn: TypeAlias = Callable[[Model, ModelRequest], Awaitable[Turn]]
"""Ask a model and wait for its whole answer, also for one that failed (`Turn.model_error`,
`Turn.error`) or was cut off. Raises `TimeoutError` where it takes too long. What it costs is
counted.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionDetails:
    """What a summary is about, as data; added up from one compaction to the next."""

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Other things that were made: addresses, ids of what tools stored."""
    tool_notes: tuple[str, ...] = ()
    """What tools did that the summary may not say: failures, refusals, results of subagents."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionRecord:
    """A compaction that was finished: what stands in the place of which originals.

    Raises `ConfigError` for one that says nothing, or whose numbers make no sense.
    """

    summary: str
    """In words, without what is pinned beside it."""
    shown: tuple[Message, ...]
    """What the model is shown in the place of everything before `first_kept`."""
    first_kept: int
    """The first original, counted from 0, that is shown as it is."""
    tokens_before: int
    tokens_after: int
    """Of the whole request; estimated where the provider has not counted."""
    preset: str = ""
    reason: CompactionReason = CompactionReason.MANUAL
    summarised_by: str = ""
    """The model by name, `extractive`, or `cut`."""
    details: CompactionDetails = field(default_factory=CompactionDetails)

    def __post_init__(self) -> None:
        if not self.shown or not self.summary.strip():
            raise ConfigError("a record of a compaction has a summary, and something that is shown for it")
        if self.first_kept < 1:
            raise ConfigError(f"first_kept is {self.first_kept}: a compaction covers at least one message")
        if self.tokens_before < 0 or self.tokens_after < 0:
            raise ConfigError("tokens_before and tokens_after are numbers of tokens")


record_codec: Codec[CompactionRecord] = Codec(CompactionRecord)
"""JSON form of the record of a compaction."""


class CompactionStore(Protocol):
    """Where finished compactions are kept. Nothing is written of one that failed."""

    def add(self, record: CompactionRecord) -> None:
        """Keep it, as part of the one step that changes the history: the event loop waits for it,
        so be quick.

        Raises `StoreError` if that is not possible; then the compaction has failed, and the history
        is as it was.
        """
        ...

    def records(self) -> Sequence[CompactionRecord]:
        """All of them, oldest first."""
        ...


def shown(originals: Sequence[Message], records: Sequence[CompactionRecord]) -> tuple[Message, ...]:
    """What the model is shown of `originals`: the newest valid record, and everything from its
    `first_kept` on.

    Valid is one that covers messages which are there. Without any, all originals.
    """
    for record in reversed(records):
        if record.first_kept <= len(originals):
            return (*record.shown, *originals[record.first_kept :])
    return tuple(originals)


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionResult:
    """A compaction that was accepted."""

    messages: tuple[Message, ...]
    """The history with it."""
    record: CompactionRecord | None
    """`None`: no summary was needed, because old results and media could go."""
    tokens_before: int
    tokens_after: int
    """Of the whole request."""
    reported: bool = False
    """`tokens_before` is the provider's count; else it is estimated, as `tokens_after` always
    is.
    """
    summarised_by: str = ""
    """The model by name, `extractive`, `cut`; without a summary, what was taken out:
    `prune+media`.
    """
    replayed: int | None = None
    """The message, by its index in `messages`, that stands once more at the end with its media
    named; `None`: none.
    """
    kept_messages: int = 0
    kept_tokens: int = 0
    reread_tokens: int = 0
    """Estimated: what the provider had cached and has to read anew once."""
    cost: AskCost = field(default_factory=AskCost)
    """What the summary took."""
    model_calls: int = 0
    """Requests for it, also those that were asked again or came to nothing."""
    warnings: tuple[str, ...] = ()
    """What was done instead of what was wanted: a model that did not answer, a rung of the
    ladder.
    """


class InMemoryCompactions:
    """A `CompactionStore` that lasts as long as the program; also a pattern for one that lasts
    longer.

        store = monitor.compaction.InMemoryCompactions()
        monitor.Supervisor(model, compaction=monitor.Compaction(store=store))
        # the run's history, as far as compactions made it:
        shown = monitor.compaction.shown(run.originals, store.records())

    The numbers in a record count the messages of one run. So each run has its own records:
    `records()` are those of the run that began last, `runs()` has all of them.
    """

    def __init__(self) -> None:
        self._runs: list[InMemoryCompactions] = []
        self._records: list[CompactionRecord] = []

    def for_run(self) -> InMemoryCompactions:
        """A store for a run that begins now."""
        self._runs.append(InMemoryCompactions())
        return self._runs[-1]

    def add(self, record: CompactionRecord) -> None:
        """Keep it, as a record of the run that began last. Raises `StoreError` for anything but a
        record.
        """
        if not isinstance(record, CompactionRecord):
            raise StoreError(f"a CompactionRecord is kept, not {record!r:.200}")
        (self._runs[-1] if self._runs else self)._records.append(record)  # noqa: SLF001 - of the same class

    def records(self) -> tuple[CompactionRecord, ...]:
        """Of the run that began last, oldest first."""
        return tuple((self._runs[-1] if self._runs else self)._records)  # noqa: SLF001 - of the same class

    def runs(self) -> tuple[tuple[CompactionRecord, ...], ...]:
        """The records of each run, in the order in which the runs began."""
        return tuple(run.records() for run in self._runs)


def of_one_run(store: CompactionStore | None) -> CompactionStore | None:
    """`store`, or the part of it for a run that begins now, where it has `for_run`."""
    begin = getattr(store, "for_run", None)
    if not callable(begin):
        return store
    part: CompactionStore = begin()
    if not callable(getattr(part, "add", None)):
        raise ConfigError(f"{type(store).__name__}.for_run() gives a CompactionStore, not {part!r:.200}")
    return part
