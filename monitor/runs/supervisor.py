"""`Supervisor`: drives whole agent runs.

    model = monitor.model("google:gemini-2.5-flash")
    supervisor = monitor.Supervisor(model, tools=[search], outputs={"summary": str})
    outcome = await supervisor.run("What changed in anyio 4.11?")

A `Supervisor` is a description and can be used any number of times; a `Run` is one use of it, and
holds the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from monitor._util.codec import to_plain
from monitor._util.explained_options import explains_options
from monitor._util.hashing import fingerprint
from monitor.errors import ConfigError, ToolError
from monitor.guard.options import of_the_supervisor
from monitor.guard.streams.wait import current_task, run_in_own_loop
from monitor.messages import Message, UserMessage
from monitor.models import ToolSpec
from monitor.outcome import Outcome, OutputT
from monitor.runs.record.session_reading import nested_in, outcome_in
from monitor.runs.run_parts import RunParts, RunRequest
from monitor.runs.supervised_run import Run
from monitor.runs.supervisor_options import RunOptions, checked_session
from monitor.sessions.closed_runs import MAIN, RunRecord, RunStage, SessionStore
from monitor.sessions.postgres.postgres_session import in_use
from monitor.tools.base import Tool, ToolContext, check_name
from monitor.wires.fields import RawMessage


class Supervisor(RunOptions[OutputT]):
    """A description of runs: what they do, with which parts, and within which limits.

    `Supervisor[Review]`, if `outputs=Review`: the `output` of its outcomes is a `Review`.

    What a run does:

    - `model`: e.g. `monitor.model("google:gemini-2.5-flash")`. `requests`: a
      `monitor.runs.Requests`, which says how it is asked: settings, choice of tools, retries.
    - `agent`: a name for the envelopes of its events, such as `"researcher"`. A run that is called
      as a tool is named like the tool, unless it has a name.
    - `instructions`: the system prompt, or a `monitor.runs.Instructions`, which also has the values
      of `${name}` in the prompt, and the notes behind it.
    - `tools`: Python functions, `monitor.tool`s, toolsets, other supervisors' `as_tool()`.
    - `outputs`: what the run must emit: a dict of types, a pydantic model class, a dataclass, a
      TypedDict, or a union of classes.
    - `results`: a `monitor.runs.Results`: what the model reads of the results of its tools, and
      where the rest is kept. By default a result above 40,000 characters or 2,000 lines is cut when
      it comes, and the rest is lost.
    - `plan`: the steps of the task.
    - `history`: messages before the task, for runs that are started without a history. They may be
      in any state: they are repaired, and `HistoryRepaired` lists the repairs.

    How its calls are carried out:

    - `deps`: clients, settings, whatever the tools need: they get it as `context.deps`. Subagents
      without `deps` of their own get it too.
    - `calls`: a `monitor.runs.ToolCalls`: which calls need a person, who is asked, how many run at
      once, which tools are offered, and where calls are recorded.
    - `session`: e.g. `monitor.sessions.SQLiteSession(path)`, or the address of one in PostgreSQL,
      `"postgresql://user@host/db#name"`, keeps the conversation, the calls and the events of its
      runs. It is their ledger as well. A run whose process has died goes on with `resume`.

    When a run ends:

    - `stop_when`: a condition; `None` is no limit. Without `stop_when` and without a budget that
      has a limit, a run has 100 turns and one hour; as a tool it has 30 turns and 10 minutes.
    - `budget`: tokens and money, shared by all runs with the same object. `prices`: a `Price`, or
      one for each model name; for other models the list prices count.
    - `last_turn`: one more turn before a limit ends the run; `None` is off.

    What watches a run:

    - `detectors`: a list that replaces the default ones; `None` is off.
    - `judge`: who looks at the run from time to time, beside it, and steers it: a model, its name,
      a judge, or several. By default the run's own model, for at most 3 % of its tokens. `None` is
      off.
    - `policy`: what follows from a detection; by default, and for `None`, the `Ladder`.
    - `sinks`: they receive the events.

    The context of a run:

    - `window`: the model's window in tokens, if the table of known models does not have it or is
      wrong. If the window is too small for an agent, the run ends before the first call.
    - `compaction`: how the history is kept inside the window. `None` is off, also after a
      provider's refusal.

    The time of a run:

    - `clock`: by default the system's. `close_grace_s`: how long closing a source may take, in
      seconds (`None`: without a bound).

    Detectors, policy and plan are copied for every run. Until release 0.4 the options of
    `Instructions`, `ToolCalls`, `Results` and `Requests` may also be given by themselves, under
    their earlier names. A `DeprecationWarning` says the line to type.
    """

    @explains_options(example="await supervisor.run('What to do')", explain=of_the_supervisor)
    async def run(
        self,
        task: str | UserMessage,
        *,
        history: Sequence[RawMessage | Message] | None = None,
        session: SessionStore | str | None = None,
        run_id: str | None = None,
        deps: object = None,
    ) -> Outcome[OutputT]:
        """Drive one run to its end. Every end is an `Outcome`; a cancellation from outside is
        raised further.

        `history`: messages before the task, in the place of the supervisor's own. `session`: in the
        place of the supervisor's own; the run goes on with the conversation that it holds. A
        session that holds messages takes no other history. `run_id`: names the run in its ledger,
        and is a part of the idempotency key of its tools; by default a new one. `deps`: in the
        place of the supervisor's own.
        """
        asked = RunRequest(task=task, history=history, session=session, run_id=run_id, deps=deps)
        return await _ended(Run(self, asked))

    async def resume(
        self, session: SessionStore | str | None = None, *, run: str | None = None, deps: object = None
    ) -> Outcome[OutputT]:
        """Go on with the newest run of `session` that has not ended: its process died, or it waits
        for an approval. `session`: by default the supervisor's own. `run`: the id of another run,
        which may have ended, e.g. by an abort or a limit.

        - A call that was stored and not begun is made now.
        - A call that was running may have had its effect. It is made again only if its tool is
          idempotent, with the same key. Otherwise the model reads that its effect is unknown.
        - Outputs that were emitted, and the plan, are as they were. Limits and budgets count what
          the run has used before, and the detectors see its last turns again.
        - A subagent that was cut off goes on when the call that began it is made again.

        Raises `ConfigError` if there is no session, no such run, or every run has ended. No other
        process may carry out the run: a `SQLiteSession` has one owner.
        """
        return await _ended(await self._resumed(session, run, deps, streams=False))

    async def resume_stream(
        self, session: SessionStore | str | None = None, *, run: str | None = None, deps: object = None
    ) -> Run:
        """`resume`, event by event:
        `async with await supervisor.resume_stream() as run: async for event in run`.
        """
        return await self._resumed(session, run, deps, streams=True)

    async def _resumed(
        self, session: SessionStore | str | None, run: str | None, deps: object, *, streams: bool
    ) -> Run:
        store = checked_session(session, None) or self.session
        if store is None:
            raise ConfigError(
                "resume needs a session: write await supervisor.resume(session), or monitor.Supervisor(model,"
                " session=session)"
            )
        async with in_use(store):
            of_user = [one for one in await store.runs() if one.purpose == MAIN]
        going = [one for one in of_user if (one.state is not RunStage.ENDED if run is None else one.id == run)]
        if not going:
            raise _nothing_to_resume(of_user, run)
        record = replace(going[-1], ended_at_s=None)
        return Run(self, RunRequest(streams=streams, session=store, resumed=record, deps=deps))

    @explains_options(example="supervisor.run_sync('What to do')", explain=of_the_supervisor)
    def run_sync(
        self,
        task: str | UserMessage,
        *,
        history: Sequence[RawMessage | Message] | None = None,
        session: SessionStore | str | None = None,
        run_id: str | None = None,
        deps: object = None,
    ) -> Outcome[OutputT]:
        """`run` for a program without an event loop. All such runs of a thread share one loop of
        asyncio, so a client may be used again.

        Raises `ConfigError` inside an event loop, which it would stop: use `await run(...)` there.
        """
        if current_task() is not None:
            raise ConfigError("run_sync would stop the event loop that is running: use 'await supervisor.run(...)'")
        return run_in_own_loop(partial(self.run, task, history=history, session=session, run_id=run_id, deps=deps))

    @explains_options(example="async with supervisor.stream('What to do') as run:", explain=of_the_supervisor)
    def stream(
        self,
        task: str | UserMessage,
        *,
        history: Sequence[RawMessage | Message] | None = None,
        session: SessionStore | str | None = None,
        run_id: str | None = None,
        deps: object = None,
    ) -> Run[OutputT]:
        """One run, event by event:
        `async with supervisor.stream(task) as run: async for event in run`.
        """
        asked = RunRequest(task=task, streams=True, history=history, session=session, run_id=run_id, deps=deps)
        return Run(self, asked)

    @explains_options(example="supervisor.as_tool(name='researcher', description='Finds facts.')")
    def as_tool(self, *, name: str, description: str) -> Tool:
        """The supervisor as a tool of another one: a call is a run, bound by the caller's abort,
        limits and budget.

        Without a `stop_when` of its own the run has 30 turns and 10 minutes; with `stop_when=None`,
        only the limits of its caller. The tool takes one argument, `task`. Its result is the
        emitted outputs, or the text of the answer. If the run does not reach its goal, the result
        is an error that names the reason.
        """
        return _Subagent(self, name, description)


def _nothing_to_resume(runs: Sequence[RunRecord], run: str | None) -> ConfigError:
    """The error of a resume that finds no run: why, and the line to type."""
    if not runs:
        return ConfigError(
            "this session is empty, so it has no run to resume: write await supervisor.run(task, session=session)"
        )
    last = runs[-1].id
    if run is not None:
        return ConfigError(
            f"no run of this session has the id {run!r}; its newest run is {last!r}: write await"
            f" supervisor.resume(session, run={last!r})"
        )
    return ConfigError(
        "every run of this session has ended: write await supervisor.run(task, session=session) for a new run that"
        f" goes on with its conversation, or await supervisor.resume(session, run={last!r}) to go on with the last one"
    )


class _Subagent:
    """A supervisor that is a tool of another one."""

    resumes = True

    def __init__(self, supervisor: Supervisor, name: str, description: str) -> None:
        self._supervisor = supervisor
        schema = {
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "What to do, with all that must be known for it."}
            },
            "required": ["task"],
            "additionalProperties": False,
        }
        self.spec = ToolSpec(check_name(name), description, schema)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Run the supervisor. Raises `ToolError` if the run does not reach its goal."""
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip() or set(arguments) != {"task"}:
            raise ToolError("give one argument, task: a text that says what to do")
        caller = context.run.parts if isinstance(context.run, Run) else None
        outcome = await self._outcome(task, caller, context)
        if not outcome.ok:
            emitted = f" Emitted before that: {_as_json(outcome.emitted)}" if outcome.emitted else ""
            raise ToolError(f"the subagent did not reach its goal: {outcome.reason.value}: {outcome.detail}.{emitted}")
        return outcome.text if outcome.output is None else _as_json(outcome.output)

    async def _outcome(self, task: str, caller: RunParts | None, context: ToolContext) -> Outcome[Any]:
        """Drive the run to its end. A run that this call has begun before, in a process that died,
        goes on; one that has ended is not made again.
        """
        call, began = context.idempotency_key, None
        if caller is not None and caller.resumed and caller.store is not None:
            began = await nested_in(caller.store, caller.run_id, call)
            if began is not None and began.state is RunStage.ENDED:
                known = await outcome_in(caller.store, began.id)
                if known is not None:
                    return known
        asked = RunRequest(caller=caller, as_tool=self.spec.name, call=call)
        if caller is not None:
            asked = replace(asked, as_call=context.call.id)
        if began is not None:
            return await _ended(Run(self._supervisor, replace(asked, resumed=began)))
        if caller is not None and caller.store is not None:
            asked = replace(asked, run_id=fingerprint(f"{caller.run_id} {call}".encode()))
        return await _ended(Run(self._supervisor, replace(asked, task=task)))


async def _ended(run: Run[OutputT]) -> Outcome[OutputT]:
    """Drive a run to its end, in a task."""
    async with run:
        async for _ in run:
            pass
    return run.outcome


def _as_json(value: object) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False)
