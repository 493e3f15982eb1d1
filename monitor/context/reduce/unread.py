"""Results that were not sent to the model yet, and their shares of the room if there is too little
of it.

Failure answered: four results of one turn that together fill the window. A summary that takes their
place leaves the model without the answer to its own calls, so it calls again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

from monitor.context.measure.tokens import message_tokens, size_of_text
from monitor.context.reduce.prune import PruneArguments
from monitor.context.reduce.reduction import Messages, Reducer, with_texts
from monitor.context.reduce.truncate import ADVICE, clip
from monitor.messages import AssistantMessage, Message

NAME: Final = "share"
"""The kind of an edit that makes unread results share the room."""
LEAST_CHARS: Final = 80
"""A shorter piece of a result is useless: a sentence then says that the result was left out."""
LONGEST_ARGUMENT_CHARS: Final = 200
"""Longest argument of a call in a turn that does not fit even without the text of its results."""
MOST_NAMED_CALLS: Final = 10
_NOTE_CHARS: Final = 120
"""About the length of `clip`'s note."""


def left_out(chars: int) -> str:
    """The text in the place of a result for which there is no room."""
    return f"[all {chars} characters of this result were left out, because there is no room for them; {ADVICE}]"


def names_of_calls(message: Message) -> str:
    """The names of the tools whose results `message` has, for the model; of many the first ones."""
    names = [result.name for result in message.results] if isinstance(message, AssistantMessage) else []
    more = f" and {len(names) - MOST_NAMED_CALLS} more" if len(names) > MOST_NAMED_CALLS else ""
    return ", ".join(names[:MOST_NAMED_CALLS]) + more


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much of `room` each text gets: a short one its full size, the others equal shares."""
    given, left = [0] * len(sizes), max(0, room)
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    for rank, place in enumerate(smallest_first):
        given[place] = min(sizes[place], left // (len(sizes) - rank))
        left -= given[place]
    return given


def shared(message: AssistantMessage, tokens: int, *, original: Message | None = None) -> AssistantMessage:
    """`message` with its results clipped, so that the whole message has about `tokens`, estimated;
    the same object if it has no more.

    `original`: the original message, if its results were clipped before. A result for which there
    is no room becomes a sentence that says so. If that is still too much, long arguments of the
    calls are cut to their beginning.
    """
    if message_tokens(message) <= tokens:
        return message
    whole = {result.id: result.text for result in original.results} if isinstance(original, AssistantMessage) else {}
    texts = [whole.get(result.id, result.text) for result in message.results]
    sizes = [size_of_text(text).tokens for text in texts]
    rest = message_tokens(with_texts(message, [""] * len(texts)))
    given = shares(sizes, tokens - rest)
    less = with_texts(message, map(_fitted, texts, sizes, given))
    if message_tokens(less) <= tokens:
        return less
    (pruned,) = PruneArguments(tools=None, max_chars=LONGEST_ARGUMENT_CHARS, protect_messages=0).reduce((less,))
    return pruned if isinstance(pruned, AssistantMessage) else less


def _fitted(text: str, size: int, tokens: int) -> str:
    """The part of `text`, which has `size` tokens, that fits into `tokens`."""
    if size <= tokens:
        return text
    chars = len(text) * tokens // size - _NOTE_CHARS
    while chars >= LEAST_CHARS:
        shown = clip(text, chars, ending=None, advice=ADVICE)
        have = size_of_text(shown).tokens
        if have <= tokens:
            return shown
        chars = min(chars * tokens // have, chars - LEAST_CHARS // 2)
    note = left_out(len(text))
    return note if len(note) < len(text) else text


@dataclass(slots=True, frozen=True)
class Sparing:
    """A reducer that does not change messages that were not sent yet: the messages from `start` on.
    `None`: all messages may change.

    If there are no messages from `start` on any more, nothing is reduced.
    """

    reducer: Reducer
    start: int | None

    @property
    def name(self) -> str:
        """The name of the reducer inside."""
        return self.reducer.name

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        less = self.reducer.reduce(messages, head=head)
        if less is messages or self.start is None:
            return less
        unread = messages[self.start :]
        behind = less[len(less) - len(unread) :]
        if len(behind) < len(unread) or not all(map(_same_calls, behind, unread)):
            return messages
        less = (*less[: len(less) - len(unread)], *unread)
        return messages if len(less) == len(messages) and all(map(is_, less, messages)) else less


def _same_calls(one: Message, other: Message) -> bool:
    return type(one) is type(other) and _answered(one) == _answered(other)


def _answered(message: Message) -> list[str]:
    return [result.id for result in message.results] if isinstance(message, AssistantMessage) else []
