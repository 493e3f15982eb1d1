"""The facts that stand beside every summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.compaction.records import CompactionDetails
from monitor.errors import ConfigError


@dataclass(slots=True, frozen=True, kw_only=True)
class PinnedFacts:
    """Facts that no summary may lose. Raises `ConfigError` for a negative count, and for
    a `left_out` without user messages.
    """

    user_messages: tuple[str, ...] = ()
    """Everything that a person has said, oldest first."""
    left_out: int = 0
    """The number of user messages after the first that had no room at all."""
    emitted: Mapping[str, str] = field(default_factory=dict)
    """The declared outputs that the model has given, by name, as JSON text."""
    earlier_outputs: Mapping[str, str] = field(default_factory=dict)
    """Outputs of earlier runs of the conversation, the newest last."""
    outputs_left_out: int = 0
    """The number of older `earlier_outputs` that had no room."""
    outstanding: tuple[str, ...] = ()
    """Outputs that the model still has to give: `name`, or `name: what it is`."""
    plan: str | None = None
    """The plan as the model reads it."""
    rules: str | None = None
    """The operator's rules, notes of the project."""
    identifiers: tuple[str, ...] = ()
    """Names to be used literally, newest first: names that were said, or found and then used."""
    listed: tuple[str, ...] = ()
    """Names from results that have not been used yet, newest first."""
    details: CompactionDetails = field(default_factory=CompactionDetails)
    notes: tuple[str, ...] = ()
    """Texts that hooks have added."""

    def __post_init__(self) -> None:
        if self.left_out < 0 or (self.left_out and not self.user_messages):
            raise ConfigError(
                f"left_out is {self.left_out} with {len(self.user_messages)} user messages; the first one always stays"
            )
        if self.outputs_left_out < 0:
            raise ConfigError(f"outputs_left_out is {self.outputs_left_out}; it is a count")
