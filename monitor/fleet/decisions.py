"""Decides what follows a receipt. It is pure, so it may run inside a deterministic workflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from monitor.fleet.receipts import Receipt

MAX_LOSSES: Final = 3
"""When this number of workers has died in one turn without any progress, the run is parked: the
next would probably die as well.
"""


@dataclass(slots=True, frozen=True)
class NextTurn:
    """The engine makes this turn next."""

    turn: int


@dataclass(slots=True, frozen=True)
class Wait:
    """Wait outside of a step until somebody has answered, then make this turn."""

    turn: int
    wake_at_s: float | None
    """Seconds since 1970: when to go on without an answer. `None`: never."""


@dataclass(slots=True, frozen=True)
class End:
    """The run has ended: nothing follows."""

    ok: bool
    reason: str


@dataclass(slots=True, frozen=True)
class Park:
    """The run has not ended, and is not tried again until a person asks for this turn."""

    turn: int
    reason: str


Decision: TypeAlias = NextTurn | Wait | End | Park
"""The next step of an engine after a receipt."""


def decide(receipt: Receipt) -> Decision:
    """The next step of the engine after `receipt`."""
    following = receipt.turn + 1
    match receipt.next:
        case "turn":
            return NextTurn(following)
        case "wait":
            return Wait(following, receipt.wake_at_s)
        case "end":
            return End(receipt.ok, receipt.reason)
        case "park":
            return Park(following, receipt.reason)
