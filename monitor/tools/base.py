"""The interface of a tool, its traits, and the context that it gets with each call."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias

import anyio
import anyio.lowlevel

from monitor._util.argument_checks import check_number
from monitor._util.checked_words import checked
from monitor._util.codec import to_plain
from monitor._util.explained_options import explained
from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.goal.goal import RESERVED
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallRecord, CallState, Message, SteerReceipt
from monitor.models import ToolSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from monitor.context.compaction.hooks import CompactionResult

    DepsT = TypeVar("DepsT", default=Any, covariant=True)  # noqa: PLC0105 - as its users call it
else:  # the default is for type checkers, and Python 3.13 is the first that takes it
    from typing import TypeVar

    DepsT = TypeVar("DepsT", covariant=True)  # noqa: PLC0105 - as above

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names of tools that OpenAI, Anthropic and Gemini all accept."""
EXCERPT_CHARS = 100
"""The most characters of wrong arguments that are shown to the model."""


class CallingRun:
    """The run that makes a call, as far as its tool may use it; a `monitor.Run` is one.

    This class takes the place of the run where there is none: in a test, or in a loop that somebody
    else wrote.
    """

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far, as the model gets them."""
        return ()

    def paused(self) -> AbstractContextManager[None]:
        """Within this, the run's deadlines stand still, because a person is asked."""
        return nullcontext()

    def abort(self, why: str = "aborted") -> None:
        """End the run now. May be called from any task, thread or signal handler."""

    async def compact(self) -> CompactionResult:
        """Make the history of the run smaller now."""
        raise ConfigError("this call is made by no run, so there is no history to compact")

    async def steer(
        self, text: str, *, now: bool = False, by: str = "", data: bool = False, id: str | None = None
    ) -> SteerReceipt:
        """Say something to the model before its next call, e.g. with `data` the result of a task in
        the background.
        """
        raise ConfigError("this call is made by no run, so there is no run to steer")

    async def follow_up(self, text: str, *, by: str = "", data: bool = False, id: str | None = None) -> SteerReceipt:
        """Say something to the model where the run would end."""
        raise ConfigError("this call is made by no run, so there is no run to steer")


NO_RUN = CallingRun()


class CallReporter:
    """Takes the output and the progress of a tool while it runs. This class ignores them all."""

    async def output(self, text: str, stream: str) -> None:
        """A piece of live output. Waits while nobody reads."""

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        """The tool has made progress. May be called from any thread."""

    def process_started(self, pid: int) -> None:
        """The tool has started the process `pid`. May be called from any thread."""

    def thread_left(self) -> None:
        """The call was ended, and the worker thread of its tool goes on."""

    def thread_ended(self) -> None:
        """The abandoned thread has ended now. Called from that thread."""


EVERYTHING: Final = "everything"
"""Among `ToolContext.opened`: this call is made outside of the sandbox."""
NETWORK: Final = "the network"
SOMETHING: Final = "a file or a right that it does not have"
"""What a sandbox has kept a call from, where nobody can say it more closely."""


@dataclass(slots=True, frozen=True)
class ToolContext(Generic[DepsT]):
    """The facts that a tool may know about its call, and the means to report while it runs.

    `ToolContext[Clients]` of a tool that needs `Supervisor(deps=Clients(...))`: `context.deps` is a
    `Clients`.
    """

    call: ToolCall
    """The call that is carried out."""
    run: CallingRun = NO_RUN
    """The run that makes the call. A nested run shares its limits, and ends when it is aborted."""
    idempotency_key: str = field(default="", compare=False)
    """The key of the action, equal in every process, also when the call is made again after a
    crash. Send it to services that take one. See `monitor.messages.call_key`.
    """
    artifacts: Any = field(default=None, compare=False)
    """The run's store of full texts. `None`: it has none."""
    reporter: CallReporter | None = field(default=None, compare=False, repr=False)
    """Gets output and progress. `None`: they are dropped."""
    deps: DepsT = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # a tool that names its type is only run with them
    """The `deps` of the run: clients, settings, whatever the program gives to its tools. No model
    and no record sees them. `None`: the run has none.
    """

    overruled: bool = field(default=False, compare=False)
    """The call is made because its words were proven to be harmless, and nobody was asked. So no
    file of the workspace may name a program for it.
    """
    opened: frozenset[str] = field(default=frozenset(), compare=False)
    """What a person has allowed beyond the sandbox: `NETWORK`, paths, or `EVERYTHING`."""

    async def output(self, text: str, stream: str = "stdout") -> None:
        """Show a piece of live output as an event. Waits while the run's reader is behind."""
        if self.reporter is not None:
            await self.reporter.output(text, stream)

    def progress(self, done: float | None = None, total: float | None = None, note: str = "") -> None:
        """Report progress as an event. That extends the deadline of the tool, up to the hard one.
        May be called from a worker thread.
        """
        if self.reporter is not None:
            self.reporter.progress(done, total, note)

    def process_started(self, pid: int) -> None:
        """Report the process `pid`, which the tool has started, as an event. May be called from a
        worker thread.
        """
        if self.reporter is not None:
            self.reporter.process_started(pid)


