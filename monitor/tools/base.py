"""What a tool is, and carrying out the calls of one model response.

Whatever a call runs into is an answer that the model can read, with `is_error` set: no such tool,
arguments that do not fit, an exception. Three things are no answer and go on to the caller: a
cancellation from outside, an exception that ends programs (`KeyboardInterrupt`, `SystemExit`), and
an exception of the caller's own `finished`.

Every call runs in a task of its own. A cancellation from outside reaches that task by its group. An
`asyncio.CancelledError` may also leak out of something that the tool awaited. That is an error of
the tool, and must not pass for the end of the run. A tool's context variables stay its own, too.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import anyio.lowlevel

from monitor._util.arguments import closest, was_cut_off
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, ToolError, describe, message_of
from monitor.goal.goal import RESERVED
from monitor.messages import CUT_OFF, Message
from monitor.models import ToolSpec
from monitor.reasons import ToolErrorKind
from monitor.tools.returned import ToolAnswer, answered

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What OpenAI, Anthropic and Gemini all take for a tool's name."""
NAMES_SHOWN = 30
"""The most tools that are named to a model that called an unknown tool."""
EXCERPT_CHARS = 100
"""The most characters of wrong arguments that are shown to the model."""


class Compacted(Protocol):
    """What a compaction left; a `monitor.compaction.CompactionResult` is one."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history after it."""
        ...

    @property
    def tokens_before(self) -> int:
        """Tokens of the whole next request, as it would have been."""
        ...

    @property
    def tokens_after(self) -> int:
        """Tokens of the whole next request."""
        ...


class CallingRun(Protocol):
    """What a tool may do with the run that makes its call; a `monitor.Run` is one."""

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far, as the model is shown them."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """A person is being asked: the run's deadlines stand still meanwhile."""
        ...

    def abort(self, why: str = "aborted") -> None:
        """End the run now. From any task, thread or signal handler."""
        ...

    async def compact(self) -> Compacted:
        """Make the history smaller now."""
        ...


class NoRun:
    """Stands for the run where there is none: a call that a test carries out, or a loop of
    somebody's own.
    """

    history: tuple[Message, ...] = ()

    def paused(self) -> AbstractContextManager[None]:
        """Nothing stands still."""
        return nullcontext()

    def abort(self, why: str = "aborted") -> None:
        """There is nothing to end."""

    async def compact(self) -> Compacted:
        """There is nothing to compact."""
        raise ConfigError("this call is made by no run, so there is no history to compact")


NO_RUN = NoRun()


class CallReporter(Protocol):
    """Takes what a tool says while it runs; the scheduler is one."""

    async def output(self, text: str, stream: str) -> None:
        """A piece of live output. Waits while nobody reads."""
        ...

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        """The tool has come further. From any thread."""
        ...


@dataclass(slots=True, frozen=True)
class ToolContext:
    """What a tool may know of the call that it answers, and what it may say while it runs."""

    call: ToolCall
    run: CallingRun = NO_RUN
    """The run that makes the call; a nested run takes its limits and its abort from it."""
    idempotency_key: str = ""
    """The same for the same action in every process, also when the call is made again after a
    crash. Send it to services that take one. See `monitor.calls.call_key`.
    """
    artifacts: Any = None
    """The run's store of full texts. `None`: it has none."""
    reporter: CallReporter | None = None
    """Who is told of output and progress. `None`: nobody."""

    async def output(self, text: str, stream: str = "stdout") -> None:
        """Show a piece of live output as an event. Waits while the run's reader is behind."""
        if self.reporter is not None:
            await self.reporter.output(text, stream)

    def progress(self, done: float | None = None, total: float | None = None, note: str = "") -> None:
        """Say that the tool has come further, as an event. That extends its deadline up to the hard
        one. May be called from a worker thread.
        """
        if self.reporter is not None:
            self.reporter.progress(done, total, note)


