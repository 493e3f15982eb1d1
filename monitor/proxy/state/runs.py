"""The runs behind the proxy, for people: the newest runs, and counts of all."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias

import anyio

from monitor.errors import TerminateReason
from monitor.outage import Failure, OutageRule, Trouble
from monitor.verdicts import Detection, FleetFinding, Stop

# --------------------------------------------------------------------------------------------------
# Histograms of what passes the proxy, as Prometheus has them: counts below fixed bounds.


@dataclass(slots=True)
class Histogram:
    """How many values were at most each bound."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; a last one without an end is implied."""
    total: float = 0.0
    """The sum of the values."""
    counts: list[int] = field(init=False)
    """The number of values in each part, the endless one last."""

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Note a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""From a fast model's first byte to a slow one's."""
ADDED_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20)
"""From a short history to the longest wait for a budget."""
BYTES: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)


def histograms() -> dict[str, Histogram]:
    """An empty histogram for each metric that has one."""
    return {
        "first_byte": Histogram(SECONDS),
        "added": Histogram(ADDED_SECONDS),
        "stopped": Histogram(BYTES),
    }


# --------------------------------------------------------------------------------------------------
# Models that loop in most runs behind the proxy: one line for all of those runs.
#
# A model that loops in one run is the trouble of that run. If it loops in most runs at once, that
# is the trouble of the model, and one line says so.

MODELS_KEPT: Final = 200
"""Models whose runs are counted: those that were asked last. Clients choose the names."""


class ModelOutages:
    """The outages of the models behind one proxy. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._rule = OutageRule()
        self._troubles: OrderedDict[str, Trouble] = OrderedDict()

    def looped(self, model: str, run: str, now: float) -> bool:
        """Note that `model` has looped in `run`. True: with this run it is an outage."""
        failure = Failure(model, f"model {model}", "loop", "loop: the model repeats itself", by_chance=True)
        return self._rule.failed(self._of(model), failure, run, now) is not None

    def worked(self, model: str, run: str, now: float) -> None:
        """Note that an answer of `model` in `run` has come to its end."""
        if model in self._troubles:
            trouble = self._of(model)
            self._rule.succeeded(trouble, run, now, now)
            if self._rule.is_over(trouble, now):
                del self._troubles[model]

    def going_on(self, now: float) -> list[FleetFinding]:
        """The outages that have not ended, of models that are still asked."""
        since = now - self._rule.window_s
        return [
            one.outage.finding() for one in self._troubles.values() if one.outage is not None and one.changed_s >= since
        ]

    def _of(self, model: str) -> Trouble:
        trouble = self._troubles.setdefault(model, Trouble())
        self._troubles.move_to_end(model)
        if len(self._troubles) > MODELS_KEPT:
            self._troubles.popitem(last=False)
        return trouble


State: TypeAlias = Literal["running", "held", "ended", "stopped", "failed", "left"]
"""`ended`: the upstream has closed its answer. `stopped`: the proxy has. `left`: the client has."""
HoldAnswer: TypeAlias = Literal["go", "stop"]
"""The answer of an operator to a request that waits."""

EXCERPT_CHARS: Final = 400
TASK_CHARS: Final = 160
MODEL_CHARS: Final = 200
"""The longest name of a model that is kept. Clients choose it."""
MOST_ALLOWED: Final = 64
"""Loops of one run that an operator may allow."""