ToolKind: TypeAlias = Literal["read", "edit", "execute", "other"]
"""The effect of a tool on the world. Reads run beside reads; edits and executions run in order."""
Keep: TypeAlias = Literal["ends", "head", "tail", "matches"]
"""The part of a result that the model gets, if the result is too long."""
MAX_CHARS: Final = 40_000
"""A result of more characters is cut. Source: Gemini CLI."""
MAX_LINES: Final = 2_000
"""A result of more lines is cut. Source: opencode, pi."""
_LEAST_CHARS: Final = 200
"""The smallest bound: a shorter text could not be read."""


@dataclass(slots=True, frozen=True)
class Bound:
    """The longest result that is not cut. Raises `ConfigError` for less than 200 characters or 4
    lines.
    """

    max_chars: int = MAX_CHARS
    max_lines: int = MAX_LINES

    def __post_init__(self) -> None:
        for name, least in (("max_chars", _LEAST_CHARS), ("max_lines", 4)):
            check_number(name, getattr(self, name), least)

    def holds(self, text: str) -> bool:
        """Whether `text` need not be cut."""
        return len(text) <= self.max_chars and text.count("\n") < self.max_lines


NeedsApproval: TypeAlias = bool | Callable[[Mapping[str, Any], ToolContext], bool]
LoopKey: TypeAlias = Callable[[Mapping[str, Any]], Any]


@dataclass(slots=True, frozen=True, kw_only=True)
class GuidanceContext:
    """The run for which a text of guidance is chosen."""

    call: ToolCall
    turn: int = 0
    """The number of the turn that made the call."""
    variables: Mapping[str, object] = field(default_factory=dict)
    """The `variables` of the supervisor: a user's group, a scenario, an arm of an experiment."""
    agent: str = ""
    """The name of the agent."""
    run: str = ""
    """The id of the run."""

    @property
    def group(self) -> str:
        """The variable `group`, as a text. Empty if there is none."""
        return str(self.variables.get("group", ""))


Guidance: TypeAlias = (
    str | Callable[[Mapping[str, Any]], str | None] | Callable[[Mapping[str, Any], GuidanceContext], str | None]
)
"""A text, or a function of the call's arguments, or of the arguments and the run."""


@explained(name="tool", example="monitor.tool(kind='read', timeout_s=30)")
@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class ToolTraits:
    """Facts that a tool states about itself besides its `spec`. Each is an attribute of the tool,
    and may be left out.
    """

    alone: bool = False
    """No other call is carried out at the same time."""
    kind: ToolKind = "other"
    """The effect of the tool on the world. An `other` tool runs beside all tools that are not
    alone.
    """
    command_argument: str | None = None
    """The name of the argument that holds a line for a shell. `None`: the argument `command`, if
    there is one; else no argument is known to be a line.
    """
    idempotent: bool = False
    """Another call with the same idempotency key has no second effect, so the call may be made
    again after a failure.
    """
    model_retries: int = 3
    """The number of times in a row that the tool may ask the model for another try:
    `monitor.tools.ToolRetry`.
    """
    resumes: bool = False
    """A call that ended with its process goes on when it is made again, in the same session and
    with the same idempotency key. So it is made again.
    """
    needs_approval: NeedsApproval = False
    """A person is asked before each call, or before those for which the function says so."""
    loop_key: LoopKey | None = None
    """The part of the arguments that identifies a call for the detectors of loops. `None`: all of
    them.
    """
    timeout_s: float | None = None
    """The most seconds without progress; a call that takes longer is an error result."""
    hard_timeout_s: float | None = None
    """The most seconds, whatever progress the tool reports. `None`: `timeout_s` is the limit,
    and progress does not extend it.
    """
    guidance: Guidance | None = None
    """A text for the model, which stands beside the result."""
    keep: Keep = "ends"
    """The part of a result that the model gets, if the result is too long."""


