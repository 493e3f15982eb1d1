"""The messages of people and programs to one run: which of them wait, and whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from monitor._util.hashing import identity
from monitor.messages import SteerMessage, SteerState


@dataclass(slots=True)
class SteerQueue:
    """The messages to one run, and the state of each.

    - Every `steer` that waits enters the history before the next model call, in the order of their
      acceptance. A `follow_up` waits until the run would end; then the oldest one enters.
    - A run that would end by its goal goes on while messages wait. A limit, a loop, an error or an
      abort ends it all the same, and they are returned.
    - A person's word is progress, unless the person has said the same before.
    """

    waiting: tuple[SteerMessage, ...] = ()
    """The messages that wait, in the order of their acceptance."""
    states: dict[str, SteerState] = field(default_factory=dict)
    """The state of each message that was accepted, by its id."""
    said: set[str] = field(default_factory=set)
    """The hashes of what people have said."""
    run_would_end: bool = False
    """The goal is reached, and the run goes on only for the messages that wait."""

    def accept(self, message: SteerMessage) -> bool:
        """Let `message` wait. False: its id is known."""
        if message.id in self.states:
            return False
        self.states[message.id] = "accepted"
        self.waiting += (message,)
        return True

    def due(self) -> tuple[SteerMessage, ...]:
        """The messages that enter the history now. They wait no longer."""
        due = tuple(one for one in self.waiting if one.kind == "steer")
        if not due and self.run_would_end:
            due = self.waiting[:1]
        if due:
            self.run_would_end = False
            self.leave(due, "delivered")
        return due

    def give_back(self) -> tuple[SteerMessage, ...]:
        """The messages that the end of the run returns to their senders."""
        left = self.waiting
        self.leave(left, "returned")
        return left

    def is_progress(self, message: SteerMessage) -> bool:
        """Whether a delivered message is a person's, and says what none before has said."""
        hashed = identity(" ".join(message.text.split()))
        if message.data or hashed in self.said:
            return False
        self.said.add(hashed)
        return True

    def leave(self, messages: Sequence[SteerMessage], state: SteerState) -> None:
        """The messages do not wait any more."""
        ids = {one.id for one in messages}
        self.waiting = tuple(one for one in self.waiting if one.id not in ids)
        self.states |= dict.fromkeys(ids, state)

    def copy(self) -> SteerQueue:
        """Another queue in the same state."""
        return replace(self, states=dict(self.states), said=set(self.said))