ToolKind: TypeAlias = Literal["read", "edit", "execute", "other"]
"""What a tool does to the world. Reads run beside reads; edits and executions run in their order.
"""
Keep: TypeAlias = Literal["ends", "head", "tail", "matches"]
"""Which part of a result that is too long the model gets."""
NeedsApproval: TypeAlias = bool | Callable[[Mapping[str, Any], ToolContext], bool]
LoopKey: TypeAlias = Callable[[Mapping[str, Any]], Any]
Guidance: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]


@dataclass(slots=True, frozen=True, kw_only=True)
class ToolTraits:
    """What a tool says of itself besides its `spec`. Each is an attribute of the tool, and may be
    left out.
    """

    alone: bool = False
    """No other call is carried out at the same time."""
    kind: ToolKind = "other"
    """What it does to the world. An `other` tool runs beside all tools that are not alone."""
    idempotent: bool = False
    """Another call with the same idempotency key has no second effect, so the call may be made
    again after a failure.
    """
    needs_approval: NeedsApproval = False
    """A person is asked before each call, or before those for which the function says so."""
    loop_key: LoopKey | None = None
    """What identifies a call for the detectors of loops, made of its arguments. `None`: all of
    them.
    """
    timeout_s: float | None = None
    """The most seconds without progress; a call that takes longer is an error result."""
    hard_timeout_s: float | None = None
    """The most seconds, whatever progress the tool reports. `None`: `timeout_s` is the limit,
    and progress does not extend it.
    """
    guidance: Guidance | None = None
    """Said to the model beside the result."""
    keep: Keep = "ends"
    """Which part of a result that is too long the model gets."""


TRAITS = tuple(field.name for field in fields(ToolTraits))
_NO_TRAITS = ToolTraits()


def traits_of(tool: object) -> ToolTraits:
    """What `tool` says of itself; what it does not say has the default."""
    said = getattr(tool, "traits", None)
    if isinstance(said, ToolTraits):
        return said
    return ToolTraits(**{name: getattr(tool, name, getattr(_NO_TRAITS, name)) for name in TRAITS})


class Tool(Protocol):
    """Something that a model can call.

    Optional: the attributes of `ToolTraits`; and `check(arguments)`, which raises a `ToolError`
    where the arguments do not fit, and is called before any call of the same response runs.
    """

    @property
    def spec(self) -> ToolSpec:
        """Name, description and schema, as the model gets them."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Answer. Text goes to the model as it is, `monitor.Media` is shown to it, anything else
        goes as JSON.

        An exception is an error result: `ToolError` with its message as it is, any other with its
        type.
        """
        ...


async def carry_out(call: ToolCall, tools: Mapping[str, Tool], run: CallingRun | None = None) -> ToolResult:
    """The answer to one call, whatever the call runs into."""
    (result,) = await carry_out_all([call], tools, run)
    return result


async def carry_out_all(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    run: CallingRun | None = None,
    finished: Callable[[ToolResult, float], object] | None = None,
    *,
    others: Collection[str] = (),
) -> list[ToolResult]:
    """The answers to the calls of one model response, in the order of the calls, whichever is ready
    first.

    Calls run side by side. One of a tool that is `alone` waits for those before it, and those after
    it wait for it. `finished` is called with each result when it is there, and with the seconds
    that it took. `others`: names of tools that are carried out elsewhere; the answer to a call of
    an unknown tool names them too.
    """
    results: list[ToolResult] = []
    for alone, group in itertools.groupby(calls, lambda call: traits_of(tools.get(call.name)).alone):
        together = list(group)
        for batch in [[call] for call in together] if alone else [together]:
            # trio's task group lets one go by that strikes as its last task ends
            await anyio.lowlevel.checkpoint_if_cancelled()
            results += await _side_by_side(batch, tools, run, finished, others)
    return results


async def _side_by_side(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    run: CallingRun | None,
    finished: Callable[[ToolResult, float], object] | None,
    others: Collection[str],
) -> list[ToolResult]:
    results = [_failed(call, "Error: it ended without an answer") for call in calls]
    fatal: list[BaseException] = []

    async def answer(index: int, call: ToolCall) -> None:
        try:
            begun = anyio.current_time()
            results[index] = await _answer(call, tools, run, others)
            if finished is not None:
                finished(results[index], anyio.current_time() - begun)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, bare: the caller must not find it in a group
            fatal.append(error)
            group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(answer, index, call, name=f"tool {call.name}")
    finally:
        if fatal:
            raise fatal[0]
    return results


