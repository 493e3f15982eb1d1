"""What a run has used so far: its counters, its tokens and its money. `Counters.state` has their
values at one moment, as a `RunState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from monitor._util.part_options import frozen
from monitor.budget import Account, Budget
from monitor.chunks import NO_COST, NO_USAGE, AskCost, Price, Usage
from monitor.core.turn import RunningTurn
from monitor.goal.goal import Goal
from monitor.outcome import Phase, RunState, StateDraft
from monitor.verdicts import Stop


class Pauses:
    """The pauses of one run. Pauses nest; the run's time stands still while any is open."""

    __slots__ = ("_count", "_done_s", "_since")

    def __init__(self) -> None:
        self._count, self._since, self._done_s = 0, 0.0, 0.0

    @property
    def running(self) -> bool:
        """True while a pause of the run is open."""
        return self._count > 0

    def begin(self, now: float) -> bool:
        """Open a pause. True: it is the outermost one."""
        self._count += 1
        if self._count == 1:
            self._since = now
        return self._count == 1

    def end(self, now: float) -> float | None:
        """Close a pause. If it was the outermost, answers how long it lasted, in seconds; else
        `None`.
        """
        self._count -= 1
        if self._count:
            return None
        self._done_s += now - self._since
        return now - self._since

    def total_s(self, now: float) -> float:
        """The length of all pauses up to `now`, in seconds."""
        return self._done_s + (now - self._since if self.running else 0.0)


class ErrorStreak:
    """Counts the turns in a row that failed: the model call failed, or a tool did and none
    succeeded. Tools of one turn that fail together are one error.
    """

    __slots__ = ("_failed", "_succeeded", "count")

    def __init__(self) -> None:
        self.count = 0
        self._failed = self._succeeded = False

    def turn_started(self) -> None:
        """Another turn begins, or another attempt at one. If nothing failed in the turn before, the
        streak is over.
        """
        if not self._failed:
            self.count = 0
        self._failed = self._succeeded = False

    def add(self, *, is_error: bool) -> None:
        """A tool result, or a model call that failed."""
        if not is_error:
            self.count, self._failed, self._succeeded = 0, False, True
        elif not self._failed and not self._succeeded:
            self.count, self._failed = self.count + 1, True


_NONE: tuple[Usage, float | None] = (NO_USAGE, 0.0)


