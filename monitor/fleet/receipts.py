"""`Receipt`: the short record of one turn that an engine keeps.

Failure answered: an engine's log that holds transcripts grows by megabytes a run, and has a second
truth beside the session.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.checked_words import checked
from monitor._util.text import printable
from monitor.chunks import NO_USAGE, Usage
from monitor.errors import ConfigError, StoreError

VERSION: Final = 1
"""The version of the form of a receipt."""
MAX_BYTES: Final = 2_048
"""A receipt in JSON is never longer."""
MAX_NAME_CHARS: Final = 128
"""The most characters of an id, and of a reason. A longer one is refused, because a part of an id
would name something else.
"""
STUCK_WORKER: Final = "stuck_worker"
"""The reason of a parked run: several workers in a row died in the same turn."""

UNKNOWN_HEAD: Final = "0" * 32
"""Stands in a receipt that is not stored yet: its newest node is known when it is."""

Next: TypeAlias = Literal["turn", "wait", "end", "park"]
"""The next step after a turn: another one, a person's answer, nothing because the run has ended, or
nothing until a person looks at it.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Receipt:
    """The outcome of one turn. Everything else stands in the session.

    Ids and the reason are refused if they are too long. `detail` is cut to what fits.
    """

    session: str
    run: str
    turn: int
    """The number of the step, from 1. A turn that a person's answer divides is two steps."""
    turns: int
    """The turns of the run so far, as the limits count them."""
    head: str
    """The newest node of the session when the turn was stored."""
    next: Next
    reason: str
    """Why this step ended: a `TerminateReason`, or `stuck_worker`."""
    detail: str = ""
    """The reason as a sentence for people."""
    ok: bool = False
    """Whether the run has ended, and ended well."""
    usage: Usage = NO_USAGE
    """The tokens that the run has used so far."""
    cost_usd: float | None = None
    """The cost of the run so far, in US dollars. `None`: its model has no known price."""
    evidence: str = ""
    """A digest of what the detectors have seen."""
    wake_at_s: float | None = None
    """Seconds since 1970: when a run that waits goes on without an answer. `None`: never."""

    def __post_init__(self) -> None:
        for name in ("session", "run", "head", "reason", "evidence"):
            _check_name(name, getattr(self, name))
        if not is_whole(self.turn) or self.turn < 1 or not is_whole(self.turns) or self.turns < 0:
            raise ConfigError(f"a receipt has whole numbers of turns, not {self.turn!r} and {self.turns!r}")
        if any(number is not None and not is_finite(number) for number in (self.cost_usd, self.wake_at_s)):
            raise ConfigError("cost_usd and wake_at_s are finite numbers")

    def to_json(self) -> str:
        """One line of at most 2,048 bytes of ASCII, the same for the same receipt."""
        said = printable(self.detail[:MAX_BYTES])
        while len(line := _line(replace(self, detail=said))) > MAX_BYTES:
            if not said:
                raise ConfigError(f"a receipt has at most {MAX_BYTES} bytes, and this one has {len(line)}")
            over = len(line) - MAX_BYTES
            said = said[: max(0, len(said) - max(1, math.ceil(over / _MOST_BYTES_OF_A_CHAR)))]
        return line

    @classmethod
    def from_json(cls, line: str) -> Receipt:
        """The receipt that `to_json` was called on. Raises `StoreError` for a version that is not
        known, and for anything but a receipt.
        """
        if len(line) > MAX_BYTES:
            raise StoreError(f"this is no receipt: it has {len(line)} characters")
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"this is no receipt: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("usage"), dict):
            raise StoreError("this is no receipt: it is no JSON object with its usage")
        version = data.pop("version", None)
        if type(version) is not int or version != VERSION:
            raise StoreError(
                f"this receipt has the version {version!r}, and this program reads {VERSION}: update agent-monitor"
            )
        return cls._read(data)

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Receipt:
        usage = {**_LATER_COUNTS, **data["usage"]}
        known, numbers = {one.name for one in fields(cls)}, {one.name for one in fields(Usage)}
        if data.keys() != known or usage.keys() != numbers:
            strange = sorted((data.keys() ^ known) | (usage.keys() ^ numbers))
            raise StoreError(f"this is no receipt of version {VERSION}: see {', '.join(strange)}")
        well = type(data["ok"]) is bool and isinstance(data["detail"], str)
        if not well or not all(is_whole(one) for one in usage.values()):
            raise StoreError("this is no receipt: a value has the wrong type")
        try:
            return cls(**{**data, "usage": Usage(**usage)})
        except (ConfigError, TypeError) as error:
            raise StoreError(f"this is no receipt: {error}") from None


_LATER_COUNTS: Final = {"cache_write_tokens": 0, "cache_write_1h_tokens": 0}
"""Counts that the first programs did not know. They are written only where they are not 0, so that
those programs read a receipt without them.
"""
_MOST_BYTES_OF_A_CHAR: Final = 12
"""A character outside of the basic plane is two escapes of six bytes."""


def _line(receipt: Receipt) -> str:
    data = {one.name: getattr(receipt, one.name) for one in fields(receipt)}
    counts = {one.name: getattr(receipt.usage, one.name) for one in fields(Usage)}
    data["usage"] = {name: count for name, count in counts.items() if count or name not in _LATER_COUNTS}
    return json.dumps({"version": VERSION, **data}, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _check_name(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS or not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"{name} is printable ASCII of at most {MAX_NAME_CHARS} characters, not {str(value)[:MAX_NAME_CHARS]!r}"
        )


# --------------------------------------------------------------------------------------------------
# Decides what follows a receipt. It is pure, so it may run inside a deterministic workflow.

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
