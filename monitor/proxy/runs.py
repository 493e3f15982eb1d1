"""The runs behind the proxy, for people: the newest runs, and counts of all."""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias

import anyio

from monitor.errors import StoreError, TerminateReason
from monitor.outage import Failure, OutageRule, Trouble
from monitor.shared.shared_rows import RowStore, SharedRow
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


# --------------------------------------------------------------------------------------------------
# The other proxies behind the same balancer: their runs, and the operator's words for all.
#
# Each proxy writes its runs into a store of rows, and reads what the others have written. The word
# of an operator is a row too: the proxy that got it writes it, and the one whose request waits
# obeys.

LOOK_S: Final = 1.0
"""Seconds between two looks into the store, so an operator's word takes this long at most."""
BEAT_S: Final = 5.0
"""Seconds after which a proxy writes again that it is there."""
SILENT_S: Final = 20.0
"""Seconds after which a proxy that has written nothing counts as gone."""
KEEP_S: Final = 86_400.0
"""Seconds for which the store has a run that nobody asks for any more."""
MOST_ROWS: Final = 10_000
"""Rows of all proxies in the store, of which each has less than 10 kB."""
_REST_S: Final = 10.0
"""The longest time between two tries while the store does not answer, in seconds."""


class Peers:
    """Shares the runs of one proxy with the others, and theirs with it."""

    def __init__(self, rows: RowStore, room: str, runs: ProxiedRuns, *, most: int) -> None:
        """`room`: what the proxies that belong together have in common. `most`: runs of others that
        are known at once.
        """
        self.id: str = uuid.uuid4().hex
        """Random, so it is another one at each start of the proxy."""
        self.away = ""
        """Why the store does not answer. Empty: it does."""
        self.obey: Callable[[str, HoldAnswer, str], object] = lambda _id, _said, _why: None
        """Called with a run, with what an operator has said elsewhere, and with the reason."""
        self._rows = rows
        self._room = room
        self._runs = runs
        self._most = most
        self._known: OrderedDict[str, dict[str, Mapping[str, Any]]] = OrderedDict()
        """The runs of others by their id, and there by proxy."""
        self._heard_s: dict[str, float] = {}
        """When each proxy has written last, by the clock of the store."""
        self._now_s = self._beat_s = 0.0
        self._after: int | None = None
        """The version up to which the rows are known. `None`: none was read yet."""
        self._alone = anyio.Lock()

    async def follow(self) -> None:
        """Write and read until this is cancelled."""
        rest_s = LOOK_S
        while True:
            await self.look()
            rest_s = min(_REST_S, 2 * rest_s) if self.away else LOOK_S
            await anyio.sleep(rest_s)

    async def look(self) -> None:
        """Write what is new here, and read what is new elsewhere. Without the store each proxy goes
        on by itself, and `away` says so.
        """
        try:
            await self._swap({})
        except StoreError:
            return  # the next look writes it

    async def say(self, run: str, said: HoldAnswer, why: str) -> None:
        """Tell the other proxies the operator's word. Raises `StoreError`."""
        await self._swap({f"word/{run}": {"proxy": self.id, "run": run, "said": said, "why": why}})

    async def aclose(self) -> None:
        """Write the last state of all runs, and close the store."""
        await self.look()
        await self._rows.aclose()

    # ------------------------------------------------------------------ what the others do

    @property
    def proxies(self) -> int:
        """The proxies that are there, this one included."""
        return 1 + sum(self._is_there(proxy) for proxy in self._heard_s)

    def all_runs(self) -> list[Mapping[str, Any]]:
        """The runs of all proxies as JSON data, newest first."""
        ids = dict.fromkeys([run.id for run in self._runs] + [*self._known])
        runs = [run for id in ids if (run := self.run(id)) is not None]
        return sorted(runs, key=lambda run: run["last_s"], reverse=True)

    def run(self, id: str) -> Mapping[str, Any] | None:
        """One run as JSON data, with what all proxies know of it. `None`: none knows it."""
        own = self._runs.get(id)
        parts: list[Mapping[str, Any]] = [] if own is None else [own.to_dict()]
        for proxy, part in self._known.get(id, {}).items():
            if part["active"] and not self._is_there(proxy):
                part = {**part, "active": 0, "state": "lost"}  # noqa: PLW2901 - it will never say how it ended
            parts.append(part)
        return merged(parts) if parts else None

    def goes_on(self, id: str, *, held: bool) -> bool:
        """Whether another proxy answers a request of the run. `held`: whether one waits there."""
        return any(
            part["state"] == "held" if held else part["active"]
            for proxy, part in self._known.get(id, {}).items()
            if self._is_there(proxy)
        )

    def allowed(self, id: str) -> set[str]:
        """The loops of the run that operators have allowed at other proxies."""
        return {loop for part in self._known.get(id, {}).values() for loop in part["allowed"]}

    def _is_there(self, proxy: str) -> bool:
        return self._now_s - self._heard_s.get(proxy, 0.0) <= SILENT_S

    # ------------------------------------------------------------------ rows

    async def _swap(self, more: Mapping[str, Mapping[str, Any]]) -> None:
        async with self._alone:
            changed = self._runs.take_changed()
            written: dict[str, Mapping[str, Any]] = {
                f"run/{self.id}/{run.id}": {
                    "proxy": self.id,
                    "run": run.id,
                    "part": {**run.to_dict(), "allowed": sorted(run.allowed)},
                }
                for run in changed
            }
            if written or self._now_s - self._beat_s >= BEAT_S or self._after is None:
                written[f"proxy/{self.id}"] = {"proxy": self.id}
            texts = {name: json.dumps(value) for name, value in {**written, **more}.items()}
            try:
                news = await self._rows.swap(self._room, texts, after=self._after or 0, keep_s=KEEP_S, most=MOST_ROWS)
            except BaseException as error:  # the request that looks may be cancelled
                self._runs.touched.update((run.id, None) for run in changed)
                if isinstance(error, StoreError):
                    self._away(str(error))
                raise
            self._away("")
            there = self.proxies
            self._now_s = news.now_s
            if texts:
                self._beat_s = news.now_s
            is_first, self._after = self._after is None, news.version
            heard = [self._hear(row, is_news=not is_first) for row in news.rows]
            self._forget()
            if any(heard) or self.proxies != there:
                self._runs.changed()

    def _hear(self, row: SharedRow, *, is_news: bool) -> bool:
        """Take in a row. `is_news`: it was written since the last look; an older one may be of
        yesterday. Returns whether it says something of other proxies.
        """
        try:
            value: Any = json.loads(row.value)
            proxy: str = value["proxy"]
            if proxy == self.id:
                return False
            self._heard_s[proxy] = max(row.at_s, self._heard_s.get(proxy, 0.0))
            kind = row.name.partition("/")[0]
            if kind == "run":
                self._note(proxy, value["run"], value["part"], is_news=is_news)
            elif kind == "word" and is_news and value["said"] in {"go", "stop"}:
                self.obey(value["run"], value["said"], value["why"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False  # another version of this program has written it
        return True

    def _note(self, proxy: str, id: str, part: Mapping[str, Any], *, is_news: bool) -> None:
        merged([part])  # raises for what is no run
        self._known.setdefault(id, {})[proxy] = part
        self._known.move_to_end(id)
        if is_news:
            reason = (part["last_stop"] or {}).get("reason")
            self._runs.note_outage(part["model"], id, part["state"], reason, is_watched=not part["unwatched"])

    def _forget(self) -> None:
        """Forget the oldest runs, and proxies that have been gone for long."""
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        for proxy in [one for one, at_s in self._heard_s.items() if self._now_s - at_s > KEEP_S]:
            del self._heard_s[proxy]

    def _away(self, why: str) -> None:
        if self.away != why:
            self.away = why
            self._runs.changed()