async def _answer(
    call: ToolCall, tools: Mapping[str, Tool], run: CallingRun | None, others: Collection[str]
) -> ToolResult:
    """Raises what is no answer: see the module."""
    cancelled = anyio.get_cancelled_exc_class()
    try:
        tool = tools.get(call.name)
        if tool is None:
            raise ToolError(_unknown(call.name, {*tools, *others}))
        arguments = _arguments(call.arguments)
        context = ToolContext(call, run if run is not None else NO_RUN)
        return _result(call, await tool.call(arguments, context))
    except Exception as error:  # noqa: BLE001 - a tool may fail as it likes
        return _failed(call, _error_text(error, cancelled))
    except BaseException as error:
        leaves = list(_leaves(error))
        if not all(isinstance(leaf, Exception | cancelled) for leaf in leaves):
            raise
        ends = [leaf for leaf in leaves if isinstance(leaf, cancelled)]
        if ends and anyio.current_effective_deadline() == -math.inf:  # the cancellation is meant for us
            raise ends[0] from None
        return _failed(call, _error_text(error, cancelled))


def _result(call: ToolCall, value: object) -> ToolResult:
    try:
        return answered_by(call, value)
    except ValueError as error:
        raise ToolError(str(error)) from None


def answered_by(call: ToolCall, value: object) -> ToolResult:
    """What a tool returned, as the result of `call`."""
    if not isinstance(value, ToolAnswer):
        text, media = answered(value)
        return ToolResult(call.id, call.name, text, media=media)
    text = value.text if value.status is None else f"{value.status}\n{value.text}".rstrip("\n")
    kind = value.error_kind or (ToolErrorKind.EXECUTION_FAILED if value.is_error else None)
    return ToolResult(call.id, call.name, text, value.is_error, answered(list(value.media))[1], error_kind=kind)


def _failed(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, text, is_error=True)


def _unknown(name: str, tools: Collection[str]) -> str:
    """In words that `UnknownTool` knows, too."""
    text = f"unknown tool {excerpt(name)}."
    if not tools:
        return f"{text} There are no tools; answer without one."
    if meant := closest(name, tools):
        text += f" Did you mean {meant}?"
    names = sorted(tools)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{text} The tools are: {', '.join(names[:NAMES_SHOWN])}{more}."


def _arguments(given: Any) -> Mapping[str, Any]:
    """A copy: what a tool does to its arguments must not change the history. Half a call is never
    carried out.
    """
    if given is None:
        return {}
    if was_cut_off(given):
        raise ToolError(CUT_OFF)
    if not isinstance(given, Mapping):
        raise ToolError(f"the arguments must be one JSON object; these are not: {excerpt(given)}")
    return copy.deepcopy(dict(given))


def excerpt(value: object) -> str:
    """The beginning of what a model wrote, quoted."""
    text = repr(value[: EXCERPT_CHARS + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}..."


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _error_text(error: BaseException, cancelled: type[BaseException]) -> str:
    """Of a group, what is in it: "unhandled errors in a TaskGroup" helps nobody."""
    return f"Error: {'; '.join(dict.fromkeys(_one_error(leaf, cancelled) for leaf in _leaves(error)))}"


def _one_error(error: BaseException, cancelled: type[BaseException]) -> str:
    if isinstance(error, cancelled):
        return "something that the tool waited for was cancelled"
    return (message_of(error) if isinstance(error, ToolError) else "") or describe(error)


def check_name(name: object) -> str:
    """`name`, if every provider takes it for a tool."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"{excerpt(name)} cannot be the name of a tool: letters, digits, _ and -, beginning with a letter or _, at"
            " most 64; give name="
        )
    if name in RESERVED:
        raise ConfigError(f"a tool cannot be called {name!r}: the run answers that one itself; give another name=")
    return name
