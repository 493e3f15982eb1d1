"""The one owner of a conversation. To change it, propose an edit against the version that you have
seen.

Failures answered: a late summary that overwrites newer messages; two reductions at once, one of
which undoes the other; originals that are lost once something has been shortened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message, UserMessage


@dataclass(slots=True, frozen=True)
class HistoryEdit:
    """The messages from `start` to `stop` (exclusive) of the history at `base_version` become
    `replacement`.

    Everything before `start` stays as the provider has cached it. Nothing changes until a `History`
    commits the edit.
    """

    base_version: int
    start: int
    stop: int
    replacement: tuple[Message, ...]
    kind: str
    """The origin of the edit, in one word: `prune`, `compaction`."""
    note: str = ""
    """A sentence for people: what the edit does, and why."""

    def applied_to(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` with the edit applied: those of `base_version`, and perhaps later ones behind
        them.
        """
        return (*messages[: self.start], *self.replacement, *messages[self.stop :])


@dataclass(slots=True, frozen=True)
class CommittedEdit:
    """An edit that is part of the history now."""

    edit: HistoryEdit
    version: int
    """The version of the history with the edit."""
    start: int
    """Where the replacement stands: `edit.start`, moved by the edits committed before it."""
    replaced: tuple[Message, ...]
    """The messages that were replaced."""

    @property
    def stop(self) -> int:
        """The end (exclusive) of the replaced messages, in the history before the edit."""
        return self.start + len(self.replaced)


@dataclass(slots=True, frozen=True)
class Stale:
    """An edit that was refused, because the messages that it replaces have changed since it was
    made.
    """

    edit: HistoryEdit
    by: CommittedEdit
    """The edit that changed the messages meanwhile."""


class History:
    """Messages in order, to which messages are added and edits are committed.

    Every change makes a new `version`, counted from 0. An edit changes what the model receives. The
    original messages stay readable: `originals`, `behind`.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._origins: list[tuple[int, int]] = []
        """For each message, the originals that it stands for: from and to (exclusive)."""
        self._originals: list[Message] = []
        self._lengths = [0]
        """For each version, how many messages there were."""
        self._edits: list[CommittedEdit] = []
        self._shown: tuple[Message, ...] | None = ()
        for message in messages:
            self._add(message)
        self._lengths = [len(self._messages)]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the model receives. The same object until something changes."""
        if self._shown is None:
            self._shown = tuple(self._messages)
        return self._shown

    @property
    def version(self) -> int:
        """The number of changes of the history so far."""
        return len(self._lengths) - 1

    @property
    def edits(self) -> tuple[CommittedEdit, ...]:
        """Every edit that was committed, in order."""
        return tuple(self._edits)

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: Message) -> None:
        """Append `message`. Raises `ConfigError` if it is not a message, and for a result without
        its call.
        """
        self._add(message)
        self._lengths.append(len(self._messages))

    @property
    def originals(self) -> tuple[Message, ...]:
        """Every message as it was appended, unchanged by later edits."""
        return tuple(self._originals)

    def behind(self, start: int, stop: int) -> tuple[Message, ...]:
        """The originals of the present messages from `start` to `stop` (exclusive).

        If an edit replaced messages by the same number, each stands for its own original; else all
        stand for all.
        """
        origins = self._origins[start:stop]
        if not origins:
            return ()
        return tuple(self._originals[min(first for first, _ in origins) : max(last for _, last in origins)])

    def originals_before(self, index: int) -> int:
        """For how many originals the first `index` present messages stand."""
        return self._origins[index - 1][1] if index else 0

    def commit(self, edit: HistoryEdit) -> CommittedEdit | Stale:
        """Apply `edit` where its messages stand by now, or refuse it if another edit has changed
        one of them.

        Messages appended since stay behind it. Raises `ConfigError` for an edit of messages that
        never existed.
        """
        placed = self._placed(edit)
        if isinstance(placed, CommittedEdit):
            return Stale(edit, placed)
        return self._apply(edit, *placed)

    def refuses(self, edit: HistoryEdit) -> Stale | None:
        """The refusal that `commit` would return. `None`: `commit` would apply the edit. Raises
        what `commit` raises.
        """
        placed = self._placed(edit)
        return Stale(edit, placed) if isinstance(placed, CommittedEdit) else None

    def _placed(self, edit: HistoryEdit) -> tuple[int, int] | CommittedEdit:
        """Where the messages of the edit stand by now; or the edit that has changed them."""
        if not 0 <= edit.base_version <= self.version:
            raise ConfigError(f"the edit is of version {edit.base_version}; the history is at version {self.version}")
        length = self._lengths[edit.base_version]
        if not 0 <= edit.start <= edit.stop <= length:
            raise ConfigError(
                f"the edit is of messages {edit.start} to {edit.stop}; version {edit.base_version} has {length}"
            )
        for message in edit.replacement:
            _check(message)
        start, stop = edit.start, edit.stop
        for earlier in self._edits[bisect_right(self._edits, edit.base_version, key=attrgetter("version")) :]:
            if earlier.start >= stop:
                continue
            if earlier.stop > start:
                return earlier
            moved = len(earlier.edit.replacement) - len(earlier.replaced)
            start, stop = start + moved, stop + moved
        return start, stop

    def _apply(self, edit: HistoryEdit, start: int, stop: int) -> CommittedEdit:
        replaced = tuple(self._messages[start:stop])
        if len(replaced) != len(edit.replacement):
            origin = self._origin(start, stop)
            self._origins[start:stop] = [origin] * len(edit.replacement)
        self._messages[start:stop] = edit.replacement
        self._shown = None
        self._lengths.append(len(self._messages))
        committed = CommittedEdit(edit, self.version, start, replaced)
        self._edits.append(committed)
        return committed

    def _origin(self, start: int, stop: int) -> tuple[int, int]:
        if start < stop:
            return min(first for first, _ in self._origins[start:stop]), max(
                last for _, last in self._origins[start:stop]
            )
        here = self._origins[start - 1][1] if start else 0
        return here, here

    def _add(self, message: Message) -> None:
        _check(message)
        self._origins.append((len(self._originals), len(self._originals) + 1))
        self._originals.append(message)
        self._messages.append(message)
        self._shown = None


