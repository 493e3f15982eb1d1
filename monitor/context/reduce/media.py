"""Replaces old images, documents and sounds by their names. Failure answered: ten screenshots that
are sent with every request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from monitor._util.argument_checks import check_number
from monitor.context.reduce.reduction import Messages, changed_by
from monitor.context.turns import newest_turns
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage


def placeholder(media: Media) -> Text:
    """The text in the place of media that is not shown, in the words of opencode:
    `[Attached image/png: chart.png]`.
    """
    return Text(f"[Attached {media.mime_type}: {media.name or 'file'}]")


def has_media(message: Message) -> bool:
    """Whether `message` has media, results of tools included."""
    if isinstance(message, UserMessage):
        return any(isinstance(part, Media) for part in message.content)
    return any(result.media for result in message.results)


def without_media(message: Message) -> Message:
    """`message` with its media replaced by their names; the same object if it has none. The text of
    a result already names the result's media.
    """
    if not has_media(message):
        return message
    if isinstance(message, AssistantMessage):
        return replace(
            message, results=tuple(replace(result, media=()) if result.media else result for result in message.results)
        )
    shown = (placeholder(part) if isinstance(part, Media) else part for part in message.content)
    return replace(message, content=tuple(shown))


@dataclass(slots=True, frozen=True)
class DropMedia:
    """Media of old user turns are named instead of shown. The newest turns stay as they are: the
    cached prefix breaks once a turn at most.

    `DropMedia(0)` leaves none, which is what a summariser reads.
    """

    name = "media"

    keep_turns: int = 4
    """The running turn, and three before it as in OpenClaw."""

    def __post_init__(self) -> None:
        check_number("keep_turns", self.keep_turns, 0)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(without_media, messages, head, newest_turns(messages, self.keep_turns, head=head))
