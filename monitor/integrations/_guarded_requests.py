"""Between two model calls of a framework's loop, results go to the guard, and the guard's verdict
goes into the next request.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CoroutineType
from typing import Any, Final, NoReturn, Self, TypeVar

from monitor.adapters.adapter import find_adapter
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.parts import PendingCall, SdkAdapter
from monitor.adapters.sdk_errors import causes
from monitor.chunks import Chunk, TurnFinished
from monitor.errors import ConfigError, TerminateReason
from monitor.guard.framework_guards import (
    Answered,
    GuardedAgent,
    GuardSource,
    HistoryEnd,
    HistoryPart,
    agents_of,
    guard_here,
)
from monitor.guard.guard_streams import GuardStreams, Watched
from monitor.models import ModelError
from monitor.outcome import StoppedByGuard, Turn
from monitor.sessions import Node, SessionStore
from monitor.verdicts import Hold, LastTurn, Nudge, RefuseCall, Stop, WithdrawTool
from monitor.wires.fields import finish_reason_of

T = TypeVar("T")

_BY_PROVIDER = "provider"


@dataclass(slots=True, frozen=True)
class RequestChange:
    """How the next request differs from the framework's own."""

    text: str | None = None
    """A user message that is sent after the others."""
    withdrawn: frozenset[str] = frozenset()
    """Tools that are no longer offered."""
    only: frozenset[str] = frozenset()
    """If not empty: the only tools that are offered."""

    def offers(self, tool: str) -> bool:
        """Whether the tool is part of the request."""
        return tool not in self.withdrawn and (not self.only or tool in self.only)


class GuardedRequests:
    """The model calls of a framework, between which the guard is asked. Each agent of the framework
    has its own guard, which `next_request` finds.
    """

    def __init__(self, guard: GuardSource, stopped: type[StoppedByGuard]) -> None:
        """`stopped`: the exception that leaves the framework's loop when the guard ends the run."""
        self.stopped = stopped
        self.guard = guard

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: a deep copy of a guarded model, agent or plugin is watched by the same guard."""
        return self

    def next_request(
        self,
        newest_first: Iterable[HistoryPart],
        *,
        key: Hashable | None = None,
        name: str = "",
        is_one_task: bool = False,
    ) -> GuardedRequest:
        """Pass on the results of the last response's calls. Returns the next request. Raises
        `stopped` if there must be none.

        `newest_first`: the parts of the framework's history. A result that was passed on before is
        left out, so a repeated request counts nothing twice. `key`, `name`, `is_one_task`: see
        `AgentGuards.find`.
        """
        end = HistoryEnd(newest_first)
        agent = agents_of(guard_here(self.guard)).find(end, key, name=name, is_one_task=is_one_task)
        for one in end.results:
            _take(agent, one)
        return GuardedRequest(agent, self.stopped, self._change(agent))

    def _change(self, agent: GuardedAgent) -> RequestChange:
        if not agent.begun and agent.guard.stop is None:
            agent.begun = True
            return RequestChange()
        match agent.guard.verdict():
            case Stop() as stop if is_final(stop):
                raise self.stopped(stop)
            case Hold(detection):
                detail = f"a person was to decide, and a framework's loop cannot wait: {detection.message}"
                agent.guard.abort(detail)
                agent.guard.verdict()  # decides it
                raise self.stopped(Stop(TerminateReason.ABORTED, detail, "abort", evidence=detection))
            case Nudge(text) | RefuseCall(text=text):
                return RequestChange(text, agent.withdrawn)
            case WithdrawTool(name, text):
                agent.withdrawn |= {name}
                return RequestChange(text, agent.withdrawn)
            case LastTurn() as last:
                return RequestChange(last.text, agent.withdrawn, frozenset(last.tools))
            case _:  # go on; the framework tries a failed call again; `Compact` is the framework's own business
                return RequestChange(withdrawn=agent.withdrawn)

    def take(self, results: Iterable[Answered], *, key: Hashable | None = None) -> None:
        """Pass on the results of the last response's calls, each once. For frameworks that show a
        result before the next request.
        """
        for one in results:
            agent = agents_of(guard_here(self.guard)).answered(key, one)
            if agent is not None:
                _take(agent, one)


def _take(agent: GuardedAgent, one: Answered) -> None:
    """Pass on a result, if its call has none yet. The name says which call is meant where the
    framework has changed the id.
    """
    waiting = agent.open_calls
    call = next((known for known in waiting if known.id == one.call_id), None)
    call = call or next((known for known in waiting if known.name == one.name), None)
    if call is not None:
        agent.guard.tool_result(call, one.result, is_error=one.is_error)


class GuardedRequest:
    """The next request of one agent."""

    def __init__(self, agent: GuardedAgent, stopped: type[StoppedByGuard], change: RequestChange) -> None:
        self.change = change
        """How it differs from the framework's own."""
        self.stopped = stopped
        self._guard = agent.guard

    def watched(self, source: Callable[[], AsyncIterator[T]], adapter: Any) -> GuardedEvents[T]:
        """Return the response that `source` opens as a stream behind the guard."""
        return GuardedEvents(source, self._guard.streams, adapter=adapter, request=self)

    def read(self, source: Callable[[], Iterable[T]], adapter: Any) -> Iterator[T]:
        """The objects of the response, unchanged, as a synchronous stream behind the guard. Raises
        `StoppedByGuard` when the guard stops the stream.
        """
        with self._guard.watch(source, adapter=adapter) as watched:
            yield from watched
        stop = self.ended(watched.turn)
        if stop is not None:
            raise self.stopped(stop, watched.turn)

    def ended(self, turn: Turn) -> Stop | None:
        """The response has ended. Returns why the run is over, if the guard has ended it.

        Raises the SDK's own exception if the model call failed, so that the framework retries or
        falls back as it would without a guard.
        """
        if turn.stopped is not None and is_final(turn.stopped):
            return turn.stopped
        if turn.error is not None:
            raise turn.error
        return None


