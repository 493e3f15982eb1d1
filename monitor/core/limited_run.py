"""What may end a run by itself: its limits, an abort, its other agents, and the run above it.

`Limits` says whether a limit is exceeded, and when to look again. `RunAgents` joins the agents of
one run. `LimitedRun` looks, and decides the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from monitor import events
from monitor._util.text import MOST_EIGHTHS_PER_CHAR
from monitor.budget import Budget
from monitor.chunks import NO_USAGE, AskCost, Price, Usage
from monitor.conditions.condition import Condition, limits_of
from monitor.conditions.limits import Timeout, silence_limits
from monitor.core.counters import Counters, Spending
from monitor.core.ending import RunGoal, StreamEnd
from monitor.core.turn import RunningTurn
from monitor.errors import AdapterError, TerminateReason, describe
from monitor.events import Event, Limit, LimitWarning
from monitor.outcome import Outcome, RunState
from monitor.verdicts import Stop

BUDGET_LOOK_TOKENS = 256
"""Others may spend from the same budget, so it is checked at least once in this many tokens.
Together n runs exceed a budget by at most n times this. A check costs microseconds; 256 tokens are
seconds of a stream.
"""
WARN_AT = 0.8
"""The share of a limit at which a warning is given: of 30 turns, six are then left to finish in
order.
"""
ASK_AGAIN_S = 0.001
"""Seconds between two checks of a condition that is not true at its own deadline, as a caller's
condition may be.
"""
_NUMBER = (int, float)
"""The types stand in a tuple, which `isinstance` asks in half the time of a union."""


class Limits:
    """Condition and budgets of one run. `nested`: the run is a tool of another run, whose limits
    count as well.

    A condition may be the caller's code. What it raises is raised here too, and `name` says which
    part raised.
    """

    __slots__ = ("_condition", "_headroom_eighths", "_nested", "_warned", "deadline_s", "price", "spending")

    def __init__(
        self,
        condition: Condition | None,
        *,
        price: Price | None = None,
        budgets: Sequence[Budget] = (),
        nested: bool = False,
    ) -> None:
        self.spending = Spending(price, budgets)
        self.price = price
        """Price of the running model, which converts dollars into tokens. Without a price, cost
        limits cause no check.
        """
        self._nested = nested
        self._warned: list[tuple[int, int]] = []
        self._condition = condition
        self.deadline_s = math.inf
        """Until this moment, in seconds since the run began, the condition cannot become true by
        time alone.
        """
        self._headroom_eighths: int | None = None

    def replace(self, condition: Condition | None) -> None:
        """Use another condition from now on. Budgets stay."""
        self._condition = condition
        self.deadline_s, self._headroom_eighths = math.inf, None

    def only(self, timeout: Timeout) -> None:
        """Use only `timeout` from now on, and the condition's limits on silence. Budgets stay."""
        silence = silence_limits(self._condition)
        self.replace(timeout if silence is None else timeout | silence)

    def share(self, first: Limits | None = None) -> None:
        """Several agents of one run have these limits, and use them up together. `first`: the
        limits of the first agent, which has given some of the warnings.
        """
        self._nested = bool(self)
        if first is not None:
            self._warned = first._warned  # noqa: SLF001 - the same class

    def __bool__(self) -> bool:
        """Whether there is anything to check."""
        return self._condition is not None or self._nested or bool(self.spending.budgets)

    @property
    def name(self) -> str:
        """The name of the part that is checked, for errors that it raises."""
        return self.condition_name or "budget"

    @property
    def condition_name(self) -> str | None:
        """The condition's name. `None`: there is no condition."""
        return self._condition.name if self._condition is not None else None

    @property
    def timed(self) -> bool:
        """Whether a limit may be exceeded by time alone."""
        return self._condition is not None

    def look(self, state: RunState, overspent: Stop | None, *, plan: bool = True) -> Stop | None:
        """Check the limits. `overspent`: the stop of the budgets. If no limit is exceeded, the next
        check is planned if `plan` says so. `state` may be changed.
        """
        stop = (self._condition.evaluate(state) if self._condition is not None else None) or overspent
        if stop is None:
            if not plan:
                return None
            if state.phase == "streaming" and state.waiting_since_s is None:
                # The next read begins now at the earliest: planning from now gives a lower bound.
                object.__setattr__(state, "waiting_since_s", state.elapsed_s)  # a copy would cost as much as a look
            self.plan(state)
        elif not isinstance(stop, Stop):
            raise TypeError(f"expected a Stop or None, got {stop!r}")
        return stop

    def plan(self, state: RunState) -> None:
        """Plan the next check from `state`, whose usage the budgets must already contain."""
        headrooms: list[int | None] = [BUDGET_LOOK_TOKENS] if self._nested else []
        if self._condition is not None:
            deadline_s = self._condition.deadline(state)
            self.deadline_s = math.inf if deadline_s is None else deadline_s
            headrooms.append(self._condition.token_headroom(state))
            if self.price is not None:
                headrooms.append(self._tokens_for(self._condition.cost_headroom(state)))
        for budget in self.spending.budgets:
            tokens, usd = budget.remaining_tokens, budget.remaining_usd
            if tokens is not None or usd is not None:
                headrooms += [tokens, self._tokens_for(usd), BUDGET_LOOK_TOKENS]
        headroom = min([room for room in headrooms if room is not None], default=None)
        self._headroom_eighths = None if headroom is None else 8 * headroom

    def _tokens_for(self, usd: float | None) -> int | None:
        """How many output tokens `usd` buys: a stream writes output."""
        dearest = self.price.dearest_output if self.price is not None else 0
        if usd is None or dearest <= 0:
            return None
        tokens = usd / dearest * 1_000_000
        return math.floor(tokens) if tokens < sys.maxsize else None

    def exact_deadline_s(self, state: RunState) -> float:
        """`deadline_s`, exact for the read that `state` waits for. Never raises."""
        try:
            self.plan(state)
            if (
                self.deadline_s <= state.elapsed_s
                and self._condition is not None
                and self._condition.evaluate(state) is None
            ):
                return state.elapsed_s + ASK_AGAIN_S
        except Exception:  # noqa: BLE001 - the look that follows meets the same error, and names it
            return -math.inf
        return self.deadline_s

    def spend(self, eighths: int) -> bool:
        """Count `eighths` of an output token that have come. True: a limit may have been passed."""
        if self._headroom_eighths is None:
            return False
        self._headroom_eighths -= eighths
        return self._headroom_eighths < 0

    @property
    def free_chars(self) -> int:
        """The number of characters that may still come before the limits must be checked."""
        if self._headroom_eighths is None:
            return sys.maxsize
        return max(0, self._headroom_eighths // MOST_EIGHTHS_PER_CHAR)

    def all(self) -> tuple[Limit, ...]:
        """The limits that can be used up. Never raises: a condition that raises is named by the
        first check.
        """
        try:
            found = limits_of(self._condition) if self._condition is not None else ()
        except Exception:  # noqa: BLE001 - a condition may be the caller's code
            found = ()
        used = [met for budget in self.spending.budgets for met in budget.progress()]
        return (*found, *(Limit(met.condition, met.limit) for met in used if isinstance(met.limit, int | float)))

    def warnings(self, state: RunState) -> Sequence[LimitWarning]:
        """The limits that have reached `WARN_AT` since the last call, each once. Call it when
        nothing ends the run.
        """
        sources = [
            self._condition.progress(state) if self._condition is not None else (),
            *(budget.progress() for budget in self.spending.budgets),
        ]
        found: list[LimitWarning] = []
        for source, used in enumerate(sources):
            for place, met in enumerate(used):
                value, limit = met.value, met.limit
                if not isinstance(value, _NUMBER) or not isinstance(limit, _NUMBER) or limit <= 0:
                    continue
                if value / limit >= WARN_AT and (source, place) not in self._warned:
                    self._warned.append((source, place))
                    found.append(LimitWarning(state.elapsed_s, met.condition, value, limit))
        return found


# --------------------------------------------------------------------------------------------------
# The agents of one run. Each has a core of its own, with its own turn, open calls and detectors.
# The first one is the run itself.


class RunAgents:
    """The cores of one run. What an agent of them decides reaches the others at their next look.

    Agents may run in several threads, so an agent changes nothing in another one but `deadline`.
    """

    __slots__ = ("_cores", "_root", "stop")

    def __init__(self, root: LimitedRun) -> None:
        self._root = root
        self._cores: dict[LimitedRun, Callable[[], None]] = {}
        self.stop: Stop | None = None
        """Why the run ends, and every agent with it. `None`: not decided yet."""

    def add(self, core: LimitedRun, wake: Callable[[], None]) -> None:
        """`core` belongs to the run. `wake`: makes its pending read look at its deadline; called
        from any thread.
        """
        self._cores[core] = wake

    def decided(self, stop: Stop, by: LimitedRun) -> None:
        """An agent ends, and all the others end with it."""
        if self.stop is None:
            self.stop = stop
            for core, wake in [*self._cores.items()]:
                if core is not by:
                    core.deadline = -math.inf
                    wake()

    def abort(self, why: str) -> None:
        """End all agents. From any thread."""
        for core, wake in [*self._cores.items()]:
            core.abort(why)
            wake()

    def ended(self, core: LimitedRun, closing: events.StreamClosed | None, now: float) -> None:
        """`core` has ended. What it has used still counts. `closing`: how its last stream was
        closed.
        """
        if self._cores.pop(core, None) is not None and core is not self._root:
            self._root.take_over(core.own_state(now, waiting=False, ended=True), closing)

    def shared(self, of: LimitedRun, state: RunState, now: float) -> RunState:
        """`state` of the agent `of`, with the counts of the whole run. The stream and the errors in
        a row stay those of the agent.
        """
        others = [core.own_state(now, waiting=False) for core in [*self._cores] if core is not of]
        root = state if of is self._root else self._root.own_state(now, waiting=False)
        every = (state, *others)
        return replace(
            state,
            turns=sum(one.turns for one in every),
            model_calls=sum(one.model_calls for one in every),
            tool_calls=sum(one.tool_calls for one in every),
            usage=sum((one.usage for one in others), state.usage),
            usage_estimated=any(one.usage_estimated for one in every),
            cost_usd=_sum_known(one.cost_usd for one in every),
            tools_called=tuple(dict.fromkeys(name for one in every for name in one.tools_called)),
            missing_outputs=root.missing_outputs,
            plan_done=root.plan_done,
            task_done=root.task_done,
        )


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum. `None`: one of the costs is not known."""
    known = [*costs]
    return None if None in known else sum(cost for cost in known if cost is not None)


class BackgroundWork(Protocol):
    """Work beside a run, e.g. its judges and its compactions. A harness adds it to
    `RunCore.background_work`.
    """

    def turn_began(self) -> None:
        """A model call is about to be made."""

    def busy_with(self) -> str | None:
        """The work that goes on now, for people, e.g. "a compaction was at work". `None`: there is
        none.

        It is added to the detail of a timeout.
        """

    def cancel(self) -> None:
        """The run will end: cancel open questions and summaries."""


Companion: TypeAlias = BackgroundWork
"""The former name of `BackgroundWork`, for one release."""


class LimitedRun:
    """One run, as far as something may end it by itself. It knows nothing of chunks, detectors and
    messages, which `RunCore` adds.
    """

    __slots__ = (
        "_abort_told",
        "_abort_why",
        "_agents",
        "_closing",
        "_counters",
        "_decided_at",
        "_emit",
        "_last",
        "_limits",
        "_looked_at",
        "_outcome",
        "_parent",
        "_run_goal",
        "_running",
        "_stop_error",
        "background_work",
        "deadline",
        "ends_stream",
        "replanned",
        "stop",
        "waiting_since",
    )

    def __init__(
        self,
        limits: Limits,
        goal: RunGoal,
        running: RunningTurn,
        *,
        emit: Callable[[Event], None],
        parent: LimitedRun | None,
    ) -> None:
        """`running`: the turn that is running, or was the last to run. `parent`: the run whose tool
        this run is.
        """
        self.deadline: float = math.inf
        """When the next look is due, in the harness's clock."""
        self.waiting_since: float = 0.0
        """When the pending read began, in the harness's clock. The harness sets it before every
        read.
        """
        self.stop: Stop | None = None
        """Why the run ends. `None`: not decided yet."""
        self.ends_stream: bool = False
        """The running stream must be left: the run ends, or the turn is cut."""
        self.replanned: Callable[[], None] = _nothing
        """Called when `deadline` may have come closer. A harness that waits sets it, to move its
        alarm.
        """
        self.background_work: tuple[BackgroundWork, ...] = ()
        """The work beside the run, such as its judges."""

        self._counters = Counters()
        self._limits = limits
        self._run_goal = goal
        self._running = running
        self._emit = emit
        self._parent = parent
        self._agents: RunAgents | None = None
        self._last: StreamEnd | None = None  # how the last stream ended
        self._looked_at = -math.inf
        self._abort_why: str | None = None
        self._abort_told = False
        self._decided_at = 0.0
        self._stop_error: BaseException | None = None
        self._closing: events.StreamClosed | None = None
        self._outcome: Outcome | None = None

    # ------------------------------------------------------------------ how it stands

    def at(self, now: float) -> float:
        """The number of seconds since the run began."""
        return now - self._counters.began

    @property
    def turns(self) -> int:
        """The number of turns that have started."""
        return self._counters.turns

    @property
    def decided(self) -> Stop | None:
        """Why the run ends, if this agent of it or another one has decided that."""
        return self.stop or (self._agents.stop if self._agents is not None else None)

    @property
    def void(self) -> bool:
        """Whether the last stream was a failed attempt, of which nothing counts."""
        return self._last is not None and self._last.void

    def state(self, now: float, *, waiting: bool) -> RunState:
        """The run as numbers, with all its agents. `waiting`: a read of this one is pending since
        `waiting_since`.
        """
        state = self.own_state(now, waiting=waiting)
        return state if self._agents is None else self._agents.shared(self, state, now)

    def own_state(self, now: float, *, waiting: bool, ended: bool = False) -> RunState:
        """The state of this agent alone. `waiting`: a read is pending since `waiting_since`.
        `ended`: its last turn counts, even if that failed.
        """
        return self._counters.state(
            now,
            running=self._running,
            spending=self._limits.spending,
            goal=self._run_goal.goal,
            void=self.void and not ended,
            waiting_since=self.waiting_since if waiting else None,
        )

    def take_over(self, state: RunState, closing: events.StreamClosed | None) -> None:
        """Another agent of this run has ended. `closing`: how its last stream was closed."""
        self._counters.take_over(state)
        self._limits.spending.take_over(state.usage, state.cost_usd, estimated=state.usage_estimated)
        if closing is not None and (self._closing is None or not closing.closed):
            self._closing = closing

    # ------------------------------------------------------------------ its limits, looked at

    def must_stop(self, now: float) -> bool:
        """`deadline` has passed while a read begins or ends: evaluate all limits, and move
        `deadline` on if none is exceeded.
        """
        self._look(now, waiting=True)
        return self.stop is not None

    def why_over(self, now: float) -> str | None:
        """Why the run has to end now, in words. Decides nothing, and never raises. `None`: it need
        not end.
        """
        if self.stop is not None:
            return self.stop.detail
        if self._abort_why is not None:
            return self._abort_why
        above = self._parent.why_over(now) if self._parent is not None else None
        if above is not None:
            return f"the run that called this one ends: {above}"
        try:
            stop = self._limits.look(self.state(now, waiting=True), None, plan=False) if self._limits else None
        except Exception:  # noqa: BLE001 - a condition of the caller's; the next look says so
            return None
        return None if stop is None else stop.detail

    def refresh(self, now: float) -> float:
        """Make `deadline` exact for the read that is pending since `waiting_since`, and return it.
        Decides nothing, and never raises.
        """
        if self.stop is None and not self._must_look and self._limits.timed:
            self._plan_for(self._limits.exact_deadline_s(self.state(now, waiting=True)))
        return self.deadline

    def _look(self, now: float, *, waiting: bool, warn: bool = False, plan: bool = True) -> None:
        """Evaluate everything that may be true now, then plan the next look. `warn`: also warn of
        limits that are nearly used up. `plan`: false if another look follows at once.
        """
        if self.stop is not None or self._outcome is not None:
            return
        if self._abort_why is not None:
            if not self._abort_told:
                self._abort_told = True
                self._emit(events.AbortRequested(self.at(now), self._abort_why))
            self._decide(Stop(TerminateReason.ABORTED, self._abort_why, "abort"), now)
            return
        if self._agents is not None and self._agents.stop is not None:
            self._decide(self._agents.stop, now)
            return
        overspent = self._spent(now)
        if not self._limits:
            return
        state = self.state(now, waiting=waiting)
        try:
            stop = self._limits.look(state, overspent, plan=plan)
            warnings = self._limits.warnings(state) if warn and stop is None else ()
        except Exception as error:  # noqa: BLE001 - a condition may be the caller's code: whatever it raises ends the run
            self.fail(error, self._limits.name, now)
            return
        if stop is not None:
            self._decide(stop, now)
        elif not plan:
            return
        else:
            self._looked_at = now
            self._plan_for(self._limits.deadline_s)
        self.replanned()
        for warning in warnings:
            self._emit(warning)

    def _spent(self, now: float) -> Stop | None:
        """Report what was used to the budgets and to the parent run. Answers the stop of the first
        that is exceeded.
        """
        spending, parent = self._limits.spending, self._parent
        if parent is None and not spending.budgets:
            return None
        running = self._running.usage if self._counters.phase == "streaming" else NO_USAGE
        stop = spending.post(running)
        ending = parent.nested(self, *spending.total(running), now) if parent is not None else None
        if ending is not None:
            detail = f"the run that called this one ends: {ending.detail}"
            return Stop(TerminateReason.ABORTED, detail, ending.source, ending.limit, ending.value)
        return stop

    def nested(self, child: LimitedRun, usage: Usage, usd: float | None, now: float) -> Stop | None:
        """The nested run `child`, started by a tool, has used `usage` and `usd` so far. Answers why
        this run ends, if it does.
        """
        self._limits.spending.nested(id(child), usage, usd)
        self._look(now, waiting=False)
        return self.stop

    def nested_ended(self, child: LimitedRun, usage: Usage, usd: float | None, now: float) -> None:
        """The nested run `child` has ended."""
        self.nested(child, usage, usd, now)
        self._limits.spending.nested_ended(id(child))

    def _plan_for(self, deadline_s: float) -> None:
        self.deadline = self._counters.began + deadline_s
        if self._must_look:  # it may have come from another thread since the look began
            self.deadline = -math.inf

    @property
    def _must_look(self) -> bool:
        """Somebody else has ended the run: the user, or another of its agents."""
        return self._abort_why is not None or (self._agents is not None and self._agents.stop is not None)

    def pause(self, now: float) -> None:
        """A person is being asked: deadlines stand still until `resume`, in the runs above as well.
        Pauses nest.
        """
        if self._parent is not None:
            self._parent.pause(now)
        if self._counters.pauses.begin(now):
            self._emit(events.Paused(self.at(now)))
            self._look(now, waiting=False)

    def resume(self, now: float) -> None:
        """The person has answered: deadlines go on."""
        if self._parent is not None:
            self._parent.resume(now)
        paused_s = self._counters.pauses.end(now)
        if paused_s is not None:
            self._running.started_at += paused_s
            self.waiting_since += paused_s
            self._emit(events.Resumed(self.at(now)))
            self._look(now, waiting=False)

    def charge_compaction(self, cost: AskCost, now: float) -> None:
        """A model has summarised the history, or a result of a tool: its tokens count like all
        others of the run.
        """
        self._limits.spending.charge_compaction(cost)
        self._look(now, waiting=False)

    def charge_input(self, tokens: int) -> None:
        """Count the request of the last turn by an estimate: its service reports no usage."""
        self._limits.spending.settle(Usage(input_tokens=tokens, total_tokens=tokens), estimated=True)

    # ------------------------------------------------------------------ its end

    def abort(self, why: str) -> None:
        """Request the end of the run. May be called from any thread: the request is only noted, and
        the next look decides.
        """
        if self._abort_why is None:
            self._abort_why = why
            if self._agents is not None:
                self._agents.abort(why)
        self.deadline = -math.inf

    def fail(self, error: BaseException, source: str, now: float) -> None:
        """A part of the monitor or of the caller crashed: the run can no longer be watched, so it
        ends.
        """
        reason = TerminateReason.INVALID_STREAM if isinstance(error, AdapterError) else TerminateReason.ERROR
        self.leave(Stop(reason, f"{source} raised {describe(error)}", source), error, now)

    def leave(self, ending: Stop, error: BaseException | None, now: float) -> None:
        """The caller leaves the run, perhaps by `error`, while another task of theirs still works
        in it.
        """
        if self.stop is None:
            self._stop_error = error
        self._decide(ending, now)

    def _decide(self, stop: Stop, now: float) -> None:
        if self.stop is None:
            if stop.reason is TerminateReason.TIMEOUT:
                stop = replace(stop, detail="; ".join((stop.detail, *self._busy())))
            self.stop = stop
            self.ends_stream = True
            self.deadline = -math.inf
            self._decided_at = now
            self._emit(events.StopDecided(self.at(now), stop))
            for work in self.background_work:
                work.cancel()
            if self._agents is not None:
                self._agents.decided(stop, self)

    def _busy(self) -> list[str]:
        """What the work beside the run is busy with."""
        return [busy for work in self.background_work if (busy := work.busy_with()) is not None]

    # ------------------------------------------------------------------ its other agents

    def add_agent(self, core: LimitedRun, wake: Callable[[], None], *, own_wake: Callable[[], None]) -> None:
        """`core`, which has not begun, is another agent of this run: it shares the limits, what is
        used and the end. `wake`: makes a pending read of its stream look at its deadline.
        `own_wake`: the same for this core. Both are called from any thread.
        """
        if self._agents is None:
            self._agents = RunAgents(self)
            self._agents.stop = self.stop
            self._agents.add(self, own_wake)
            self._limits.share()
        core._agents = self._agents
        core._counters.began = self._counters.began
        core._limits.share(self._limits)
        self._agents.add(core, wake)
        if self._abort_why is not None:
            core.abort(self._abort_why)

    def part(self, run: str, *, goes_on: bool) -> None:
        """The run `run` has ended. `goes_on`: it may be taken up again."""
        self._limits.spending.part(run, goes_on=goes_on)


def _nothing() -> None:
    """The default of `LimitedRun.replanned`: nothing waits for it."""
