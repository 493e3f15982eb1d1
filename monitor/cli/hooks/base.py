"""The base of all hooks: a hook knows an agent's settings, and the words of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader

Deed: TypeAlias = Literal["ask", "deny", "stop"]
"""The answer to a loop: a person is asked, the call is refused with the reason, or the agent
is stopped.
"""
DEEDS: Final[tuple[Deed, ...]] = ("ask", "deny", "stop")
TIMEOUT_S: Final = 30
"""How long the agent waits for an answer. A session of 100 MB is read in less."""


class Hook(Protocol):
    """The hook protocol of one agent."""

    agent: ClassVar[str]
    place: ClassVar[str]
    """The file of settings, for people."""
    note: ClassVar[str]
    """The limitation that a user has to know, in a sentence."""
    before: ClassVar[str]
    """The name of the event that the agent sends before a tool call."""

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        """The part that the user adds to the settings, so that the agent asks `command`."""
        ...

    def reader(self) -> TranscriptReader:
        """The reader of the agent's sessions."""
        ...

    def is_tool(self, asked: str, recorded: str) -> bool:
        """Whether the tool that a question calls `asked` is called `recorded` in the session."""
        ...

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        """The answer to `event` in a loop. Empty: this event cannot be answered."""
        ...
