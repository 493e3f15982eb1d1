"""Keeps every request of a run valid for the provider, at a cost that does not grow with the
history.

Failure answered: for one invalid message the provider refuses the whole request, and every later
one of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from monitor.adapters.provider_forms import to_form
from monitor.chunks import ToolCall
from monitor.context.compaction.pinned import recognised
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.triggers import Hysteresis, Marks
from monitor.context.history import History, HistoryEdit
from monitor.context.reduce import difference
from monitor.context.repairs import repair, repair_next
from monitor.context.tokens import ContextMeter, TokenCount
from monitor.context.window import Window, WindowSource
from monitor.errors import PRESSING, CompactionFailure, CompactionReason, ConfigError
from monitor.messages import AssistantMessage, Message, Repair, RepairKind, UserMessage
from monitor.wires.fields import Form, RawMessage
from monitor.wires.read import validate


def form_of(model: object) -> Form | None:
    """The form in which `model` sends a history; `None`: the model names no form. Raises
    `ConfigError` for an unknown form.
    """
    form: Any = getattr(model, "form", None)
    if form is not None and form not in get_args(Form):
        raise ConfigError(f"model: its form is {form!r}; known: {', '.join(get_args(Form))}")
    checked: Form | None = form
    return checked


@dataclass(slots=True, frozen=True)
class InitialHistory:
    """A given history after its repair."""

    messages: tuple[Message, ...]
    instructions: str | None
    """The run's instructions: its own, else the system messages at the head of the history."""
    repairs: tuple[Repair, ...]


_HISTORY = "history=[monitor.UserMessage((monitor.messages.Text('Hello'),)), ...]"
"""A history, as a line to type."""


def take_in(history: object, form: Form | None, instructions: str | None) -> InitialHistory:
    """`history`, of messages and raw messages in any state, repaired for `form`. `instructions`:
    the run's own, which replace those of the history.

    Raises `ConfigError` for anything but a list of messages, `AdapterError` for a message with an
    unknown part.
    """
    if not isinstance(history, Sequence) or isinstance(history, str):
        raise ConfigError(f"history takes a list of messages, not {history!r}: write {_HISTORY}")
    for message in history:
        if not isinstance(message, Message | RawMessage):
            raise ConfigError(
                f"history takes messages (UserMessage, AssistantMessage, RawMessage), not {message!r}: write {_HISTORY}"
            )
    messages, report = repair(tuple(history), form=form)
    repairs = report.repairs
    if instructions is None:
        instructions = report.instructions
    # a run of the same supervisor has the same instructions
    elif report.instructions and not report.instructions.startswith(instructions.rstrip()):
        dropped = Repair(
            RepairKind.PART_DROPPED, 0, "the system message at the head: the run has instructions of its own"
        )
        repairs = (dropped, *repairs)
    return InitialHistory(recognised(messages), instructions, repairs)


class ValidHistory:
    """Keeps the history of one run valid. `given`: the repairs of the messages at its beginning.

    An appended message is checked alone. The whole history is checked only before the first call
    and after edits, and then also in the form of the model. `tell` is called with each repair once,
    and with the problems that remain.
    """

    def __init__(
        self,
        history: History,
        form: Form | None,
        given: tuple[Repair, ...],
        tell: Callable[[tuple[Repair, ...], tuple[str, ...]], None],
    ) -> None:
        self._history = history
        self._form: Form | None = form
        self._untold = given
        self._tell = tell
        self._ids = _call_ids(history.messages)
        self._looked_at: int | None = None
        """The number of edits that the history had at its last full check."""

    def begin(self, given: InitialHistory) -> None:
        """Begin an empty history with the messages of `given`."""
        for message in given.messages:
            self._history.append(message)
        self._untold = given.repairs
        self._ids = _call_ids(given.messages)

    def append(self, message: Message) -> None:
        """Append the newest message, repaired for the provider. An empty message is dropped."""
        sendable, repairs = repair_next(message, len(self._history), self._ids, form=self._form)
        if sendable is not None:
            self._history.append(sendable)
        if repairs:
            self._tell(repairs, ())

    def before_call(self) -> None:
        """Check the history before it is sent, if it was edited since the last full check."""
        if self._looked_at == len(self._history.edits):
            return
        given, self._untold = self._untold, ()
        repairs = given + (self._put_in_order() if self._looked_at is not None else ())
        self._looked_at = len(self._history.edits)
        problems = self._problems()
        if repairs or problems:
            self._tell(repairs, problems)

    def _put_in_order(self) -> tuple[Repair, ...]:
        history = self._history
        messages, report = repair(history.messages, form=self._form)
        if messages is not history.messages:
            history.commit(HistoryEdit(history.version, *difference(history.messages, messages), "repair"))
        self._ids = _call_ids(messages)
        return report.repairs

    def _problems(self) -> tuple[str, ...]:
        if self._form is None:
            return ()
        try:
            found = validate(self._form, to_form(self._form, self._history.messages))
        except ConfigError:
            return ()  # media that the provider does not accept: the model raises an error for the caller
        return tuple(f"{one.rule} in {self._form} {one.index}: {one.message}" for one in found)


