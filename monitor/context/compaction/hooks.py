"""Hooks of the program: before a compaction, after it, and on whether the model goes on."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from monitor._util.argument_checks import check_kind
from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor.chunks import AskCost
from monitor.errors import (
    RETRYABLE,
    CompactionFailure,
    CompactionReason,
    ConfigError,
    MonitorError,
    StoreError,
    describe,
)
from monitor.messages import Message
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn

# --- The result of a compaction, its record, and how it fails.
#
# A compaction puts a summary in the place of old messages. It is proposed against a version of
# the history, and accepted only if the whole next request gets small enough. With its record,
# `shown` makes again from the originals what the model is shown.


class CompactionError(MonitorError):
    """A compaction that failed. The history is as it was."""

    def __init__(self, failure: CompactionFailure, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.failure = failure
        self.media_removed = False
        """Media had been taken out of what the summariser reads before the failure."""
        self.retryable = passing or failure in RETRYABLE
        """Whether another try may succeed. With a wrong key, or after a block by a safety filter,
        it would fail again.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), str(self)), self.__dict__


def _again(kind: type[CompactionError], message: str) -> CompactionError:
    return kind.__new__(kind, message)


class CompactionIneffective(CompactionError):
    """The next request would not have become small enough."""

    def __init__(self, message: str, *, tokens_before: int, tokens_after: int, target_tokens: int) -> None:
        super().__init__(CompactionFailure.INEFFECTIVE, message)
        self.tokens_before = tokens_before
        self.tokens_after = tokens_after
        self.target_tokens = target_tokens


AskTurn: TypeAlias = Callable[[Model, ModelRequest], Awaitable[Turn]]
"""Ask a model and wait for its whole answer, also for one that failed (`Turn.model_error`,
`Turn.error`) or was cut off. Raises `TimeoutError` where it takes too long. The run is charged for
it.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionDetails:
    """Files, things and calls that a summary is about. Each compaction adds to the earlier ones."""

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Other things that were made: their addresses, or the ids under which tools stored them."""
    tool_notes: tuple[str, ...] = ()
    """Failures and refusals of calls, one line each."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionRecord:
    """A finished compaction: what stands in the place of which originals.

    Raises `ConfigError` for an empty summary, and for numbers that cannot be right.
    """

    summary: str
    """The text of the summary, without what is pinned beside it."""
    shown: tuple[Message, ...]
    """The messages that stand in the place of everything before `first_kept`."""
    first_kept: int
    """The index of the first original that is shown as it is."""
    tokens_before: int
    tokens_after: int
    """Tokens of the whole request before and after; estimated where the provider has not counted.
    """
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


compaction_codec: Codec[CompactionRecord] = Codec(CompactionRecord)
"""JSON form of the record of a compaction."""


class CompactionStore(Protocol):
    """Keeps the records of finished compactions. A failed compaction has no record."""

    def add(self, record: CompactionRecord, /) -> None:
        """Keep `record`, within the one step that changes the history: the event loop waits for it,
        so be quick.

        Raises `StoreError` if that is not possible. Then the compaction has failed, and the history
        is as it was.
        """
        ...

    def records(self) -> Sequence[CompactionRecord]:
        """All records, oldest first."""
        ...


def shown(originals: Sequence[Message], records: Sequence[CompactionRecord]) -> tuple[Message, ...]:
    """The messages that the model is shown of `originals`: the newest valid record, and everything
    from its `first_kept` on; all originals without a valid record.

    A record is valid if all messages that it covers are in `originals`.
    """
    for record in reversed(records):
        if record.first_kept <= len(originals):
            return (*record.shown, *originals[record.first_kept :])
    return tuple(originals)


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionResult:
    """A compaction that was accepted into the history."""

    messages: tuple[Message, ...]
    """The history after the compaction."""
    record: CompactionRecord | None
    """`None`: no summary was needed, because shortening old messages was enough."""
    tokens_before: int
    tokens_after: int
    """Tokens of the whole request before and after."""
    reported: bool = False
    """Whether `tokens_before` is the provider's count. `tokens_after` is always estimated."""
    summarised_by: str = ""
    """The model by name, `extractive` or `cut`; without a summary, the names of the steps that made
    the history smaller: `prune+media`.
    """
    replayed: int | None = None
    """The index in `messages` of the user's message that is sent once more, with its media named;
    `None`: there is none.
    """
    kept_messages: int = 0
    kept_tokens: int = 0
    reread_tokens: int = 0
    """Estimated: the tokens that the provider must read once without its cache."""
    cost: AskCost = field(default_factory=AskCost)
    """The cost of the summary."""
    model_calls: int = 0
    """The number of requests for the summary, with those that failed or were repeated."""
    warnings: tuple[str, ...] = ()
    """Failures on the way, and what was done instead."""


class InMemoryCompactions:
    """A `CompactionStore` in memory; also a pattern for a store of your own.

        store = monitor.context.InMemoryCompactions()
        monitor.Supervisor(model, compaction=monitor.Compaction(store=store))
        # the run's history, as far as compactions made it:
        shown = monitor.context.shown(run.originals, store.records())

    The numbers in a record count the messages of one run, so each run has its own records:
    `records()` has those of the run that began last, `runs()` those of all runs.
    """

    def __init__(self) -> None:
        self._runs: list[InMemoryCompactions] = []
        self._records: list[CompactionRecord] = []

    def for_run(self) -> InMemoryCompactions:
        """A store for a run that begins now."""
        self._runs.append(InMemoryCompactions())
        return self._runs[-1]

    def add(self, record: CompactionRecord) -> None:
        """Keep `record` for the run that began last. Raises `StoreError` for anything but a
        `CompactionRecord`.
        """
        if not isinstance(record, CompactionRecord):
            raise StoreError(f"add() takes a CompactionRecord, not {record!r:.200}")
        (self._runs[-1] if self._runs else self)._records.append(record)  # noqa: SLF001 - of the same class

    def records(self) -> tuple[CompactionRecord, ...]:
        """The records of the run that began last, oldest first."""
        return tuple((self._runs[-1] if self._runs else self)._records)  # noqa: SLF001 - of the same class

    def runs(self) -> tuple[tuple[CompactionRecord, ...], ...]:
        """The records of each run, in the order in which the runs began."""
        return tuple(run.records() for run in self._runs)


