"""The options of a proxy, which hold for all requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from monitor._util.argument_checks import check_number, check_seconds, check_word
from monitor.conditions import Condition
from monitor.conditions.condition import check_condition
from monitor.detectors import Detector, default_detectors
from monitor.errors import ConfigError
from monitor.harness.checks import clock_of
from monitor.harness.streams.clock import Clock
from monitor.proxy.transport.upstreams import SILENCE_S
from monitor.usage import Price

OnLoop: TypeAlias = Literal["stop", "error", "hold", "observe"]
"""The action on a loop.

- `stop`: the answer ends in its own format, as if the model had finished.
- `error`: it ends with an error of its format, so the client's SDK raises.
- `hold`: a run that loops over its turns waits for an operator. Text that loops is stopped.
- `observe`: it is only shown and counted.
"""

Unwatched: TypeAlias = Literal["relay", "pay", "refuse"]
"""The way of what cannot be judged: an unknown path, a packed or too long request, an answer that
cannot be read.

- `relay`: it passes, and spends from no budget.
- `pay`: it passes, and four bytes there or back count as one token of the key's budget.
- `refuse`: it does not pass. A request without a body that only looks passes nevertheless.
"""

StopAs: TypeAlias = Literal["text", "error", "silent"]
"""The end of an answer that the proxy stops.

- `text`: one sentence is its last text, and it ends as if the model had finished.
- `error`: it ends with an error of its format, so the client's SDK raises.
- `silent`: it ends as if the model had finished, and only a comment says why.
"""

MOST_BODY: Final = 32 * 1024 * 1024
MOST_IN_FLIGHT: Final = 256 * 1024 * 1024
"""Bytes of requests and answers that are held at once."""
MOST_KEYLESS: Final = 100
"""Requests without a key that are answered at once."""
ARRIVAL_S: Final = 60.0
"""Seconds that a request may take to arrive: 32 MB come in this time at 4.5 Mbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """The options of `Proxy`, which documents them."""

    stop_when: Condition | None = None
    detectors: Callable[[], Sequence[Detector]] = field(default=default_detectors)
    on_loop: OnLoop = "stop"
    hold_s: float = 300.0
    most_held: int = 1_000
    keep_alive_s: float = 10.0
    nudge: bool = False
    unwatched: Unwatched = "relay"
    stop_as: StopAs = "text"
    holds_calls: bool = True
    prices: Mapping[str, Price] | Price | None = None
    most_body: int = MOST_BODY
    most_in_flight: int = MOST_IN_FLIGHT
    most_keyless: int = MOST_KEYLESS
    arrival_s: float = ARRIVAL_S
    silence_s: float = SILENCE_S
    patience_s: float = 120.0
    most_runs: int = 1_000
    clock: Clock = field(default_factory=lambda: clock_of(None))

    def __post_init__(self) -> None:
        check_condition("stop_when", self.stop_when, "monitor.MaxTurns(30)")
        check_word("on_loop", self.on_loop, OnLoop)
        check_word("unwatched", self.unwatched, Unwatched)
        check_word("stop_as", self.stop_as, StopAs)
        if not callable(self.detectors):
            raise ConfigError("detectors is a function that makes new detectors, such as monitor.default_detectors")
        for name in ("hold_s", "keep_alive_s", "silence_s", "patience_s", "arrival_s"):
            check_seconds(name, getattr(self, name))
        for name in ("most_body", "most_in_flight", "most_keyless", "most_held", "most_runs"):
            check_number(name, getattr(self, name), 1)
