"""What was done to a history, so that nothing is changed without a word. Part of the vocabulary: an event tells of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RepairKind(StrEnum):
    """What was done to a history."""

    RESULT_MOVED = "result_moved"
    """It stood elsewhere, and stands behind its call now."""
    RESULT_ADDED = "result_added"
    """The call had none: an error says so."""
    RESULT_REPLACED = "result_replaced"
    """A real result came after such an error."""
    RESULT_ORPHANED = "result_orphaned"
    """It answered no call, and was dropped."""
    RESULT_REPEATED = "result_repeated"
    """The call had been answered: the second answer was dropped."""
    CALL_DROPPED = "call_dropped"
    """Nothing to call, or nothing to call it with, or of an interrupted turn."""
    ID_REWRITTEN = "id_rewritten"
    """It was blank, used before, or none that the provider takes. Of the call and of its result."""
    NAME_REWRITTEN = "name_rewritten"
    """The provider takes no such name of a tool."""
    ARGUMENTS_READ = "arguments_read"
    """They were JSON in a string, or there were none where the call was answered all the same."""
    MESSAGE_DROPPED = "message_dropped"
    """It said nothing, or nothing of it was left."""
    PART_DROPPED = "part_dropped"
    """It has no form in which it could be sent."""
    SYSTEM_MOVED = "system_moved"
    """A system message in the middle: the user says it now."""
    USER_ADDED = "user_added"
    """The history began with the model."""


@dataclass(slots=True, frozen=True)
class Repair:
    """One thing that was done."""

    kind: RepairKind
    index: int
    """Of the message, as it was given."""
    note: str
    """For people: which call, which part."""


@dataclass(slots=True, frozen=True)
class RepairReport:
    """All that was done. False if nothing was."""

    repairs: tuple[Repair, ...] = ()
    instructions: str | None = None
    """The system messages at the head, which are no part of a neutral history."""

    def __bool__(self) -> bool:
        return bool(self.repairs)

    @property
    def counts(self) -> Mapping[RepairKind, int]:
        """How often each was done."""
        return Counter(one.kind for one in self.repairs)
