"""`Run`: one run of a supervisor.

`RunCore` decides, `TurnLoop` performs, `RunContext` keeps the context inside the window. `Run`
provides the block, the iteration, the abort and the pause. The rules of `Run` and `TurnLoop`:

1. Tasks of the run end with the call that started them, and none runs while the caller's code does:
   the run goes on only when its next event is requested. So there is no scope, timeout or task
   group around a `yield`. There are three exceptions: a judge's question, a summary of the history,
   and the tools of a run whose events are read one by one. They run beside the run, and end with it
   at the latest.
2. The run's deadlines and its abort cover everything that can take time (a stream, the tools, a
   delay), and leave it cleanly.
3. A turn goes into the history once, as a whole: a message with the result of every call, even
   after an interruption.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Literal, NoReturn, Self, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel

from monitor._util.argument_checks import check_kind, is_whole
from monitor._util.hashing import canonical_json, fingerprint
from monitor.chunks import Usage
from monitor.context.compaction.hooks import CompactionResult
from monitor.errors import RESUMABLE, ConfigError, SessionUnavailable, StoreError, TerminateReason, describe
from monitor.events import Envelope, Event
from monitor.guard.options import ending_by
from monitor.guard.streams.wait import current_task
from monitor.messages import Message, SteerMessage, SteerReceipt, UserMessage
from monitor.outcome import Outcome, OutputT
from monitor.runs.context.run_context import interrupted
from monitor.runs.pausing import Pausing
from monitor.runs.run_parts import RunParts, RunRequest
from monitor.runs.run_session import RunSession
from monitor.runs.steering import message_of
from monitor.runs.supervisor_options import RunOptions
from monitor.sessions.closed_runs import return_late
from monitor.sessions.postgres.postgres_session import in_use
from monitor.tools.base import CallingRun
from monitor.verdicts import Stop

RunPhase: TypeAlias = Literal["idle", "running", "finished", "error"]


class Run(CallingRun, Generic[OutputT]):
    """One run of a supervisor: an async iterator of its events, the last of which is
    `RunTerminated`.
    """

    def __init__(self, supervisor: RunOptions[OutputT], asked: RunRequest) -> None:
        if asked.resumed is None and not isinstance(asked.task, str | UserMessage):
            raise ConfigError(
                f"the task is a text or a UserMessage, not {asked.task!r}: write supervisor.run('What to do',"
                " history=[...])"
            )
        self.id: Final = asked.resumed.id if asked.resumed is not None else asked.run_id or uuid.uuid4().hex
        """Names the run in its ledger and its events of calls."""
        self._supervisor = supervisor
        self._caller = asked.caller
        self.parts: RunParts = RunParts(supervisor, asked, run=self, run_id=self.id)
        self._now = self.parts.clock.now
        self._core = self.parts.core
        self._delivery = self.parts.delivery
        self._history = self.parts.history
        self._context = self.parts.context
        self._loop = self.parts.loop
        self._phase: RunPhase = "idle"
        self._thread = threading.get_ident()
        self._driver: Pausing | None = None
        self._at_work = False  # a task is inside `_driver`
        self._seen_out: anyio.Event | None = None
        self._outcome: Outcome[OutputT] | None = None

    @property
    def phase(self) -> RunPhase:
        """`idle` before the block is entered, `running` in it, then `finished`, or `error` if an
        exception ended it.
        """
        return self._phase

    @property
    def outcome(self) -> Outcome[OutputT]:
        """How the run ended. Before the end, reading it raises `ConfigError`."""
        if self._outcome is None:
            raise ConfigError(
                "the outcome is known when the run has ended: read run.outcome behind its 'async with' block"
            )
        return self._outcome

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the run so far, as the model is shown them."""
        return self._history.messages

    @property
    def originals(self) -> tuple[Message, ...]:
        """Every original message of the run, also those that a summary has replaced."""
        return self._history.originals

    @property
    def stale_compactions(self) -> tuple[CompactionResult, ...]:
        """Compactions that were not applied, because the messages that they cover had changed
        meanwhile.
        """
        return self._context.stale

    async def compact(self) -> CompactionResult:
        """Make the history smaller now, or wait for the compaction that is under way. May be called
        in the caller's block, by a tool, or by another task.

        Raises `CompactionError` if there is nothing to compact, if the compaction fails, or if the
        run ends before it is done.
        """
        if self._outcome is not None and not self._outcome.ok:
            raise interrupted(self._outcome.detail)
        if self._phase != "running":
            raise ConfigError(f"this run is {self._phase}: compact it while it runs")
        result: CompactionResult | None = None

        async def work() -> None:
            nonlocal result
            result = await self._context.compact()

        if self._at_work:
            await work()
        else:  # meanwhile only this wait checks the run's deadlines and its abort
            await self.parts.work.in_block(work)
        if result is None:
            self.parts.work.is_over()
            raise interrupted(self._core.stop.detail if self._core.stop is not None else None)
        return result

    def abort(self, why: str = "aborted") -> None:
        """End the run now: what the run waits for is interrupted, and its connection is closed. May
        be called from any task, thread or signal handler.
        """
        check_kind("why", why, str, "a text")
        self._core.abort(why)
        for run in tuple(self.parts.called):
            run.abort(why)
        self.parts.wake()

    async def steer(
        self, text: str, *, now: bool = False, by: str = "", data: bool = False, id: str | None = None
    ) -> SteerReceipt:
        """Say something to the model while the run goes on: before its next call, behind the
        results of the calls that are being made. With a session, returns when the message is
        stored.

        `now`: end the stream of the present turn, and keep what the model has said. Calls that it
        has made in that stream are not carried out. `by`: who says it. `data`: the text is the
        result of a program, such as a task in the background; the model reads it quoted. `id`: a
        message that is sent again with the same id is accepted once.

        A run whose goal is reached goes on while messages wait. If it ends otherwise, they are in
        `Outcome.returned`, and a message after the end has the state `returned`. A nested run gets
        no messages. Call this in the event loop's thread; a tool that runs in another thread writes
        `anyio.from_thread.run(run.steer, text)`. Raises `ConfigError` before the run is entered.
        """
        return await self._said(message_of(text, now=now, by=by, data=data, id=id))

    async def follow_up(self, text: str, *, by: str = "", data: bool = False, id: str | None = None) -> SteerReceipt:
        """Say something to the model where the run would end, so that it goes on. Of several, one
        at a time. See `steer`.
        """
        return await self._said(message_of(text, kind="follow_up", by=by, data=data, id=id))

    async def _said(self, message: SteerMessage) -> SteerReceipt:
        if self._phase == "idle":
            raise ConfigError(
                "the run has not begun: write async with supervisor.stream(task) as run: await run.steer('...')"
            )
        return await self._loop.steering.take(message)

    def hand_over(self, *, at_turn: int | None = None) -> None:
        """Leave the run at the next boundary between two turns, or when it has made `at_turn`
        turns. The outcome is then `worker_stopping`, which is no end: with a session, any process
        may go on with `Supervisor.resume`.

        A run that ends by itself before that has its own reason. Last words that a limit allows
        belong to the turn before them. Call it in the event loop's thread.
        """
        if at_turn is not None and (not is_whole(at_turn) or at_turn < 0):
            raise ConfigError(f"at_turn is a number of turns, 0 or more, not {at_turn!r}")
        self._loop.leave_at = 0 if at_turn is None else at_turn

    @property
    def usage(self) -> Usage:
        """Tokens so far. The turn that is being written counts by an estimate."""
        return self._core.state(self._now(), waiting=False).usage

    def snapshots(self) -> dict[str, Any]:
        """The snapshots of the detectors so far, by name, as JSON data."""
        return self._core.snapshots()

    def evidence(self) -> str:
        """A digest of what the detectors have seen so far. Two runs that have seen the same have
        the same digest.
        """
        return fingerprint(canonical_json(self.snapshots()).encode())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The run's deadlines stand still inside this block, while a person is asked. Tools find
        the run in their `ToolContext`; plain functions, which run in a thread, may use it too.
        """
        self._in_loop(lambda: self._core.pause(self._now()))
        try:
            yield
        finally:
            self._in_loop(lambda: self._core.resume(self._now()))

    def _in_loop(self, do: Callable[[], None]) -> None:
        """Call `do` in the event loop's thread, which owns the alarms that follow the deadlines."""
        if threading.get_ident() == self._thread:
            do()
        else:
            anyio.from_thread.run_sync(do)

    # ------------------------------------------------------------------ the block and the iteration

    def __await__(self) -> Generator[Any, None, NoReturn]:
        """A run that is read event by event is entered, not awaited."""
        raise ConfigError(
            "a stream of events is not awaited: write outcome = await supervisor.run(task), or async with"
            " supervisor.stream(task) as run: async for event in run: ..."
        )

    async def __aenter__(self) -> Self:
        if self._phase != "idle":
            raise ConfigError(f"this run is {self._phase}: a run is used once, begin another with supervisor.stream()")
        self._phase = "running"
        self._opened: AsyncExitStack = AsyncExitStack()
        self._thread = threading.get_ident()
        if self._caller is not None:
            self._caller.called.add(self)
        self._delivery.identity = self.parts.identity()
        self._core.begin(self._now())
        if self.parts.session is not None:
            try:
                await self._opened.enter_async_context(in_use(self.parts.store))
                taken = await self.parts.session.begin(self.parts.goal, self.parts.calls)
                if taken is not None:
                    self._core.take_up(taken.past, self.id, self._now(), decides=taken.decides, lost=taken.lost)
                    if self._core.in_last_turn:
                        self._context.last_turn()
            except BaseException:
                self._phase = "error"
                if self._caller is not None:
                    self._caller.called.discard(self)
                await self._delivery.close()
                await self._opened.aclose()
                raise
        self._loop.steering.begin()
        self._driver = Pausing(self._loop.drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is None:
            return
        ending = ending_by(error) or Stop(
            TerminateReason.CLOSED_BY_CALLER, "the caller left before the run had ended", "caller"
        )
        if current_task() is None:
            self._destroyed(ending, error)
            return
        if self._at_work:
            await self._see_the_other_task_out(ending, error)
        try:
            if not self._at_work:
                self._at_work = True
                await self._driver.aclose()
        finally:
            self._at_work = False
            await self._context.close()  # a compaction may have been requested before the first turn
            self._end(ending, error)
            await self._settle()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while isinstance(event := await self._next(), Envelope):
            pass  # of a nested run; `envelopes` was called before, and is not read any more
        return event

    def envelopes(self) -> AsyncIterator[Envelope]:
        """Read the run with the runs that it calls as tools: their events, each with whose it is.
        Read either this or the run itself.
        """
        self._delivery.nested = True
        return _Envelopes(self)

    async def _enveloped(self) -> Envelope:
        return self._delivery.enveloped(await self._next())

    async def _next(self) -> Event | Envelope:
        """The next event of this run, or the next envelope of a nested run."""
        if self._driver is None:
            raise ConfigError(
                "enter the run before reading it: write async with supervisor.stream(task) as run: async for event in"
                " run: ..."
            )
        if self._at_work:
            raise ConfigError("this run is already being read by another task")
        while not self._delivery.queue:
            if self._outcome is not None or self._seen_out is not None:
                raise StopAsyncIteration
            self._at_work = True
            try:
                await self._driver.__anext__()
            except StopAsyncIteration:
                self._end(None, None)
                await self._settle()
            except Exception as error:
                if isinstance(error, ConfigError):  # the caller's own mistake
                    self._end(ending_by(error), error)
                    raise
                self._core.fail(error, "run", self._now())  # an error of the caller's code that was not caught before
                self._end(None, None)
                await self._settle()
            # a cancellation from outside, or the end of the program: the run cannot go on after it
            except BaseException as error:
                if current_task() is None:
                    self._destroyed(ending_by(error), error)
                self._end(ending_by(error), error)
                raise
            finally:
                self._came_out()
        return self._delivery.take()

    def _destroyed(self, ending: Stop | None, error: BaseException | None) -> None:
        """End the run without closing anything: its task is destroyed with the event loop, so
        nothing can be awaited.
        """
        self._loop.destroyed()
        self._end(ending, error)
        self._delivery.hand_out_end(self.outcome)

    async def _see_the_other_task_out(self, ending: Stop, error: BaseException | None) -> None:
        """Wait for another task that still reads the run while the block is left."""
        self._core.leave(ending, error if isinstance(error, Exception) else None, self._now())
        self._seen_out = anyio.Event()
        self.parts.wake()
        with anyio.move_on_after(self._supervisor.close_grace_s, shield=True):
            await self._seen_out.wait()

    def _came_out(self) -> None:
        self._at_work = False
        if self._seen_out is not None:
            self._seen_out.set()

    def _end(self, ending: Stop | None, error: BaseException | None) -> None:
        if self._outcome is not None:
            return
        error = error if isinstance(error, Exception) else None
        self._loop.steering.end()
        ended = self._core.terminate(self._now(), ending, error, history=self._history.messages)
        self._outcome = self._delivery.secrets.outcome(ended)
        self._phase = "error" if self._outcome.reason is TerminateReason.ERROR else "finished"
        if self._caller is not None:
            self._caller.called.discard(self)
            self._caller.wake()

    async def _settle(self) -> None:
        """Settle what the run holds of a shared budget, write its end into its session, and let
        the sinks that wait catch up.
        """
        budget_hold, self.parts.budget_hold = self.parts.budget_hold, None
        if budget_hold is not None:
            await budget_hold.close()
        session, self.parts.session = self.parts.session, None
        try:
            if session is not None:
                await self._store_end(session)
        finally:
            await self._delivery.close()
            await self._opened.aclose()

    async def _store_end(self, session: RunSession) -> None:
        """A run whose session cannot store its end has not ended well."""
        grace_s = self._supervisor.close_grace_s
        fault: StoreError | None = None
        try:
            with anyio.move_on_after(grace_s, shield=True) as scope:
                await self._loop.steering.stored(partial(session.end, self.outcome))
                late = (await return_late(session.recorder.store, self.outcome.detail)).get(self.id, ())
                self._outcome = replace(self.outcome, returned=(*self.outcome.returned, *late))
            if scope.cancelled_caught:
                fault = SessionUnavailable(f"the session did not take the end of the run within {grace_s:g} s")
        except StoreError as error:
            fault = error
        if fault is not None and self.outcome.reason is not TerminateReason.ERROR:
            self._outcome = replace(
                self.outcome,
                ok=False,
                reason=TerminateReason.ERROR,
                detail=describe(fault),
                source="session",
                error=fault,
            )
            self._phase = "error"
        self._core.part(self.id, goes_on=fault is not None or self.outcome.reason in RESUMABLE)
        self._delivery.hand_out_end(self.outcome)


class _Envelopes:
    """The events of a run and of its nested runs, as an iterator."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        return await self._run._enveloped()  # noqa: SLF001 - of the same file
