"""The budgets of keys and runs, in a store that all proxies share.

The name of a budget is `proxy/<key>`, or `proxy/<key>/<run>` if runs have a limit: so one limit may
be set for all, one for each key, and one for each run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from monitor._util.argument_checks import check_number, check_seconds, check_word
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.conditions.condition import check_condition
from monitor.detectors import Detector, default_detectors
from monitor.errors import BudgetUnreachable, ConfigError
from monitor.events import Event
from monitor.guard.options import clock_of
from monitor.guard.streams.wait import Clock
from monitor.proxy.keys import VirtualKeys
from monitor.proxy.upstreams import SILENCE_S
from monitor.runs.budget_hold import BudgetHold
from monitor.shared import BudgetStore, SharedBudget

ROOT: Final = "proxy"
WAIT_S: Final = 20.0
"""Seconds that a request waits for its budget: a restart of the store is over by then, and no
client has given up.
"""
KEEP_S: Final = 30 * 86_400.0
"""Seconds after its last request for which the spending of a run is kept apart from that of its
key. A conversation may rest over a holiday.
"""


@dataclass(slots=True)
class Accounts:
    """Opens an account for each request."""

    store: BudgetStore
    root: str = ROOT
    key_tokens: int | None = None
    """The limit of a key that has none in the store yet. `None`: no limit."""
    run_tokens: int | None = None
    """The limit of each run. `None`: no limit."""
    own_tokens: Callable[[str], int | None] = lambda _: None
    """The limit of a key that has one of its own, by its name."""
    slice_tokens: int = 2_000
    wait_s: float = WAIT_S
    """How long a request may wait for its budget."""

    def __post_init__(self) -> None:
        self.check("key_tokens", self.key_tokens)
        self.check("run_tokens", self.run_tokens)

    def check(self, name: str, tokens: int | None) -> None:
        """Raises `ConfigError` for a limit by which no request could be paid."""
        if tokens is not None and tokens < self.slice_tokens:
            raise ConfigError(
                f"{name} is {tokens}, but a request holds slice_tokens, {self.slice_tokens}, for its answer: none"
                " could be paid"
            )

    def open(
        self, key: str, run: str, *, price: Price | None, clock: Clock, emit: Callable[[Event], None], began: float
    ) -> BudgetHold:
        """The part of the budget that one request may use."""
        return BudgetHold(
            self._shared(key, run),
            run_id=uuid.uuid4().hex,
            price=price,
            clock=clock,
            emit=emit,
            at=lambda: clock.now() - began,
        )

    def _shared(self, key: str, run: str) -> SharedBudget:
        name = f"{self.root}/{key}"
        own = self.own_tokens(key)
        most = self.key_tokens if own is None else own
        limits = {} if most is None else {name: most}
        if self.run_tokens is not None:
            name = f"{name}/{run}"
            limits[name] = self.run_tokens
        return SharedBudget(
            self.store,
            name,
            slice_tokens=self.slice_tokens,
            wait_s=self.wait_s,
            limits=limits,
            keep_s=None if self.run_tokens is None else KEEP_S,
        )

    async def set_tokens(self, key: str, tokens: int) -> None:
        """Set the limit of a key in tokens. Its limit in US dollars stays."""
        name = f"{self.root}/{key}"
        usd = next((one.usd for one in await self.store.states(name) if one.name == name), None)
        await self.store.set_limit(name, tokens=tokens, usd=usd)

    async def aclose(self) -> None:
        """Close the store that holds the budgets."""
        try:
            await self.store.aclose()
        except BudgetUnreachable:
            return


def check_keys(keys: VirtualKeys | None, accounts: Accounts | None) -> None:
    """Raises `ConfigError` for limits of keys that cannot be kept."""
    for key in keys.all if keys is not None else ():
        if key.tokens is not None and accounts is None:
            raise ConfigError(f"the key {key.name!r} has tokens, which needs budget=, a store such as SQLiteBudgets")
        if accounts is not None:
            accounts.check(f"tokens of the key {key.name!r}", key.tokens)


# --------------------------------------------------------------------------------------------------
# The options of a proxy, which hold for all requests.

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
