"""The parts of one run, made of its supervisor's options and joined with each other. A nested run
reads those of the run that calls it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from monitor._util.text import foreign
from monitor.budget import Budget
from monitor.chunks import AskCost, Price, price_of
from monitor.conditions import Condition, MaxTurns, Timeout
from monitor.conditions.limits import DefaultLimits
from monitor.context.history import History
from monitor.core.replay.recording import InputLog, RecordingCore, RecordingGoal
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.events import CompactionFinished, Event, HistoryRepaired, RunIdentity
from monitor.goal.goal import Goal
from monitor.guard.options import must_know_price
from monitor.guard.streams.ask import Interruptible, JudgeTasks
from monitor.guard.streams.wait import Clock
from monitor.messages import AssistantMessage, Message, Repair, Text, UserMessage
from monitor.prices import list_price
from monitor.runs.budget_hold import BudgetHold
from monitor.runs.calls.offered_tools import summarise_with
from monitor.runs.calls.run_calls import Calls
from monitor.runs.context.compaction_job import RunServices
from monitor.runs.context.requests import InitialHistory, ValidHistory
from monitor.runs.context.run_context import RunContext, frontier
from monitor.runs.delivery import Delivery
from monitor.runs.outage_gate import OutageGate
from monitor.runs.record.compaction_runs import CompactionNumbers
from monitor.runs.record.recorder import TASK, Recorder
from monitor.runs.record.session_reading import CALL
from monitor.runs.run_session import RunSession
from monitor.runs.steering import Steering
from monitor.runs.supervisor_options import RunOptions, checked_session
from monitor.runs.turn_loop import TurnLoop
from monitor.sessions.closed_runs import SUBAGENT, RunRecord, RunStage, SessionStore
from monitor.tools.base import CallingRun
from monitor.tools.files.file_memory import with_notes
from monitor.wires.fields import RawMessage


@dataclass(slots=True, frozen=True, kw_only=True)
class RunRequest:
    """What one run of a supervisor is asked to do."""

    task: str | UserMessage | None = None
    streams: bool = False
    """Whether the caller reads the events of the run one by one."""
    history: Sequence[RawMessage | Message] | None = None
    session: SessionStore | str | None = None
    """In the place of the supervisor's own, as `history` is."""
    caller: RunParts | None = None
    """The parts of the run that calls this run as the tool `as_tool`, if any."""
    as_tool: str = ""
    call: str = ""
    """The key of that call, and its id."""
    as_call: str | None = None
    run_id: str | None = None
    """The id of a run that goes on in another process; by default a new id."""
    resumed: RunRecord | None = None
    """The run of the session that goes on, without another task."""
    deps: object = None
    """In the place of the supervisor's own, or of its caller's."""


DEFAULT_LIMITS = DefaultLimits((MaxTurns(100), Timeout(3600)))
"""The limits of a run without limits of the caller's. Gemini CLI gives a whole conversation with
its user 100 turns; an unwatched agent should not need more, nor more than an hour. A loop that no
detector sees then costs a few dollars at most.
"""
SUBAGENT_LIMITS = DefaultLimits((MaxTurns(30), Timeout(600)))
"""The limits of a run that is called as a tool, because its caller waits for it. Gemini CLI has the
same numbers.
"""