@dataclass(slots=True)
class ProxiedRun:
    """The requests of one run. Times are seconds since 1970."""

    id: str
    key: str
    """The name of the client's key."""
    name: str
    """The client's name for the run, or the hash of how it began."""
    wire: str = ""
    model: str = ""
    state: State = "running"
    last_stop: Mapping[str, Any] | None = None
    """Why an answer was last stopped or held, or failed: reason, detail, source, and the excerpt of
    what was repeated.
    """
    began_s: float = 0.0
    last_s: float = 0.0
    requests: int = 0
    turns: int = 0
    """The model's turns in the history of the last request, and this one."""
    answer_bytes: int = 0
    tokens: int = 0
    estimated: bool = False
    task: str = ""
    """The beginning of the user's last task, with secrets masked."""
    cost_usd: float | None = 0.0
    """US dollars of its answers. `None`: some of them have no known price."""
    stops: int = 0
    active: int = 0
    """Requests that are being answered."""
    held: int = 0
    """Requests that wait for an operator."""
    unwatched: str = ""
    """Why a part of the run was not watched."""
    allowed: set[str] = field(default_factory=set[str])
    """Loops that an operator has allowed."""
    aborts: list[Callable[[str], None]] = field(default_factory=list[Callable[[str], None]])
    """Stop the answers that go on now."""

    def end(self, state: State, stop: Stop | None = None, *, hide: Callable[[str], str] = str) -> None:
        """An answer is over, or held. `hide` masks secrets."""
        self.state = state
        if stop is None:
            return
        self.stops += state == "stopped"
        found = stop.evidence.evidence.excerpt if isinstance(stop.evidence, Detection) else ""
        self.last_stop = {
            "reason": stop.reason.value,
            "detail": hide(stop.detail)[:EXCERPT_CHARS],
            "source": stop.source,
            "excerpt": hide(found)[:EXCERPT_CHARS],
        }

    def paid(self, cost_usd: float | None) -> None:
        """Add the cost of an answer. `None`: it is not known."""
        self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd

    def allow(self, detection: Detection) -> None:
        """Note that an operator allows this loop."""
        if len(self.allowed) < MOST_ALLOWED:
            self.allowed.add(signature(detection))

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON data, for the pages."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_SHOWN} | {
            "state": "held" if self.held else self.state,
            "began_s": round(self.began_s, 3),
            "last_s": round(self.last_s, 3),
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd, 6),
        }


_NOT_SHOWN: Final = frozenset({"aborts", "allowed", "held"})


def signature(detection: Detection) -> str:
    """The part of a detection that is equal if two are the same loop."""
    return f"{detection.detector}:{detection.kind}:{detection.evidence.xxhash}"


class ProxiedRuns:
    """The newest runs, by their id, and counts of all."""

    def __init__(self, most: int, wall: Callable[[], float]) -> None:
        """`most`: how many are kept. `wall`: seconds since 1970."""
        self._most = most
        self._wall = wall
        self._runs: OrderedDict[str, ProxiedRun] = OrderedDict()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Counts by the name of a metric and its label."""
        self._outages = ModelOutages()
        self.histograms = histograms()
        """The histograms by the name of their metric."""
        self.close_s = 0.0
        """Seconds that closing upstreams took together, from the decision on."""
        self.touched: dict[str, None] = {}
        """The ids of the runs that have changed since `take_changed`."""
        self.version = 0
        """A number that grows with every change."""
        self._news = anyio.Event()
        self.closed_down = False
        """The server shuts down, so live pages end."""

    def begin(self, key: str, name: str, wire: str, model: str) -> ProxiedRun:
        """Note that a request of a run has come."""
        now, id = self._wall(), f"{key}/{name}"
        run = self._runs.get(id)
        if run is None:
            run = self._runs[id] = ProxiedRun(id, key, name, began_s=now)
            self._make_room()
        self._runs.move_to_end(id)
        run.wire, run.model, run.last_s = wire, model[:MODEL_CHARS], now
        run.requests += 1
        run.active += 1
        run.state = "running"
        self.changed(run)
        return run

    def leave(self, run: ProxiedRun) -> None:
        """Note that a request of the run is over."""
        run.active -= 1
        run.last_s = self._wall()
        reason = None if run.last_stop is None else run.last_stop["reason"]
        self.note_outage(run.model, run.id, run.state, reason, is_watched=not run.unwatched)
        self.changed(run)

    def count(self, metric: str, label: str = "", number: int = 1) -> None:
        """Add one to the count of a metric."""
        self.counts[metric, label] += number

    def closed(self, after_s: float) -> None:
        """An upstream was closed before its end."""
        self.close_s += after_s
        self.count("closed")

    def get(self, id: str) -> ProxiedRun | None:
        """The run with this id, if it is known."""
        return self._runs.get(id)

    def __iter__(self) -> Iterator[ProxiedRun]:
        """The runs, with the newest one first."""
        return reversed(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def states(self) -> Mapping[str, int]:
        """How many runs are in each state."""
        return Counter(run.state for run in self._runs.values())

    def outages(self) -> list[FleetFinding]:
        """The models that loop in most of their runs now."""
        return self._outages.going_on(self._wall())

    def changed(self, run: ProxiedRun | None = None) -> None:
        """Tell the readers of the pages of a change. `run`: the one that has changed here."""
        if run is not None:
            self.touched[run.id] = None
        self.version += 1
        self._news.set()
        self._news = anyio.Event()

    def take_changed(self) -> list[ProxiedRun]:
        """The runs that have changed since the last call."""
        ids, self.touched = self.touched, {}
        return [self._runs[id] for id in ids if id in self._runs]

    async def news(self, version: int) -> None:
        """Return when something is newer than `version`."""
        while self.version == version and not self.closed_down:
            await self._news.wait()

    def close(self) -> None:
        """Tell those who look that nothing more comes."""
        self.closed_down = True
        self.changed()

    def note_outage(self, model: str, id: str, state: str, reason: str | None, *, is_watched: bool) -> None:
        """Count how an answer of the run `id` has ended, as one of its model. `reason`: why one was
        last stopped.
        """
        now = self._wall()
        if state == "ended" and is_watched:
            self._outages.worked(model, id, now)
        elif state == "stopped" and reason == TerminateReason.LOOP_DETECTED and self._outages.looped(model, id, now):
            self.count("outages")

    def _make_room(self) -> None:
        """Forget the oldest run that is over."""
        if len(self._runs) <= self._most:
            return
        oldest = next((run for run in self._runs.values() if not run.active), None)
        if oldest is not None:
            del self._runs[oldest.id]
            self.touched.pop(oldest.id, None)


# --------------------------------------------------------------------------------------------------
# Runs that wait for the word of an operator.


class HeldRuns:
    """Where the runs wait, and where the operator answers."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiting]] = {}

    def __len__(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._waiting.values()))

    def wait(self, run: str) -> _Waiting:
        """A request of the run waits from now on. Use it in `with`."""
        return _Waiting(run, self._waiting)

    def answer(self, run: str, said: HoldAnswer) -> bool:
        """The operator's word for all requests of the run that wait. False: none does."""
        waiting = self._waiting.get(run, [])
        for one in waiting:
            one.said = said
            one.event.set()
        return bool(waiting)