TRAITS = tuple(field.name for field in fields(ToolTraits))
_NO_TRAITS = ToolTraits()


def traits_of(tool: object) -> ToolTraits:
    """The traits of `tool`. An attribute that it does not have has the default."""
    return ToolTraits(**{name: getattr(tool, name, getattr(_NO_TRAITS, name)) for name in TRAITS})


@dataclass(slots=True, frozen=True)
class CallPlace:
    """The place in which a call takes effect. A tool may state it by `place(arguments)`."""

    root: Path
    """The real path of the folder in which the tool's relative paths begin."""
    directory: Path
    """The folder in which a command begins."""
    search_path: str | None = None
    """The `PATH` in which a command finds programs. `None`: that of this process."""
    reads_below: tuple[str, ...] = ()
    """Folders of which the call reads all files."""
    changes: tuple[str, ...] = ()
    """Files that the call changes, and that no argument names alone: those of a patch."""
    boxed: bool = False
    """A sandbox confines files, network and processes of the call."""
    overrules: bool = False
    """A call that is `ToolContext.overruled` gets an environment that overrules the settings of
    repositories.
    """


class Tool(Protocol):
    """Something that a model can call.

    The arguments of a call are checked against `spec.parameters` before a person is asked and
    before any call of the same response runs. A call that does not fit is answered with its faults.

    Optional are the attributes of `ToolTraits`, and `check(arguments)`, which raises a `ToolError`
    for what no schema can say. It is called behind the schema. `checks_schema = True` says that
    `check` does the work of the schema, so `spec.parameters` is not used. Optional too is
    `place(arguments)`, which says in which folder the call takes effect; see `CallPlace`.
    """

    @property
    def spec(self) -> ToolSpec:
        """Name, description and schema, as the model gets them."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext, /) -> object:
        """Carry out the call and return the answer. A text goes to the model as it is,
        `monitor.messages.Media` as media, and anything else as JSON.

        An exception becomes an error result. Of a `ToolError` it has the message alone, of any
        other exception the type too.
        """
        ...


def excerpt(value: object) -> str:
    """The beginning of `value`, which a model wrote, in quotes."""
    text = repr(value[: EXCERPT_CHARS + 1]) if isinstance(value, str) else repr(to_plain(value))
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}..."


def check_name(name: object) -> str:
    """`name`, if every provider accepts it as the name of a tool. Else raises `ConfigError`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"{excerpt(name)} cannot be the name of a tool: letters, digits, _ and -, beginning with a letter or _, at"
            " most 64; give name="
        )
    if name.lower() in RESERVED:
        raise ConfigError(f"a tool cannot be called {name!r}: the run answers that one itself; give another name=")
    return name


# --------------------------------------------------------------------------------------------------
# The parts around the calls of a run: what hears of them, and the admission of each.


class CallListener:
    """Is called with each step of a call while it is carried out. This class ignores them all."""

    listens = True
    """Whether `changed` has to be called for each step."""

    def changed(self, record: CallRecord) -> None:
        """A call has taken a step, which is stored."""

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        """A tool has written live output. This may wait until somebody has read it."""
        await anyio.lowlevel.checkpoint()

    def progressed(self, call: ToolCall, done: float | None, total: float | None, note: str) -> None:
        """A tool has reported how far its call is."""

    def process_started(self, call: ToolCall, pid: int) -> None:
        """A tool has started a process."""

    def dropped(self, call: ToolCall, why: str) -> None:
        """A tool has answered after its call had got another result."""

    async def requested(self, request: ApprovalRequest) -> None:
        """A person is about to be asked: when this returns, the question is on record."""

    async def answered(self, answer: ApprovalAnswer) -> None:
        """The question has got its answer: when this returns, the answer is on record."""

    async def ended(self) -> None:
        """A call has got its result, and others may take longer. This may wait until its end is on
        record.
        """