def _check(message: object) -> None:
    if not isinstance(message, UserMessage | AssistantMessage):
        raise ConfigError(
            f"a history holds UserMessage and AssistantMessage, not {type(message).__name__}; "
            "monitor.context.repair(monitor.context.read_history(form, history)) makes them of a provider's messages"
        )
    if isinstance(message, AssistantMessage) and message.results:
        calls = Counter(part.id for part in message.content if isinstance(part, ToolCall))
        orphans = Counter(result.id for result in message.results) - calls
        if orphans:
            raise ConfigError(
                f"the message has a result without its call: {min(orphans)!r}; `repair` takes such histories"
            )


# --- Where user turns begin, and where the conversation begins.
#
# A user turn is a user message with everything up to the next one. The messages that a compaction
# or the program put before the conversation (a summary, rules, files) begin no turn: they are the
# *head*, counted in messages.

COMPACTION: Final = "compaction"
"""The kind of an edit that replaces messages by a summary."""


def head_of(history: History) -> int:
    """How many messages at the beginning belong to the newest compaction, or stand before it."""
    head = 0
    for done in history.edits:
        stop = done.start + len(done.edit.replacement)
        if done.edit.kind == COMPACTION:
            head = stop
        elif done.stop <= head:
            head += stop - done.stop
        else:
            head = min(head, done.start)
    return head


def user_turns(messages: Sequence[Message], *, head: int = 0) -> list[range]:
    """The indices of each user turn after the first `head` messages, oldest first.

    Messages after the head without a user message are the rest of a turn whose beginning was
    summarised. They count as a turn.
    """
    starts = [
        index for index in range(head, len(messages)) if index == head or isinstance(messages[index], UserMessage)
    ]
    return [range(start, stop) for start, stop in pairwise([*starts, len(messages)])]


def newest_turns(messages: Sequence[Message], turns: int, *, head: int = 0) -> int:
    """Where the newest `turns` user turns begin; the number of messages for none."""
    index = len(messages)
    while turns > 0 and index > head:
        index -= 1
        if index == head or isinstance(messages[index], UserMessage):
            turns -= 1
    return index


def unread_from(messages: Sequence[Message], *, head: int = 0) -> int | None:
    """The index of the newest turn, if its results are unread: the model has said nothing after
    them. `None`: the model has answered to all results.

    Only the messages decide: after results that the model has read stands its answer.
    """
    for index in range(len(messages) - 1, head - 1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            return index if message.results else None
    return None