class RunParts:
    """The core, the history, the session, the calls and the loop of one run."""

    def __init__(self, supervisor: RunOptions, asked: RunRequest, *, run: CallingRun, run_id: str) -> None:
        """`run`: the run as its tools see it, whose id is `run_id`."""
        task, caller, resumed = asked.task, asked.caller, asked.resumed
        said = str(resumed.data.get(TASK, "")) if resumed is not None else _words(task)
        self._supervisor = supervisor
        self._caller = caller
        self.run_id: str = run_id
        self._agent, self._as_tool, self._as_call = supervisor.agent or asked.as_tool, asked.as_tool, asked.as_call
        self.resumed: bool = resumed is not None
        """The run goes on where another process has left it."""
        self.called: set[CallingRun] = set()
        """The nested runs of this run: its abort aborts them too."""
        self.clock: Clock = caller.clock if caller is not None else supervisor.clock
        self._now = self.clock.now
        self.delivery: Delivery = Delivery(
            supervisor.sinks,
            streams=asked.streams,
            grace_s=supervisor.close_grace_s,
            caller=caller.delivery if caller is not None else None,
        )
        self._emit = self.delivery.emit
        ledger = supervisor.calls.ledger
        above = caller.store if caller is not None and ledger is None else None
        self.store: SessionStore | None = checked_session(asked.session, ledger) or supervisor.session or above
        """The session: the given one, else the supervisor's, else that of the run above."""
        log = InputLog() if self.store is not None and self.store.keeps_chunks else None
        self._tools = supervisor.tools.copy()
        self.supervisors: tuple[RunOptions, ...] = (supervisor, *(caller.supervisors if caller is not None else ()))
        """The supervisor of this run, then that of its caller, and so on."""
        self._price = supervisor.price if caller is None else self._known_price()
        self.budget_hold: BudgetHold | None = self._new_budget_hold()
        self.budgets: tuple[Budget, ...] = self._new_budgets()
        self.goal: Goal = self._new_goal(log)
        self.core: RunCore = self._new_core(said, log)
        self.work: Interruptible = Interruptible(self.core, self.clock)
        deps = supervisor.deps if asked.deps is None else asked.deps
        self.deps: object = caller.deps if deps is None and caller is not None else deps

        # The history: in a session it is read from there when the run begins.
        first = [] if task is None else [_said_by_others(task)]
        if supervisor.plan is not None and resumed is None and (step := self.goal.first_step()) is not None:
            first.append(UserMessage((Text(step),), synthetic=True))
        given = supervisor.given if asked.history is None else supervisor.taken_in(asked.history)
        given = replace(given, instructions=with_notes(given.instructions, supervisor.instructions.notes))
        self._instructions = given.instructions
        self.history: History = History(() if self.store is not None else (*given.messages, *first))
        self._valid_history = ValidHistory(self.history, supervisor.form, given.repairs, self._repaired)
        self.session: RunSession | None = None
        if self.store is not None:
            record = resumed or self._new_record(said, asked.call)
            self.session = self._new_session(self.store, record, given, first, log, may_go_on=asked.history is None)

        # What goes on in a turn.
        self.context: RunContext = self._new_context()
        self.core.background_work += (self.context,)
        self.calls: Calls = self._new_calls(run)
        if supervisor.judges:
            self.core.set_scene(self._instructions or "", [spec.name for spec in self.calls.offered.specs()])
        self.loop: TurnLoop = self._new_loop()

    def _new_budget_hold(self) -> BudgetHold | None:
        """What the run holds of a budget that many processes share."""
        shared = self._supervisor.shared_budget
        if shared is None:
            return None
        at = lambda: self.core.at(self._now())  # noqa: E731 - the core is made later
        return BudgetHold(shared, run_id=self.run_id, price=self._price, clock=self.clock, emit=self._emit, at=at)

    def _new_budgets(self) -> tuple[Budget, ...]:
        """The budgets of the run: its own, what it holds of a shared one, and a share of each of
        its caller's.
        """
        own = (self._supervisor.budget, self.budget_hold.grant if self.budget_hold is not None else None)
        above = self._caller.budgets if self._caller is not None else ()
        return (*(budget for budget in own if budget is not None), *(budget.share() for budget in above))

    def _known_price(self) -> Price | None:
        """The price of the model, by the supervisor's own prices or by those of the runs above.
        Raises `ConfigError` if a limit in US dollars needs a price that is not known.
        """
        model = self._supervisor.model.name
        own = (price for above in self.supervisors if (price := price_of(above.prices, model)) is not None)
        price = next(own, None) or list_price(model)
        for above in self.supervisors:
            must_know_price(price, above.stop_when, above.budget, model, f"prices={{{model!r}: monitor.Price(...)}}")
        return price

    def _limits(self) -> Condition | None:
        """The limits of the run, without its budget."""
        supervisor = self._supervisor
        if supervisor.limits_given:
            return supervisor.stop_when
        if self._as_tool:
            return SUBAGENT_LIMITS
        budgets = supervisor.budget.chain if supervisor.budget is not None else ()
        bounded = any(budget.tokens is not None or budget.usd is not None for budget in budgets)
        return None if bounded else DEFAULT_LIMITS

    def _new_record(self, task: str, call: str) -> RunRecord:
        """The record of a new run. `call`: the key of the call that a nested run is for."""
        if self._caller is None:
            return RunRecord(id=self.run_id, agent=self._agent, data={TASK: task})
        above, data = self._caller.run_id, {TASK: task, CALL: call}
        return RunRecord(id=self.run_id, parent_run=above, agent=self._agent, purpose=SUBAGENT, data=data)

    def _new_goal(self, log: InputLog | None) -> Goal:
        """The outputs and the plan of this run. `log`: records what the goal is asked."""
        supervisor = self._supervisor
        plan = supervisor.plan.fresh() if supervisor.plan is not None else None
        outputs = supervisor.outputs.fresh() if supervisor.outputs is not None else None
        made = Goal if log is None else partial(RecordingGoal, log)
        return made(outputs, plan, max_nudges=supervisor.requests.max_nudges)

    def _new_core(self, task: str, log: InputLog | None) -> RunCore:
        """The core that decides this run. Detectors and policy are copies: a supervisor has many
        runs. `log`: records what the core takes in.
        """
        supervisor, caller = self._supervisor, self._caller
        return (RunCore if log is None else partial(RecordingCore, log))(
            stop_when=self._limits(),
            detectors=default_detectors() if supervisor.detectors is None else copy.deepcopy(supervisor.detectors),
            policy=copy.deepcopy(supervisor.policy),
            emit=self._emit,
            keep_text_chars=supervisor.requests.keep_text_chars,
            price=self._price,
            budgets=self.budgets,
            goal=self.goal,
            last_turn=supervisor.last_turn,
            cuts=True,
            supervised=True,
            parent=caller.core if caller is not None else None,
            judges=supervisor.judges,
            task=task,
            window=supervisor.window,
            loop_key=self._tools.loop_key,
        )

    def _new_session(
        self,
        store: SessionStore,
        record: RunRecord,
        given: InitialHistory,
        first: Sequence[UserMessage],
        log: InputLog | None,
        *,
        may_go_on: bool,
    ) -> RunSession:
        """What writes the run into its session."""
        turns = lambda: self.core.turns  # noqa: E731 - the number changes
        session = RunSession(
            recorder=Recorder(store, self.history, record, reply=self._reply, turn=turns, log=log),
            history=self.history,
            valid_history=self._valid_history,
            given=given,
            take_in=self._supervisor.taken_in,
            first=first,
            may_go_on=may_go_on,
            refuses=self._supervisor.calls.unfinished == "refuse",
            resumed=self.resumed,
            counts_on=self.resumed and record.state is not RunStage.ENDED,
            log=log,
        )
        self.delivery.write_to(session.recorder)
        return session

    def _new_context(self) -> RunContext:
        """What keeps the history inside the window."""
        supervisor = self._supervisor
        return RunContext(
            supervisor.compaction,
            self.history,
            model=supervisor.model,
            window=supervisor.window,
            run=RunServices(
                clock=self.clock,
                emit=self._tell_of_context,
                close_grace_s=supervisor.close_grace_s,
                at=self.core.at,
                turns=lambda: self.core.turns,
                facts=lambda: frontier(self.goal),
                keep=lambda text: self.calls.kept_text(text),  # noqa: PLW0108 - the calls are made later
                charge=self._charge_compaction,
                record=self.session.recorder.compactions if self.session is not None else CompactionNumbers(),
            ),
            fixed=lambda: (self._instructions, tuple(self.calls.offered.specs())),
            form=supervisor.form,
        )

    def _new_calls(self, run: CallingRun) -> Calls:
        """What carries out the calls of this run."""
        supervisor = self._supervisor
        options, results = supervisor.calls, supervisor.results
        if self.session is not None:
            options = replace(options, ledger=self.session.recorder)
        return Calls(
            options,
            results,
            self._tools,
            core=self.core,
            goal=self.goal,
            context=self.context,
            work=self.work,
            delivery=self.delivery,
            clock=self.clock,
            close_grace_s=supervisor.close_grace_s,
            run=run,
            run_id=self.run_id,
            deps=self.deps,
            summary=summarise_with(
                results.summary,
                clock=self.clock,
                close_grace_s=supervisor.close_grace_s,
                charge=self._charge_compaction,
            ),
            variables=supervisor.instructions.variables,
            agent=self._agent,
        )

    def _new_loop(self) -> TurnLoop:
        """The loop of turns, with the judges and the messages of people beside it."""
        supervisor, session = self._supervisor, self.session
        return TurnLoop(
            supervisor,
            self.core,
            clock=self.clock,
            history=self.history,
            instructions=self._instructions,
            valid_history=self._valid_history,
            context=self.context,
            judges=JudgeTasks(self.core, clock=self.clock, close_grace_s=supervisor.close_grace_s, wake=self.wake),
            calls=self.calls,
            work=self.work,
            delivery=self.delivery,
            steering=Steering(
                core=self.core,
                run=self.run_id,
                clock=self.clock,
                history=self._valid_history,
                recorder=session.recorder if session is not None else None,
                mailbox=session.recorder.store.mailbox if session is not None else None,
            ),
            budget_hold=self.budget_hold,
            gate=self._new_gate(),
        )

    def _new_gate(self) -> OutageGate | None:
        """Where the run waits for outages: by its own supervisor's, else by those of a run above.
        A nested run counts as a part of the outermost run.
        """
        given = (one.requests.outages for one in self.supervisors)
        outages = next((one for one in given if one is not None), None)
        if outages is None:
            return None
        return OutageGate(
            outages,
            run=lambda: self.delivery.identity.root,
            model=self._supervisor.model.name,
            clock=self.clock,
            emit=self._emit,
            at=lambda: self.core.at(self._now()),
            turn=lambda: self.core.turns,
        )

    def identity(self) -> RunIdentity:
        """The identity of a run that begins now."""
        above = self._caller.delivery.identity if self._caller is not None else None
        return RunIdentity(
            run=self.run_id,
            root=above.root if above is not None else self.run_id,
            parent=above.run if above is not None else None,
            call=self._as_call,
            agent=self._agent,
            model=self._supervisor.model.name,
            began_s=time.time(),
        )

    def wake(self) -> None:
        """Make each pending wait check the deadline. May be called from any thread or signal
        handler.
        """
        self.loop.wake()
        self.work.wake()

    def _reply(self) -> AssistantMessage | None:
        """The message that the model has just made, without results."""
        content, turn = self.core.reply(self._supervisor.requests.looped_text), self.core.turn
        return AssistantMessage(content, (), turn.finish_reason) if content and turn is not None else None

    def _charge_compaction(self, cost: AskCost) -> None:
        """Charge the run for a summary of its history or of a result. A pending read sees the new
        cost at once.
        """
        self.core.charge_compaction(cost, self._now())
        self.wake()

    def _tell_of_context(self, event: Event) -> None:
        """Emit an event of a compaction. The judges read that it has finished."""
        if isinstance(event, CompactionFinished):
            self.core.compacted(event)
        self._emit(event)

    def _repaired(self, repairs: tuple[Repair, ...], problems: tuple[str, ...]) -> None:
        self._emit(HistoryRepaired(self.core.at(self._now()), self.core.turns, repairs, problems))


def _words(task: str | UserMessage | None) -> str:
    if task is None or isinstance(task, str):
        return task or ""
    return " ".join(part.text for part in task.content if isinstance(part, Text))


def _said_by_others(task: str | UserMessage) -> UserMessage:
    """The task as the model reads it: text that imitates the monitor's messages is escaped, because
    another model may have written it.
    """
    if isinstance(task, str):
        return UserMessage((Text(foreign(task)),))
    content = tuple(Text(foreign(part.text)) if isinstance(part, Text) else part for part in task.content)
    return task if content == task.content else replace(task, content=content)