class Spending:
    """What one run has used. `price`: of the model's tokens; `None`: their cost is not known.
    `budgets`: the budgets that the run spends from.

    A nested run spends from its own budgets, and from those of this run only through a share. Here
    its usage is only added up.
    """

    __slots__ = (
        "_account",
        "_closed",
        "_open",
        "_own",
        "_own_usd",
        "_price",
        "budgets",
        "compactions",
        "estimated",
        "judges",
    )

    def __init__(self, price: Price | None = None, budgets: Sequence[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self.estimated = False
        """Whether part of the usage is an estimate."""
        self.judges: AskCost = NO_COST
        """The cost of all judges, whether it counts for the run or not."""
        self.compactions: AskCost = NO_COST
        self._price = price
        self._account = Account(budgets) if budgets else None
        self._own = NO_USAGE
        self._own_usd = 0.0
        self._closed = _NONE
        self._open: dict[int, tuple[Usage, float | None]] = {}

    def settle(self, usage: Usage, *, estimated: bool) -> None:
        """Add `usage` of a turn, or of a question to a model, that is over."""
        self._own += usage
        self._own_usd += self._cost(usage)
        self.estimated |= estimated

    def charge_judge(self, cost: AskCost, *, counts: bool) -> None:
        """A judge was asked. `counts`: its tokens count for the run."""
        self.judges += cost
        if counts:
            self.settle(cost.usage, estimated=cost.estimated)

    def charge_compaction(self, cost: AskCost) -> None:
        """A model has summarised the history, or a result of a tool."""
        self.compactions += cost
        self.settle(cost.usage, estimated=cost.estimated)

    def take_up(
        self, run: str, requests: Iterable[Usage], nested: Sequence[tuple[Usage, float | None]], *, estimated: bool
    ) -> None:
        """The run `run` goes on in another process: what its requests and its nested runs have
        used.
        """
        for usage in requests:
            self.settle(usage, estimated=estimated)
        for one in nested:
            self._closed = _sum(self._closed, one)
        if self._account is not None:
            self._account.take_up(run, self._own.total_tokens, self._own_usd)

    def part(self, run: str, *, goes_on: bool) -> None:
        """The run `run` has ended. `goes_on`: it may be taken up again."""
        if self._account is not None:
            self._account.part(run, goes_on=goes_on)

    def nested(self, run: int, usage: Usage, usd: float | None) -> None:
        """Note all that the nested run `run` has used so far."""
        self._open[run] = (usage, usd)

    def nested_ended(self, run: int) -> None:
        """The nested run `run` has ended and will use no more."""
        self._closed = _sum(self._closed, self._open.pop(run, _NONE))

    def take_over(self, usage: Usage, usd: float | None, *, estimated: bool) -> None:
        """Add what another agent of this run has used, which has ended."""
        self._closed = _sum(self._closed, (usage, usd))
        self.estimated |= estimated

    def total(self, running: Usage = NO_USAGE) -> tuple[Usage, float | None]:
        """Tokens and US dollars up to now. `None`: some of the tokens have no known price.
        `running`: usage of the turn that is not over.
        """
        usage = self._own + running
        known = self._price is not None or not usage.total_tokens
        total: tuple[Usage, float | None] = (usage, self._own_usd + self._cost(running) if known else None)
        if self._closed is not _NONE or self._open:
            for nested in (self._closed, *self._open.values()):
                total = _sum(total, nested)
        return total

    def post(self, running: Usage = NO_USAGE) -> Stop | None:
        """Update the budgets with what this run itself has used by now. Answers the stop of the
        first exhausted one.
        """
        if self._account is None:
            return None
        tokens = self._own.total_tokens + running.total_tokens
        self._account.settle(tokens, self._own_usd + self._cost(running))
        return self._account.exhausted()

    def _cost(self, usage: Usage) -> float:
        return self._price.cost(usage) if self._price is not None else 0.0


def _sum(one: tuple[Usage, float | None], other: tuple[Usage, float | None]) -> tuple[Usage, float | None]:
    """Tokens and US dollars together. The dollars are known if both are."""
    usd = None if one[1] is None or other[1] is None else one[1] + other[1]
    return one[0] + other[0], usd


class Counters:
    """The counters of one run. `RunCore` changes them in place."""

    __slots__ = (
        "began",
        "errors",
        "model_calls",
        "others_model_calls",
        "others_turns",
        "pauses",
        "phase",
        "results_inside",
        "retry_delay_s",
        "task_done",
        "tool_calls",
        "tools_called",
        "turns",
    )

    def __init__(self) -> None:
        self.began = 0.0
        """When the run began, in the harness's clock."""
        self.phase: Phase = "before_call"
        self.turns = 0
        self.model_calls = 0
        self.others_turns = self.others_model_calls = 0
        """Counts of other agents of the run that have ended. Own turns are numbered without
        them.
        """
        self.results_inside = 0
        self.tool_calls = 0
        self.tools_called: tuple[str, ...] = ()
        self.errors = ErrorStreak()
        self.pauses = Pauses()
        self.retry_delay_s = 0.0
        self.task_done: bool | None = None

    def copy(self) -> Counters:
        """Other counters with the same values."""
        copied = copy(self)
        copied.errors, copied.pauses = copy(self.errors), copy(self.pauses)
        return copied

    def at(self, now: float) -> float:
        """The number of seconds since the run began."""
        return now - self.began

    def tool_answered(self, name: str) -> None:
        """The tool `name` has answered."""
        if name not in self.tools_called:
            self.tools_called += (name,)

    def take_over(self, state: RunState) -> None:
        """Add the counts of another agent of the run, which has ended."""
        self.others_turns += state.turns
        self.others_model_calls += state.model_calls
        self.tool_calls += state.tool_calls
        for name in state.tools_called:
            self.tool_answered(name)

    def state(
        self,
        now: float,
        *,
        running: RunningTurn,
        spending: Spending,
        goal: Goal | None,
        void: bool,
        waiting_since: float | None,
    ) -> RunState:
        """The run at `now`. `running`: of the present turn. `void`: the last stream was a failed
        attempt at that turn. `waiting_since`: when the pending read began; `None`: no read is
        pending.
        """
        streaming = self.phase == "streaming"
        usage, cost_usd = spending.total(running.usage if streaming else NO_USAGE)
        outputs, plan = (goal.outputs, goal.plan) if goal is not None else (None, None)
        draft = StateDraft(
            elapsed_s=now - self.began,
            phase=self.phase,
            turns=self.turns - void + self.others_turns,
            model_calls=self.model_calls + self.others_model_calls,
            tool_calls=self.tool_calls,
            consecutive_errors=self.errors.count,
            usage=usage,
            usage_estimated=spending.estimated or (streaming and running.usage_estimated),
            cost_usd=cost_usd,
            paused_s=self.pauses.total_s(now),
            paused=self.pauses.running,
            retry_delay_s=self.retry_delay_s,
            tools_called=self.tools_called,
            missing_outputs=tuple(outputs.missing) if outputs is not None else None,
            plan_done=plan.done if plan is not None else None,
            task_done=self.task_done,
            stream_started_s=running.started_at - self.began if streaming else None,
            first_chunk_seen=streaming and running.first_chunk_seen,
            waiting_since_s=waiting_since - self.began if streaming and waiting_since is not None else None,
        )
        return frozen(draft, RunState)
