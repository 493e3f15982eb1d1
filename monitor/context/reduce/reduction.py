"""Makes a history smaller without a model: several reducers give one edit, with its saving and its
cost.

Failure answered: a reduction that saves 5,000 tokens but changes an early message, so that the
provider reads 130,000 cached tokens anew. So all reducers of a pass make one edit, which breaks the
cached prefix once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import is_
from typing import Protocol, TypeAlias, TypeVar

from monitor._util.argument_checks import is_whole
from monitor.context.history import History, HistoryEdit
from monitor.context.measure.tokens import message_tokens
from monitor.context.turns import head_of
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message

T = TypeVar("T")
Messages: TypeAlias = tuple[Message, ...]
MessageTokens: TypeAlias = Callable[[Message], int]
TextTokens: TypeAlias = Callable[[str], int]


class Reducer(Protocol):
    """One way of making a history smaller."""

    @property
    def name(self) -> str:
        """The kind of the edit in one word: `prune`."""
        ...

    def reduce(self, messages: Messages, /, *, head: int = 0) -> Messages:
        """`messages` made smaller, or the same object if there is nothing to do.

        An unchanged message stays the same object, and the first `head` messages stay unchanged.
        Calls keep their results, messages their order, and nothing gets larger.
        """
        ...


@dataclass(slots=True, frozen=True)
class Reduction:
    """An edit that makes the history smaller. Nothing is changed until the history commits it."""

    edit: HistoryEdit
    saved_tokens: int
    """Estimate: how much smaller every later request is."""
    reread_tokens: int
    """Estimate: the tokens after `breaks_at`, which are read once without the provider's cache."""
    changed: int
    """Number of messages that were shortened or removed."""

    @property
    def breaks_at(self) -> int:
        """Index of the first message that differs from what the provider has cached. A branch
        beside the originals begins there too.
        """
        return self.edit.start


def reduced(messages: Messages, *reducers: Reducer, head: int = 0) -> Messages:
    """`messages` after all `reducers`, in order; the same object if nothing was changed. For a
    request that is about to be sent.
    """
    for reducer in reducers:
        messages = reducer.reduce(messages, head=head)
    return messages


def propose_edit(
    history: History,
    *reducers: Reducer,
    head: int | None = None,
    at_least_tokens: int = 1,
    tokens: MessageTokens = message_tokens,
) -> Reduction | None:
    """The edit that applies all `reducers` to `history`. `None`: it would save less than
    `at_least_tokens`.

    `head`: how many messages at the beginning stay unchanged; by default those of the newest
    compaction. `tokens` measures a message. Linear in the number of messages, and in the size of
    those from the first changed one on. Raises `ConfigError` for a head that the history does not
    have.
    """
    return propose_for(
        history.messages,
        history.version,
        *reducers,
        head=head_of(history) if head is None else head,
        at_least_tokens=at_least_tokens,
        tokens=tokens,
    )


def propose_for(
    messages: Messages,
    version: int,
    *reducers: Reducer,
    head: int,
    at_least_tokens: int = 1,
    tokens: MessageTokens = message_tokens,
) -> Reduction | None:
    """Propose like `propose_edit`, for messages at a `version`; also in another thread."""
    if not is_whole(head) or not 0 <= head <= len(messages):
        raise ConfigError(f"head is {head!r}; the history has {len(messages)} messages")
    new, names = messages, []
    for reducer in reducers:
        less = reducer.reduce(new, head=head)
        if less is not new:
            names.append(reducer.name)
        new = less
    if new is messages:
        return None
    start, stop, replacement = difference(messages, new)
    size = once(tokens)
    saved = sum(map(size, messages[start:stop])) - sum(map(size, replacement))
    if saved < max(at_least_tokens, 1):
        return None
    kind = "+".join(dict.fromkeys(names))
    remaining = set(map(id, replacement))
    changed = sum(id(message) not in remaining for message in messages[start:stop])
    note = (
        f"{kind}: about {saved} tokens less in {changed} of {len(messages)} messages; the cached prefix ends before"
        f" message {start}"
    )
    return Reduction(
        HistoryEdit(version, start, stop, replacement, kind, note), saved, sum(map(size, new[start:])), changed
    )


def changed_by(
    change: Callable[[Message], Message], messages: Messages, start: int = 0, stop: int | None = None
) -> Messages:
    """`messages` with a `change` of those from `start` to `stop` (exclusive); the same object if no
    message changes.
    """
    stop = len(messages) if stop is None else stop
    new = (*messages[:start], *map(change, messages[start:stop]), *messages[stop:])
    return messages if all(map(is_, new, messages)) else new


def with_texts(message: AssistantMessage, texts: Iterable[str]) -> AssistantMessage:
    """`message` with other texts of its results; the same object if they are the same objects."""
    results = tuple(
        result if text is result.text else replace(result, text=text)
        for result, text in zip(message.results, texts, strict=True)
    )
    return message if all(map(is_, results, message.results)) else replace(message, results=results)


def once(of: Callable[[Message], T]) -> Callable[[Message], T]:
    """`of`, called once for every object."""
    known: dict[int, tuple[Message, T]] = {}

    def remembered(message: Message) -> T:
        found = known.get(id(message))
        if found is None:  # the message is kept, so that its id stays its own
            found = known[id(message)] = (message, of(message))
        return found[1]

    return remembered


def difference(old: Messages, new: Messages) -> tuple[int, int, Messages]:
    """The range (end exclusive, in `old`) in which the two do not have the same objects, and what
    stands there in `new`.
    """
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    same = 0
    while same < shorter - start and old[-1 - same] is new[-1 - same]:
        same += 1
    return start, len(old) - same, new[start : len(new) - same]