class _Waiting:
    """One request that waits for an answer."""

    def __init__(self, run: str, all_waiting: dict[str, list[_Waiting]]) -> None:
        self.event = anyio.Event()
        self.said: HoldAnswer | None = None
        """The operator's answer. `None`: nobody has answered."""
        self._run = run
        self._all = all_waiting

    def __enter__(self) -> Self:
        self._all.setdefault(self._run, []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        waiting = self._all[self._run]
        waiting.remove(self)
        if not waiting:
            del self._all[self._run]

    async def for_at_most(self, seconds: float) -> HoldAnswer | None:
        """The operator's word. `None`: there is none within this time."""
        with anyio.move_on_after(seconds):
            await self.event.wait()
        return self.said


# --------------------------------------------------------------------------------------------------
# One run of which several proxies have answered requests, as one.

_SUMS: Final = ("requests", "answer_bytes", "tokens", "stops", "active")
_NEWEST: Final = ("last_stop", "task", "unwatched")
"""Fields of which the newest one that is not empty counts."""


def merged(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose `parts` each proxy gives as `ProxiedRun.to_dict()`. Counts are added. All else
    is that of the proxy that was asked last. Raises `KeyError` or `TypeError` for what is no run.
    """
    newest_first = sorted(parts, key=lambda part: part["last_s"], reverse=True)
    newest = newest_first[0]
    costs = [part["cost_usd"] for part in parts]
    states = [part["state"] for part in newest_first]
    return {
        **{name: value for name, value in newest.items() if name != "allowed"},
        **{name: sum(part[name] for part in parts) for name in _SUMS},
        "state": next((one for one in ("held", "running") if one in states), states[0]),
        "began_s": min(part["began_s"] for part in parts),
        "cost_usd": None if None in costs else sum(costs),
        "estimated": any(part["estimated"] for part in parts),
        **{name: next((part[name] for part in newest_first if part[name]), newest[name]) for name in _NEWEST},
    }
