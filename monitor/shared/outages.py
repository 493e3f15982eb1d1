"""The protocol of a store of outages, and the store for the runs of one process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Final, NamedTuple, Protocol, TypeVar

from monitor._util.argument_checks import check_kind, check_part, check_seconds
from monitor.errors import StoreError
from monitor.outage import Failure, Outage, OutageRule, Trouble
from monitor.shared.stores import Execute, OneFile
from monitor.verdicts import FleetFinding

T = TypeVar("T")

Change = Callable[[Trouble, float], T]
"""Changes a `Trouble` in place, at a time by the store's clock, and returns what came of it."""


class OutageStore(Protocol):
    """Where the failures of many runs are counted."""

    @property
    def look_s(self) -> float:
        """Seconds that an answer of `known` may be used: another look has its price."""
        ...

    def now(self) -> float:
        """Seconds, by the clock that `change` uses."""
        ...

    async def change(self, subject: str, step: Change[T], rule: OutageRule, /) -> T:
        """Apply `step` to the trouble of `subject`, alone: no other change of it comes between. A
        trouble of which nothing counts any more is forgotten.

        Raises `StoreError` if the store cannot be used.
        """
        ...

    async def known(self) -> Mapping[str, Trouble]:
        """All troubles by their subjects. The caller does not change them."""
        ...

    async def aclose(self) -> None:
        """Close the connection to the store."""
        ...


SUBJECTS_KEPT: Final = 10_000
"""The most things whose failures are counted in one process; the oldest is forgotten."""


class InMemoryOutages:
    """Counts the failures of the runs of one process, also of several event loops."""

    look_s = 0.0

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._troubles: dict[str, Trouble] = {}
        self._lock = threading.Lock()

    async def change(self, subject: str, step: Change[T], rule: OutageRule) -> T:
        with self._lock:
            now = self.now()
            trouble = self._troubles.get(subject) or Trouble()
            answer = step(trouble, now)
            if rule.is_over(trouble, now):
                self._troubles.pop(subject, None)
            else:
                self._troubles[subject] = trouble
                while len(self._troubles) > SUBJECTS_KEPT:
                    del self._troubles[next(iter(self._troubles))]
        return answer

    async def known(self) -> Mapping[str, Trouble]:
        return self._troubles

    async def aclose(self) -> None:
        """Do nothing: the counts stay in this process."""


# --------------------------------------------------------------------------------------------------
# The outages that the runs of many supervisors share.

HOLD_S: Final = 900.0
"""How long one outage may hold a run. A run that must not wait so long has a `Timeout` of its own.
"""
WORKED_KEPT: Final = 10_000
"""At most this many things are remembered to have worked."""


class FailureResult(NamedTuple):
    """The outage that a failure begins or belongs to."""

    finding: FleetFinding | None = None
    """With this failure it is an outage. Each outage has one finding."""
    outage: Outage | None = None
    """The outage that the failure belongs to."""

    @property
    def is_outage(self) -> bool:
        """Whether the failure belongs to an outage."""
        return self.outage is not None


class OutageAnswer(NamedTuple):
    """Says whether a run may use something."""

    outage: FleetFinding | None = None
    """An outage of what the run wants to use."""
    may_go: bool = True
    """True during an outage: the run is its probe."""


