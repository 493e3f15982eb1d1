"""The other proxies behind the same balancer: their runs, and the operator's words for all.

Each proxy writes its runs into a store of rows, and reads what the others have written. The word of
an operator is a row too: the proxy that got it writes it, and the one whose request waits obeys.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from monitor.errors import StoreError
from monitor.proxy.state.runs import HoldAnswer, ProxiedRuns, merged
from monitor.shared.rows import RowStore, SharedRow

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
