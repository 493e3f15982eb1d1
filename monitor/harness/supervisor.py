"""Supervisor: drive a whole agent run to its goal, or to an honest reason.

    model = monitor.model("google:gemini-2.5-flash")
    supervisor = monitor.Supervisor(model, tools=[search], outputs={"summary": str})
    outcome = await supervisor.run("What changed in anyio 4.11?")

A `Supervisor` is a description and can be used any number of times; a `Run` is one use of it, and
holds the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from monitor._util.codec import to_plain
from monitor.context.raw import RawMessage
from monitor.errors import ToolError
from monitor.harness.options import RunOptions
from monitor.harness.run import Run
from monitor.messages import Message, UserMessage
from monitor.models import ToolSpec
from monitor.outcome import Outcome
from monitor.tools.base import Tool, ToolContext, check_name


class Supervisor(RunOptions):
    """What a run is to do, with what, and within which limits.

    What it does: `model`, e.g. `monitor.model("google:gemini-2.5-flash")`, with `model_settings`
    passed to the provider as they are. `instructions`: the system prompt, in which `${name}` is
    filled in from `variables`. `tools`: Python functions, `monitor.tool`s, other supervisors'
    `as_tool()`. `outputs`: what the run must emit, as a dict of types or a pydantic model class.
    `plan`: the steps of the task. `history`: messages that come before the task of a run that is
    given none itself, in any state: they are put in order, and `HistoryRepaired` tells what was
    done.

    When it ends: `stop_when`, a condition; `None` is no limit. Without one, and without a budget
    that has a limit, a run has 100 turns and one hour; as a tool it has 30 turns and 10 minutes.
    `budget`: tokens and money, shared by all that are given the same object. `prices`: a `Price`,
    or one for each model name, for `CostLimit` and budgets in US dollars. `max_nudges`: how often
    missing outputs are asked for. `last_turn`: instead of the end; `None` is off. `retries`: of
    failed model calls.

    What watches it: `detectors`, a list that replaces the default ones; `None` is off. `judge`: who
    looks at the run from time to time, beside it. `policy`: what follows from a detection; by
    default the `Ladder`. `looped_text`: what becomes of text that looped before it goes back to the
    model.

    Its context: `window` of the model, in tokens, where the table of known models is not to be
    believed; a run in one that is too small for an agent ends before the first call. `compaction`:
    how the history is kept inside it; `None` is off, also where the provider refuses a request for
    its size. `keep_text_chars`: how much of an answer stands in the outcome at most (`None`: all of
    it).

    Detectors, policy and plan are copied for every run.
    """

    async def run(
        self,
        task: str | UserMessage,
        *,
        history: Sequence[RawMessage | Message] | None = None,
        run_id: str | None = None,
    ) -> Outcome:
        """Drive one run to its end. However it ends, that is an `Outcome`; a cancellation from
        outside goes on.

        `history`: messages that come before the task, in the place of the supervisor's own.
        `run_id`: names the run in its ledger, and is a part of what tools get as their idempotency
        key; by default a new one.
        """
        async with Run(self, task, streams=False, history=history, run_id=run_id) as run:
            async for _ in run:
                pass
        return run.outcome

    def stream(
        self,
        task: str | UserMessage,
        *,
        history: Sequence[RawMessage | Message] | None = None,
        run_id: str | None = None,
    ) -> Run:
        """The same, event by event: `async with supervisor.stream(task) as run: async for event in
        run`.
        """
        return Run(self, task, streams=True, history=history, run_id=run_id)

    def as_tool(self, *, name: str, description: str) -> Tool:
        """This supervisor as a tool of another one: a call is a run, bound by the caller's abort,
        limits and budget.

        Without a `stop_when` of its own it has 30 turns and 10 minutes; with `stop_when=None`, only
        those of its caller. The tool takes one argument, `task`. Its result is the emitted outputs,
        or the text of the answer; a run that did not reach its goal is an error result that names
        the reason.
        """
        return _Subagent(self, name, description)


class _Subagent:
    """A supervisor as a tool."""

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
        """Run it. `ToolError` for a run that did not reach its goal."""
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip() or set(arguments) != {"task"}:
            raise ToolError("give one argument, task: a text that says what to do")
        caller = context.run.as_caller if isinstance(context.run, Run) else None
        async with Run(self._supervisor, task, streams=False, caller=caller, as_tool=True) as run:
            async for _ in run:
                pass
        outcome = run.outcome
        if not outcome.ok:
            emitted = f" Emitted before that: {_as_json(outcome.emitted)}" if outcome.emitted else ""
            raise ToolError(f"the subagent did not reach its goal: {outcome.reason.value}: {outcome.detail}.{emitted}")
        return outcome.text if outcome.output is None else _as_json(outcome.output)


def _as_json(value: object) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False)
