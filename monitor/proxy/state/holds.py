"""Runs that wait for the word of an operator."""

from __future__ import annotations

from typing import Self

import anyio

from monitor.proxy.state.runs import HoldAnswer


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