class GuardedEvents(Watched[T]):
    """The objects of one stream, unchanged. At the end it raises `stopped` of `request` if the
    guard has ended the run, or the SDK's own exception if the model call failed.

    It enters its own block with the first read, and leaves it at the end, because a framework only
    iterates. If the framework drops it, the guard closes the source when its own block is left.
    """

    __slots__ = ("_first", "_reads", "_request")

    def __init__(
        self, source: Callable[[], AsyncIterator[T]], streams: GuardStreams, *, adapter: Any, request: GuardedRequest
    ) -> None:
        super().__init__(source, streams, adapter=adapter)
        self._request = request
        self._first: list[T] = []
        self._reads = False
        """Whether the block is entered, and no object waits to be given away."""

    async def begin(self) -> None:
        """Open the stream and wait for its first object. A failed opening is raised here."""
        with contextlib.suppress(StopAsyncIteration):
            self._first.append(await self.__anext__())
            self._reads = False

    def __anext__(self) -> CoroutineType[Any, Any, T]:  # not a coroutine of its own: each costs as much as a read
        return super().__anext__() if self._reads else self._begun()  # type: ignore[return-value] # what each of them is

    async def _begun(self) -> T:
        self._reads = True
        if self._first:
            return self._first.pop()
        await self.__aenter__()
        return await super().__anext__()

    async def _stop(self) -> NoReturn:
        await self.aclose()
        turn = self.turn
        stop = self._request.ended(turn)
        if stop is not None:
            raise self._request.stopped(stop, turn)
        raise StopAsyncIteration

    async def _interrupted(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the source, if the framework leaves the stream before its end."""
        if self._entered:
            await self.__aexit__(None, None, None)


def is_final(stop: Stop) -> bool:
    """Whether the run has ended. A failed model call alone does not end it: the call may be
    repeated.
    """
    return stop.source != _BY_PROVIDER or stop.reason is TerminateReason.LOOP_DETECTED


# --------------------------------------------------------------------------------------------------
# The parts that the adapters of frameworks share: a framework's exception has an SDK's behind it,
# and what it passes on of an answer is not always all.


class FrameworkAdapter(SdkAdapter):
    """Reads the streams of a framework. A subclass writes `_decode`. It also writes `finish` where
    calls are complete before the stream ends.
    """

    needs_finish = False  # a framework may not pass on why its model has stopped

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream
        self._begun: list[PendingCall] = []
        self._word: str | None = None
        """Why the model has stopped, in its own word."""

    def finish(self) -> Sequence[Chunk]:
        """The calls that were begun, and the finish reason if there was one."""
        chunks: list[Chunk] = [call.ended(cut_off=False) for call in self._begun]
        if self._word is not None:
            chunks.append(TurnFinished(finish_reason_of(self._word), self._word))
        return chunks

    def _begin(self, given: str | None, name: str, raw: object) -> PendingCall:
        """A call whose pieces follow. `given`: its id; without one it gets one of ours."""
        call = PendingCall(given or f"call_{self._stream}_{len(self._begun)}", name, raw, given=given)
        self._begun.append(call)
        return call

    def classify(self, error: BaseException) -> ModelError:
        return classify(error)

    def _gives(self, kind: str) -> None:
        """A part is of a kind other than text, thinking and calls."""
        if kind not in self.gave:
            self.gave = (*self.gave, kind)


def classify(error: BaseException) -> ModelError:
    """The failure, by the nearest exception of a known SDK among the causes of `error`; else by
    `error` itself, its HTTP status and its words.
    """
    for cause in causes(error):
        factory = find_adapter(cause)
        if factory is not None and not isinstance(cause, ConfigError):
            return factory(0).classify(cause)
    return OpenAIAdapter().classify(error)


def written(arguments: Any) -> str:
    """The arguments of a call as a text: a framework gives a text, an object or nothing."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


# --------------------------------------------------------------------------------------------------
# The newest nodes of one sort on a branch of a session.


async def newest_nodes(
    store: SessionStore, branch: str, number: int | None, is_wanted: Callable[[Node], bool]
) -> list[Node]:
    """The newest `number` nodes of the branch for which `is_wanted` answers `True`, oldest first.
    `None`: all. Little more of the branch is read than that needs.
    """
    last = number
    while True:
        path = await store.active_path(branch, last=last)
        found = [node for node in path if is_wanted(node)]
        if number is None or last is None:
            return found
        if len(found) >= number or len(path) < last:
            return found[len(found) - min(number, len(found)) :]
        last = 2 * last + 1  # nodes of other sorts stand between them


# --------------------------------------------------------------------------------------------------
# The end of a guarded run, for frameworks that may end without an exception.


def must_have(holder: object, name: str, package: str) -> None:
    """Raise `ConfigError` if a name of a framework that is not public is gone."""
    if not hasattr(holder, name):
        raise ConfigError(
            f"this version of {package} has no {name}, by which the guard watches it: use an older one, or the proxy"
        )


def check_exit_behavior(given: str) -> None:
    """Raise `ConfigError` for what is no `exit_behavior`."""
    if given not in {"end", "error"}:
        raise ConfigError(f"exit_behavior is 'end' or 'error', not {given!r}")


def reason_of(stopped: StoppedByGuard) -> dict[str, str]:
    """The reason as data, which a framework keeps beside its last message."""
    stop = stopped.stop
    return {"reason": stop.reason.value, "detail": stop.detail, "source": stop.source}


def last_words(stopped: StoppedByGuard) -> str:
    """The text of the last response until the run was ended, without the copies of a loop. If there
    is none, the reason: an empty text looks like an answer, and is no valid history.
    """
    turn = stopped.turn
    return (turn.text[: turn.loop_offset] if turn is not None else "") or str(stopped)


# --------------------------------------------------------------------------------------------------
# The guards of a model whose class is made at run time: it may stand behind several of them.

_PLACE: Final = "agent_monitor_guard_"
ModelT = TypeVar("ModelT")


def place_above(base: type) -> str:
    """The attribute in which a model keeps the guard of the class that is made of `base`. Each
    guard adds a class, so each has a place of its own.
    """
    return f"{_PLACE}{len(base.__mro__)}"


def is_behind(fields: Mapping[str, Any] | None, guard: GuardSource) -> bool:
    """Whether a model with these attributes is guarded by `guard` already. A second time would
    count each of its responses twice.
    """
    return any(name.startswith(_PLACE) and held.guard is guard for name, held in (fields or {}).items())


def class_as(of: type, base: type, members: Mapping[str, Any]) -> Any:
    """A class derived from `base`. Logs and traces show it with the name and the module of `of`."""
    return type(of.__name__, (base,), {"__module__": of.__module__, "__qualname__": of.__qualname__, **members})


def under_class(model: ModelT, kind: Any, held: Any) -> ModelT:
    """A pydantic model under `kind`, a class that is made of its own, with the guard that `held`
    has. Both have the same fields: what one of them changes, such as a counter, is changed in the
    other.
    """
    other = kind.__new__(kind)
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__"):
        object.__setattr__(other, slot, getattr(model, slot))
    private = {**(getattr(model, "__pydantic_private__", None) or {}), place_above(type(model)): held}
    object.__setattr__(other, "__pydantic_private__", private)
    made: ModelT = other
    return made


# --------------------------------------------------------------------------------------------------
# A wrapper that a framework, and its user, take for the thing that it wraps.
#
# Frameworks ask `isinstance(model, TheirConcreteModel)`, and users read and set fields of their
# model. A wrapper that is neither is noticed in a good run.


class StandIn:
    """The base of a wrapper of `wrapped`. It comes before the framework's class among the bases.

    - `isinstance` is true for the classes of the wrapped thing, and for those of the wrapper.
    - Its type has the name and the module of the wrapped thing's: logs and traces show them.
    - `repr`, and attributes that the wrapper does not define, are those of the wrapped thing. An
      attribute that is set is set there, unless the wrapper has set it before `wrapped`.
    - `forwards`, an argument of the class: a base whose public attributes are those of the wrapped
      thing, unless a class below it has its own. So are those that later versions add.
    - `copy.copy` and `copy.deepcopy` copy the wrapped thing. The copy has the same guard.
    - A wrapper cannot be pickled: its guard belongs to this process.
    """

    wrapped: Any

    def __init_subclass__(cls, *, forwards: type | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in forwards.__mro__[:-1] if forwards is not None else ():
            for name, value in vars(base).items():
                if not name.startswith("_") and inspect.getattr_static(cls, name) is value:
                    setattr(cls, name, _Forwarded(name, value))

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.wrapped.__class__ if "wrapped" in self.__dict__ else type(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "wrapped" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "wrapped":
            kinds: tuple[Any, Any] = type(self), type(value)
            vars(object)["__class__"].__set__(self, _named(*kinds))
        if name in self.__dict__ or "wrapped" not in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.wrapped, name, value)

    def __repr__(self) -> str:
        return repr(self.wrapped)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.wrapped)})

    def __copy__(self) -> Self:
        return self._around(copy.copy(self.wrapped))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._around(copy.deepcopy(self.wrapped, memo))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a guarded {type(self.wrapped).__name__} cannot be pickled: its guard belongs to this process")

    @staticmethod
    def _without(wrapped: Any, guard: Any) -> Any:
        """`wrapped` without a wrapper of the same guard, which would count each response twice."""
        while issubclass(type(wrapped), StandIn) and wrapped.__dict__["_requests"].guard is guard:
            wrapped = wrapped.wrapped
        return wrapped

    def _around(self, wrapped: Any) -> Self:
        """The same wrapper around another thing."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, wrapped=wrapped)
        return other


@cache
def _named(wrapper: Any, of: Any) -> Any:
    """The class of a wrapper under the name of the class that it stands for."""
    base = wrapper.__bases__[0] if "_stands_for" in vars(wrapper) else wrapper
    return class_as(of, base, {"_stands_for": of})


class _Forwarded:
    """An attribute of a framework's base class that is taken from the wrapped thing."""

    def __init__(self, name: str, of_base: Any) -> None:
        self._name = name
        self._of_base = of_base

    def __get__(self, wrapper: StandIn | None, owner: type) -> Any:
        if wrapper is not None:
            return getattr(wrapper.wrapped, self._name)
        bind = getattr(self._of_base, "__get__", None)
        return self._of_base if bind is None else bind(None, owner)