def _call_ids(messages: Iterable[Message]) -> set[str]:
    return {
        part.id
        for one in messages
        if isinstance(one, AssistantMessage)
        for part in one.content
        if isinstance(part, ToolCall)
    }


# --------------------------------------------------------------------------------------------------
# When the history of one run is compacted: before a request, or while an answer is worked on.


class CompactionTrigger(Hysteresis):
    """Measures a run's history against the watermarks of its model, and remembers what came of the
    compactions before.
    """

    def __init__(self, preset: Preset, history: History, meter: ContextMeter, window: Window) -> None:
        super().__init__(Marks(window, preset.headroom, preset.low_water))
        self._background = preset.background
        self._history = history
        self._meter = meter
        self.count = TokenCount(0, 0, 0)
        """The newest count of the next request."""
        self.read = 0
        """The number of originals that the model has answered to."""
        self.pressed: CompactionReason | None = None
        """Why the next request must not be sent as it stands, whatever is counted."""
        self.hurried = False
        """The run has its last turn: a compaction at the mark is not worth its time."""
        self._nothing_at = 0
        """The number of originals when there was nothing to compact at the mark."""
        self._waits_for_reading = False
        """There was nothing because of results that the model had not read."""

    def recount(self) -> None:
        """Count the tokens of the next request anew."""
        self.count = self._meter.count()

    def before_request(self) -> CompactionReason | None:
        """Why the next request is to be made smaller before it is sent; `None`: it need not be."""
        if self.marks.high is None:  # only a refusal tells: there is nothing to count for
            return self.pressed
        self._look_for_users()
        self.recount()
        return self.pressed or self.due(self.count.tokens)

    def due(self, tokens: int) -> CompactionReason | None:
        """Why a request of `tokens` is to be made smaller."""
        reason = super().due(tokens)
        return None if reason is CompactionReason.HIGH_WATER and self.hurried else reason

    def beside(self, tokens: int) -> bool:
        """Whether a compaction begins while the tools run. `tokens`: what the provider has counted;
        0: it has not.
        """
        high_water = CompactionReason.HIGH_WATER
        if not tokens or not self._background or self.due(tokens) is not high_water:
            return False
        count = self._meter.count()  # what the provider counted may have been made smaller while it answered
        if self.due(count.tokens) is not high_water:
            return False
        self.count = count
        return True

    def waits_for(self, reason: CompactionReason) -> bool:
        """Whether the run waits for a compaction for this reason."""
        return reason is not CompactionReason.HIGH_WATER or not self._background

    def may_ask_model(self, reason: CompactionReason) -> bool:
        """Whether a model is asked for a compaction: not in a run's last turn, and with the breaker
        open now and then only.
        """
        return not self.hurried and (reason not in PRESSING or self.asks_model)

    @property
    def surely_too_long(self) -> str | None:
        """Why the request that was last asked about will be refused, whatever the estimate is off
        by; `None`: it may well be taken.
        """
        window, count = self.marks.window, self.count
        if window.tokens is None or window.source is WindowSource.DEFAULT or count.low <= window.tokens:
            return None
        return (
            f"the next request has about {count.tokens:,} tokens, at least {count.low:,}, and the window has"
            f" {window.tokens:,}"
        )

    # --- what has happened

    def answered(self) -> None:
        """The model has answered to the history as it stands: none of its results is unread."""
        self.read = self._originals()
        if self._waits_for_reading:
            self.changed()

    def failed(
        self, failure: CompactionFailure, reason: CompactionReason, tokens: int, *, before_read: bool = False
    ) -> None:
        """See `Hysteresis`. `before_read`: it may succeed when the model has read the newest
        results.
        """
        super().failed(failure, reason, tokens)
        if failure is CompactionFailure.NOTHING_TO_COMPACT and reason is CompactionReason.HIGH_WATER:
            self._nothing_at, self._waits_for_reading = self._originals(), before_read

    def _originals(self) -> int:
        return self._history.originals_before(len(self._history))

    def _look_for_users(self) -> None:
        """A new message of the user may be where the history can be cut: then it is worth another
        look.
        """
        if self._nothing:
            messages = self._history.messages
            new = self._originals() - self._nothing_at
            if any(isinstance(message, UserMessage) for message in messages[max(0, len(messages) - new) :]):
                self.changed()