class Outages:
    """Finds what fails in many runs, and lets them wait until it works again. One object is given
    to all supervisors of a process: `Supervisor(model, requests=Requests(outages=outages))`.

    - `store`: where the failures are counted; by default in this process. With
      `SQLiteOutages(path)` the processes of one machine count together.
    - `rule`: when failures are an outage, and how often a run tries.
    - `hold_s`: how long one outage may hold a run. The run then goes on as if there were none.
      `None`: runs are never held, and an outage is only reported.
    """

    def __init__(
        self,
        store: OutageStore | None = None,
        *,
        rule: OutageRule | None = None,
        hold_s: float | None = HOLD_S,
    ) -> None:
        if store is not None:
            check_part("store", store, "change")
        check_kind("rule", rule, OutageRule, "a monitor.shared.OutageRule")
        if hold_s is not None:
            check_seconds("hold_s", hold_s)
        self.store: OutageStore = store if store is not None else InMemoryOutages()
        self.rule: OutageRule = rule or OutageRule()
        self.hold_s = hold_s
        self._known: Mapping[str, Trouble] = {}
        self._looked_s: float | None = None
        self._worked: dict[str, None] = {}

    def has_worked(self, subject: str) -> bool:
        """Whether a run of this process has had a success of `subject`."""
        return subject in self._worked

    async def failed(self, failures: Sequence[Failure], run: str) -> FailureResult:
        """Count a failure of `run`, given as the things that it may be a failure of, the widest
        first.

        Raises `StoreError` if the store cannot be used; so do the other methods.
        """
        for failure in failures:
            counted = await self.store.change(failure.subject, partial(self._failed, failure, run), self.rule)
            self._looked_s = None
            if counted.is_outage:  # the narrower things are a part of it
                return counted
        return FailureResult()

    async def succeeded(self, subjects: Sequence[str], run: str, began_s: float) -> list[FleetFinding]:
        """Count a success of `subjects` in `run`, of a call that began at `began_s`. Return the
        outages that this ends.
        """
        for subject in subjects:
            self._worked.pop(subject, None)
            self._worked[subject] = None
        while len(self._worked) > WORKED_KEPT:
            del self._worked[next(iter(self._worked))]
        known, ended = await self._look(), []
        for subject in subjects:
            if subject in known:
                found = await self.store.change(subject, partial(self._succeeded, run, began_s), self.rule)
                self._looked_s = None
                if found is not None:
                    ended.append(found)
        return ended

    async def ask(self, subjects: Sequence[str], run: str) -> OutageAnswer:
        """Whether `run` may use `subjects` now."""
        known, probes = await self._look(), OutageAnswer()
        for subject in subjects:
            outage = trouble.outage if (trouble := known.get(subject)) is not None else None
            if outage is None:
                continue
            if self.rule.waits(outage, run, self.store.now()):  # most looks need not change anything
                return OutageAnswer(outage.finding(), may_go=False)
            asked = await self.store.change(subject, partial(self._asked, run), self.rule)
            self._looked_s = None
            if not asked.may_go:
                return asked
            probes = asked if asked.outage is not None else probes
        return probes

    async def outages(self) -> list[FleetFinding]:
        """All outages that have not ended."""
        self._looked_s = None
        return [one.outage.finding() for one in (await self._look()).values() if one.outage is not None]

    async def aclose(self) -> None:
        """Close the connection to the store."""
        await self.store.aclose()

    def _failed(self, failure: Failure, run: str, trouble: Trouble, now: float) -> FailureResult:
        return FailureResult(self.rule.failed(trouble, failure, run, now), trouble.outage)

    def _succeeded(self, run: str, began_s: float, trouble: Trouble, now: float) -> FleetFinding | None:
        return self.rule.succeeded(trouble, run, began_s, now)

    def _asked(self, run: str, trouble: Trouble, now: float) -> OutageAnswer:
        may_go = self.rule.may_go(trouble, run, now)
        return OutageAnswer(None if trouble.outage is None else trouble.outage.finding(), may_go=may_go)

    async def _look(self) -> Mapping[str, Trouble]:
        """The troubles of the store, as they were `look_s` seconds ago at most."""
        now = self.store.now()
        if self._looked_s is None or not 0 <= now - self._looked_s < self.store.look_s:
            self._known = await self.store.known()
            self._looked_s = now
        return self._known


# --------------------------------------------------------------------------------------------------
# Outages in one SQLite file, for the processes of one machine.

_SCHEMA: Final = """create table if not exists monitor_outages (
    subject text primary key, trouble text not null, is_open boolean not null, changed_s double precision not null)"""


class SQLiteOutages:
    """Counts the failures of the runs of many processes, in the file `path`.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    look_s = 1.0

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        # What a power cut takes is counted again.
        self._file = OneFile(path, (_SCHEMA,), synchronous="normal", error=StoreError, content="outages", clock=clock)
        self.path = self._file.path
        self.now = clock

    async def change(self, subject: str, step: Change[T], rule: OutageRule) -> T:

        def work(execute: Execute, now: float) -> T:
            row = execute("select trouble from monitor_outages where subject = ?", (subject,)).fetchone()
            trouble = Trouble() if row is None else Trouble.from_dict(json.loads(row[0]))
            answer = step(trouble, now)
            execute("delete from monitor_outages where not is_open and changed_s < ?", (now - rule.window_s,))
            if rule.is_over(trouble, now):
                execute("delete from monitor_outages where subject = ?", (subject,))
            else:
                text = json.dumps(trouble.to_dict(), separators=(",", ":"))
                row = subject, text, trouble.outage is not None, trouble.changed_s
                execute("insert or replace into monitor_outages values (?, ?, ?, ?)", row)
            return answer

        return await self._file.transaction(work)

    async def known(self) -> Mapping[str, Trouble]:

        def work(execute: Execute, _: float) -> Mapping[str, Trouble]:
            rows = execute("select subject, trouble from monitor_outages", ()).fetchall()
            return {subject: Trouble.from_dict(json.loads(text)) for subject, text in rows}

        return await self._file.transaction(work)

    async def aclose(self) -> None:
        self._file.close()