def of_one_run(store: CompactionStore | None) -> CompactionStore | None:
    """`store`, or the part of it for a run that begins now, where it has `for_run`."""
    begin: Callable[[], CompactionStore] | None = getattr(store, "for_run", None)
    if not callable(begin):
        return store
    part = begin()
    if not callable(getattr(part, "add", None)):
        raise ConfigError(f"{type(store).__name__}.for_run() must return a CompactionStore, not {part!r:.200}")
    return part


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionAsked:
    """The facts that a hook receives before a compaction."""

    reason: CompactionReason
    messages: tuple[Message, ...]
    """The messages that will be summarised."""
    previous: str | None
    """The summary that is in force now, if there is one."""
    tokens: int
    """Tokens of the next request before the compaction."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BeforeCompaction:
    """The answer of a hook. A field that is `None` changes nothing."""

    cancel: str | None = None
    """The reason for having no compaction now."""
    context: str | None = None
    """A further hint for the summariser."""
    prompt: str | None = None
    """A prompt in the place of the template's instructions."""
    messages: Sequence[Message] | None = None
    """Messages in the place of `CompactionAsked.messages`. Only the summariser reads them: the
    history stays as it is.
    """
    note: str | None = None
    """A text that stands beside this summary word for word."""

    def __post_init__(self) -> None:
        for name in ("cancel", "context", "prompt", "note"):
            check_kind(f"BeforeCompaction.{name}", getattr(self, name), str, "a text")
        if self.messages is None:
            return
        if not self.messages:
            raise ConfigError("a hook leaves nothing to summarise; to have no compaction, it answers with cancel=")
        for message in self.messages:
            if not isinstance(message, Message):
                raise ConfigError(f"a hook's messages are UserMessage and AssistantMessage, not {message!r}")


Before: TypeAlias = Callable[[CompactionAsked], Awaitable[BeforeCompaction | None] | BeforeCompaction | None]
After: TypeAlias = Callable[[CompactionResult], object]
Autocontinue: TypeAlias = Callable[[CompactionResult], bool | Awaitable[bool]]


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionHook:
    """Functions, or coroutine functions, that are called around a compaction. A function that
    raises changes nothing but adds a warning.

    `before` may add to what the summariser reads, replace it, or cancel the compaction. `after`
    receives the result once it is part of the history. `autocontinue` returns `False` if no message
    shall ask the model to go on. Several hooks are called in order. Of several prompts, or lists of
    messages, the last one counts.
    """

    before: Before | None = None
    after: After | None = None
    autocontinue: Autocontinue | None = None

    def __post_init__(self) -> None:
        if self.before is None and self.after is None and self.autocontinue is None:
            raise ConfigError("a CompactionHook needs before=, after= or autocontinue=")
        for given in (self.before, self.after, self.autocontinue):
            if given is not None and not callable(given):
                raise ConfigError(f"a hook is a function, not {given!r}")


@dataclass(slots=True)
class Wishes:
    """The answers of all hooks together."""

    hints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    warnings: list[str] = field(default_factory=list)


async def ask_before(hooks: Sequence[CompactionHook], asked: CompactionAsked) -> Wishes:
    """Ask the hooks in order. Each hook receives the messages as the earlier hooks left them.
    Raises `CompactionError` for a hook that cancels.
    """
    wishes = Wishes()
    for hook in hooks:
        wanted = await _answer(hook.before, asked, "before the compaction", wishes.warnings)
        if wanted is None:
            continue
        if not isinstance(wanted, BeforeCompaction):
            wishes.warnings.append(f"a hook answers with a BeforeCompaction or None, not {wanted!r}")
            continue
        if wanted.cancel is not None:
            raise CompactionError(CompactionFailure.CANCELLED, f"a hook cancelled it: {wanted.cancel}")
        wishes.hints += filter(None, (wanted.context,))
        wishes.notes += filter(None, (wanted.note,))
        wishes.prompt = wanted.prompt or wishes.prompt
        if wanted.messages is not None:
            wishes.messages = tuple(wanted.messages)
            asked = replace(asked, messages=wishes.messages)
    return wishes


async def tell_after(hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str]) -> None:
    """Tell the hooks of a compaction that is part of the history. Errors of hooks are added to
    `warnings`.
    """
    for hook in hooks:
        await _answer(hook.after, result, "after the compaction", warnings)


async def may_continue(hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str]) -> bool:
    """Whether no hook objects to telling the model to go on. A hook that raises does not object;
    its error is added to `warnings`.
    """
    for hook in hooks:
        if await _answer(hook.autocontinue, result, "that is asked whether to go on", warnings) is False:
            return False
    return True


async def _answer(function: Callable[[Any], Any] | None, about: object, which: str, warnings: list[str]) -> Any:
    """The answer of a hook's `function`; `None` where there is none, or where it raises: then its
    error is added to `warnings`.
    """
    if function is None:
        return None
    try:
        answer = function(about)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001 - the caller's code: a compaction does not fail for it
        warnings.append(f"a hook {which} raised {describe(error)}")
        return None
