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
from monitor.context.history import History, HistoryEdit
from monitor.context.reduce import difference
from monitor.context.repairs import repair, repair_next
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message, Repair, RepairKind
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