class _NoListener(CallListener):
    listens = False


NO_LISTENER = _NoListener()


@dataclass(slots=True, frozen=True)
@checked
class Admission:
    """Says whether a call may be made, and why not."""

    state: CallState | None = None
    """`None`: the call may be made. `DENIED`, `EXPIRED`: it ends in this state.
    `AWAITING_APPROVAL`: it stays open, and the run has to end, because a person will answer later.
    """
    text: str = ""
    """Why the call may not be made, for the model."""
    arguments: Mapping[str, Any] | None = None
    """The arguments to use instead of the model's."""
    approval: str | None = None
    """The id of the question that was asked."""
    overruled: bool = False
    """See `ToolContext.overruled`."""


ADMITTED: Final = Admission()


# --------------------------------------------------------------------------------------------------
# The clock of a run, and tasks beside the caller. Tools need them, and so does the harness.


class Alarm(Protocol):
    """A callback that `Clock.call_at` has scheduled."""

    def cancel(self) -> object:
        """Do not call the callback."""
        ...


class Clock(Protocol):
    """The clock of a run, which times its streams and its calls."""

    def now(self) -> float:
        """The time in seconds, which never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Alarm:
        """Call `callback` in the event loop's thread when `now()` has reached `when`."""
        ...


class Background:
    """A task beside the caller, in the same event loop, until it ends or is cancelled.

    `work` handles its own errors: an exception that it raises is a bug, which the event loop
    reports. `then` is called when the task has ended, also if it was cancelled before it began.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        then: Callable[[], object] = lambda: None,
        context: contextvars.Context | None = None,
    ) -> None:
        """`context`: the context variables that `work` sees; by default a copy of the caller's."""
        self._work = work
        self._then = then
        self._done = anyio.Event()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio  # noqa: PLC0415 - only a program that runs on trio needs it

            self._scope = trio.CancelScope()
            self._cancel: Callable[[], object] = self._scope.cancel
            spawn = partial(
                trio.lowlevel.spawn_system_task,
                self._in_scope,
                name=name,
                context=context or contextvars.copy_context(),
            )
            if context is None:
                spawn()
            else:  # the context may be the caller's own, which is in use now
                trio.lowlevel.current_trio_token().run_sync_soon(spawn)
            self._forget: Callable[[], object] = lambda: None
        else:
            self._task = loop.create_task(self._work(), name=name, context=context)
            self._task.add_done_callback(lambda _: self._has_ended())  # also if it is cancelled before it begins
            self._cancel = self._task.cancel
            self._forget = lambda: asyncio.tasks._unregister_task(self._task)  # noqa: SLF001 - documented, for custom schedulers

    def cancel(self) -> None:
        """Cancel the task. `wait()` returns when it has ended."""
        self._cancel()

    def give_up(self) -> None:
        """Abandon the task, which has swallowed its cancellation: cancel it once more, and stop
        waiting for it.

        asyncio closes its loop without the task. trio waits for a task that ignores every
        cancellation, as for any other.
        """
        self._cancel()
        self._forget()

    def forget(self) -> None:
        """Let the task run on without waiting for it. asyncio closes its loop without the task."""
        self._forget()

    @property
    def ended(self) -> bool:
        """Whether the task has come to its end."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when the task has ended."""
        await self._done.wait()

    async def _in_scope(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._has_ended()

    def _has_ended(self) -> None:
        self._done.set()
        self._then()


async def wait_until(clock: Clock, when: float, event: anyio.Event) -> None:
    """Wait for `event`, which is set when `now()` has reached `when`."""
    alarm = clock.call_at(when, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()


class LoopClock:
    """The clock of the event loop, for calls that no run makes."""

    def now(self) -> float:
        """The time of the event loop."""
        return anyio.current_time()

    def call_at(self, when: float, callback: Callable[[], object], /) -> Alarm:
        """Call `callback` in a task beside the caller, see `Clock.call_at`."""

        async def ring() -> None:
            await anyio.sleep_until(when)
            callback()

        return Background(ring, "alarm of a call")
