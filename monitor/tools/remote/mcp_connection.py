"""The connection to one MCP server. One task alone opens it, makes the calls and closes it, in an
event loop and a thread of its own: what a server sends is read there, however large it is.

Failure answered: one task opens a client and another closes it, which breaks every cancel scope of
the SDK. Here callers put their calls into a queue and wait for the results. So any task may call,
cancel and close.
"""

from __future__ import annotations

import contextvars
import json
import math
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel

from monitor._util.text import printable
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe, message_of
from monitor.tools.base import Background
from monitor.tools.remote.mcp_transport import Endpoint, McpTransport, sdk

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------
# The messages of an MCP server, without parts for which the SDK would refuse all of them.

SAID_CHARS: Final = 600
"""The most characters of an error that are read."""
MOST_DEPTH: Final = 150
"""The SDK reads no JSON that is nested deeper than 200, the limit of pydantic's parser."""
_SIGNS: Final = re.compile(r'["\\\[\]{}]')
"""What begins or ends a text, a list or an object, and the backslash."""


class CheckedMessages:
    """Checks the messages of one connection. `sdk`: the names of the SDK. `malformed` gets the
    reason for each tool that is declared wrongly, by its name.
    """

    def __init__(self, sdk: Any, version: Callable[[], str], malformed: dict[str, str]) -> None:
        self._sdk = sdk
        self._version = version
        self._malformed = malformed

    def checked(self, message: Any) -> Any:
        """The message, or what can be read of it."""
        if isinstance(message, ValueError):
            message = self._read_again(message)
        result = getattr(getattr(message, "message", None), "result", None)
        if not isinstance(result, dict) or "content" in result or not isinstance(listed := result.get("tools"), list):
            return message
        if not self._is_list(result, listed):
            result["tools"] = [one for one in listed if self._is_list(result, [one])]
        return message

    def _read_again(self, error: Any) -> Any:
        """The message that the SDK could not read for its depth, or for half a surrogate pair."""
        with suppress(ValueError, AttributeError, LookupError):
            fault = error.errors()[0]
            data = json.loads(shallow(fault["input"] if fault["type"] == "json_invalid" else ""))
            line = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
            read = self._sdk.types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            return self._sdk.SessionMessage(read)
        return error

    def _is_list(self, result: Mapping[str, Any], tools: list[Any]) -> bool:
        """Whether the SDK takes `tools` as a list of tools. A refused single one is noted."""
        data = {**result, "tools": tools}
        try:
            with suppress(KeyError):  # a version without a check of its own
                self._sdk.validate("tools/list", self._version(), data)
            self._sdk.types.ListToolsResult.model_validate(data, by_name=False)
        except ValueError as error:
            if len(tools) == 1:
                name = tools[0].get("name") if isinstance(tools[0], dict) else tools[0]
                self._malformed[str(name)[:100]] = said(error)
            return False
        return True


class WatchedStream:
    """A stream of messages that passes on what `check` makes of each, and says when it ended."""

    def __init__(self, stream: Any, ended: anyio.Event, check: Callable[[Any], Any]) -> None:
        self._stream = stream
        self._ended = ended
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.EndOfStream):
            self._ended.set()
            raise
        return self._check(message)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return cast("bool | None", await self._stream.__aexit__(*error))


def shallow(line: str) -> str:
    """A line of JSON, where what is nested deeper than `MOST_DEPTH` is a text that says so."""
    parts: list[str] = []
    depth = taken = 0
    in_text, escaped = False, -1
    for found in _SIGNS.finditer(line):
        sign, at = found[0], found.start()
        if at == escaped:
            continue
        if sign == "\\":
            escaped = at + 1
        elif sign == '"':
            in_text = not in_text
        elif in_text:
            continue
        elif sign in "[{":
            depth += 1
            if depth == MOST_DEPTH + 1:
                parts.append(line[taken:at])
        else:
            if depth == MOST_DEPTH + 1:
                parts.append('"(nested too deeply)"')
                taken = at + 1
            depth -= 1
    return "".join((*parts, line[taken:]))


def said(error: BaseException) -> str:
    """An error in one printable line."""
    text = message_of(error).partition("\n    For further information")[0]
    return printable(" ".join(text[:SAID_CHARS].split()))


MAX_PAGES: Final = 300
"""The most pages of a list of tools that are read: a server may never end its list."""
CLOSE_S: Final = 10.0
"""How long a close may take. The SDK's own steps need 6.5 s with a server that does not react."""
GIVE_UP_S: Final = 3.0
"""The seconds to wait for the task after its cancellation."""
FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
"""Seconds between a failed connection and the next attempt: 0.5 at first, then twice as long each
time, at most 30.
"""
ERROR_CHARS: Final = 600
"""The most characters of an error that are shown."""
MOST_QUESTIONS: Final = 3
"""The most questions to a person during one call. One at a time is asked; others are declined."""
QUESTION_CHARS: Final = 2_000
"""The most characters of a server's question to a person."""


@dataclass(slots=True, frozen=True)
class McpOffers:
    """What a server has besides tools, as the SDK lists it."""

    resources: tuple[Any, ...] = ()
    prompts: tuple[Any, ...] = ()


NOTHING: Final = McpOffers()

Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Asks a person what a server wants to know: its message, and the schema of the answer. `None`: it
was declined.
"""


@dataclass(slots=True, eq=False)
class McpCall:
    """One call on its way: made by the caller, carried out by the owner."""

    name: str
    """The name of the tool or the prompt, or the address of the resource."""
    arguments: dict[str, Any]
    progress: Callable[[float, float | None, str | None], Awaitable[None]]
    idempotent: bool = False
    """A second call has no second effect, so it is made again where the server has lost its
    session.
    """
    what: Literal["tool", "resource", "prompt"] = "tool"
    made_again: bool = False
    questions: int = 0
    """How many questions to a person were asked during the call."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: Exception | None = None
    scope: anyio.CancelScope | None = None
    abandoned: bool = False

    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        """End the call. Only the first end counts."""
        if not self.done.is_set():
            self.result, self.error = result, error
            self.done.set()

    def abandon(self) -> None:
        """The caller does not wait for the result any longer."""
        self.abandoned = True
        if self.scope is not None:
            self.scope.cancel()


Soon: TypeAlias = Callable[[Callable[[], object]], object]
"""Calls something in an event loop, from any thread."""


def soon_here() -> Soon:
    """For the event loop that runs here. What comes after its end is dropped."""
    native: Any = anyio.lowlevel.current_token().native_token
    call: Soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
    context = contextvars.copy_context()  # that of another thread would name its kind of event loop

    def soon(what: Callable[[], object]) -> None:
        with suppress(RuntimeError):
            call(partial(context.copy().run, what))

    return soon


async def done_there(soon: Soon, work: Callable[[], Awaitable[T]]) -> T:
    """What `work()` returns or raises in another event loop. A cancellation is passed on."""
    here, done = soon_here(), anyio.Event()
    outcome: list[tuple[T | None, Exception | None]] = []
    tasks: list[Background] = []

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    async def carried() -> None:
        try:
            outcome.append((await work(), None))
        except Exception as error:  # noqa: BLE001 - raised by the one that waits
            outcome.append((None, error))

    soon(lambda: tasks.append(Background(carried, "from another thread", then=lambda: here(done.set))))
    try:
        await done.wait()
    except BaseException:
        soon(cancel)
        raise
    value, error = outcome[0] if outcome else (None, ToolError("the MCP server was closed"))
    if error is not None:
        raise error
    return cast("T", value)


class OwnLoop:
    """An event loop in a thread of its own, until it is closed."""

    def __init__(self, name: str) -> None:
        self._soon: Soon | None = None
        self._stop: anyio.Event | None = None
        self._ready = threading.Event()
        threading.Thread(target=anyio.run, args=(self._run,), name=name, daemon=True).start()
        self._ready.wait()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work()` returns or raises there."""
        assert self._soon is not None  # noqa: S101 - it is ready
        return await done_there(self._soon, work)

    def close(self) -> None:
        """End the thread. What still runs in it is cancelled."""
        assert self._soon is not None  # noqa: S101 - the same
        assert self._stop is not None  # noqa: S101 - the same
        self._soon(self._stop.set)

    async def _run(self) -> None:
        self._soon, self._stop = soon_here(), anyio.Event()
        self._ready.set()
        await self._stop.wait()


class McpConnection:
    """One server, from the first connection to the close; it connects again when it is needed.

    `listed` is called with the server's tools whenever they have changed. All belongs to the event
    loop in which it was made.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        listed: Callable[[Sequence[Any], bool, McpOffers], object],
        elicit: Elicit | None = None,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._listed = listed
        self._elicit = elicit
        self._asking = False
        """A person is being asked."""
        self._sdk = sdk()
        self._transport = McpTransport(endpoint, self._sdk)
        self._queue: deque[McpCall] = deque()
        self._open: set[McpCall] = set()
        self._news = anyio.Event()
        self._lost = anyio.Event()
        self._stale = anyio.Event()
        self._version = "2025-11-25"
        """The version of the protocol that was agreed upon."""
        self._legacy = False
        """The server speaks a protocol before 2026, so it is not asked for a later one again."""
        self._closing = False
        self._attempt: anyio.CancelScope | None = None
        """The scope of the connection that is being made."""
        self._why = "it is not connected yet"
        self._failures = 0
        self._not_before = 0.0
        self._first = anyio.Event()
        """The first attempt to connect is over."""
        self.malformed: dict[str, str] = {}
        """Listed tools that are no declarations, each with what is wrong."""
        self.connects = 0
        """The number of times that a connection was made."""
        self._owner = Background(self._own, f"mcp {name}", then=self._settle_all)

    @property
    def connected(self) -> bool:
        """Whether calls are carried out at once."""
        return not self._lost.is_set() and self.connects > 0 and not self._closing

    async def started(self) -> None:
        """Wait for the first attempt to connect. Raises `ConfigError` where that failed."""
        await self._first.wait()
        if not self.connects:
            raise ConfigError(f"the MCP server {self._name!r} cannot be used: {self._why}")

    async def call(self, call: McpCall) -> Any:
        """The server's result. Raises `ToolError` where there is none."""
        if self._closing or self._owner.ended:
            raise self._no_answer("it was closed")
        self._open.add(call)
        self._queue.append(call)
        self._news.set()
        try:
            await call.done.wait()
        finally:
            self._open.discard(call)
            call.abandon()
        if call.error is not None:
            raise call.error
        return call.result

    async def close(self) -> None:
        """End the server. May be called from any task. It takes bounded time, and a cancellation
        does not interrupt it.
        """
        self._closing = True
        self._news.set()
        if self._attempt is not None:
            self._attempt.cancel()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_S):
                await self._owner.wait()
            if not self._owner.ended:
                self._owner.cancel()
                with anyio.move_on_after(GIVE_UP_S):
                    await self._owner.wait()
            if not self._owner.ended:
                self._owner.give_up()
        self._settle_all()
        self._transport.close()

    # ------------------------------------------------------------------ the owner's task

    async def _own(self) -> None:
        try:
            await self._connect([])
            while await self._asked():
                now = anyio.current_time()
                if now < self._not_before:
                    self._refuse(f"{self._why}; another attempt is made in {self._not_before - now:.1f} s")
                else:
                    await self._connect(self._taken())
        finally:
            self._first.set()
            self._settle_all()

    async def _connect(self, calls: list[McpCall]) -> None:
        """Connect, and serve calls until the connection ends or is closed."""
        self._lost, self._stale = anyio.Event(), anyio.Event()
        self._transport.session_gone = False
        had = self.connects
        try:
            limit = anyio.current_time() + self._endpoint.start_timeout_s
            with anyio.CancelScope(deadline=limit) as scope:
                self._attempt = scope
                async with self._client() as client:
                    self._version = client.protocol_version
                    self._legacy = self._version not in self._sdk.MODERN
                    await self._list(client)
                    self._attempt = None
                    scope.deadline = math.inf
                    self.connects += 1
                    self._failures = 0
                    self._first.set()
                    await self._serve(client, calls)
            if scope.cancelled_caught:
                raise TimeoutError(f"it did not answer within {self._endpoint.start_timeout_s:g} s")
            self._why = "its connection ended"
        except Exception as error:  # noqa: BLE001 - the SDK and the system may raise anything
            self._why = self._told(error)
        finally:
            self._attempt = None
            self._lost.set()
            self._transport.sweep()
        if self.connects == had:
            self._not_before = anyio.current_time() + min(FIRST_DELAY_S * 2**self._failures, LONGEST_DELAY_S)
            self._failures += 1
        self._first.set()
        for call in calls:
            if call not in self._queue:
                call.settle(error=self._no_answer(self._why))

    async def _serve(self, client: Any, calls: list[McpCall]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_lost, group.cancel_scope)
            group.start_soon(self._keep_listed, client)
            group.start_soon(self._listen, client)
            for call in calls:
                group.start_soon(self._carry_out, client, call)
            while await self._asked() and not self._lost.is_set():
                for call in self._taken():
                    group.start_soon(self._carry_out, client, call)
            group.cancel_scope.cancel()

    async def _until_lost(self, scope: anyio.CancelScope) -> None:
        await self._lost.wait()
        scope.cancel()

    async def _carry_out(self, client: Any, call: McpCall) -> None:
        if call.abandoned:
            return
        try:
            with anyio.CancelScope() as call.scope:
                call.settle(await _asked_of(client, call))
        except self._sdk.MCPError as error:
            # Servers use the number of an ended connection, -32000, for errors of their own.
            if self._transport.session_gone:
                self._lose_session(call)
            elif self._lost.is_set() or (error.code, error.message) == self._sdk.CLOSED:
                self._why = "its connection ended"
                self._lost.set()
                call.settle(error=self._no_answer("it ended during the call; what it did until then is not known"))
            else:
                call.settle(error=ToolError(f"the MCP server {self._name!r} answered: {said(error)}"))
        except Exception as error:  # noqa: BLE001 - a wrong answer may raise anything
            if _is_bad_answer(error):
                call.settle(error=self._no_answer(f"what it sent is no answer: {said(error)}"))
            else:
                self._why = self._told(error)
                self._lost.set()
                call.settle(error=self._no_answer(f"{self._why}; what it did until then is not known"))
        finally:  # also if a broken transport cancels everything that uses it
            why = "it was closed" if self._closing else "it ended"
            if call not in self._queue:
                call.settle(error=self._no_answer(f"{why} during the call; what it did until then is not known"))

    def _lose_session(self, call: McpCall) -> None:
        """Begin a new session. A call that may be made again is made again there, once."""
        self._why = "its session was gone"
        self._lost.set()
        if call.idempotent and not call.made_again and not call.abandoned:
            call.made_again = True
            self._queue.append(call)
            self._news.set()
        else:
            call.settle(
                error=self._no_answer("its session was gone; a new one is begun, and the call was not repeated")
            )

    async def _asked(self) -> bool:
        """Wait for a call, or for `close`. False: the connection has to be closed."""
        while not self._queue and not self._closing:
            await self._news.wait()
            self._news = anyio.Event()
        return not self._closing

    def _taken(self) -> list[McpCall]:
        calls = list(self._queue)
        self._queue.clear()
        return calls

    def _refuse(self, why: str) -> None:
        for call in self._taken():
            call.settle(error=self._no_answer(why))

    def _settle_all(self) -> None:
        for call in [*self._queue, *self._open]:
            call.settle(error=self._no_answer("it was closed"))

    # ------------------------------------------------------------------ the list of tools

    async def _list(self, client: Any) -> None:
        found: list[Any] = []
        self.malformed.clear()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                self._listed(found, True, await self._offers(client))  # noqa: FBT003 - complete
                return
            cursor = page.next_cursor
        self._listed(found, False, await self._offers(client))  # noqa: FBT003 - there is more

    async def _offers(self, client: Any) -> McpOffers:
        """The resources and the prompts of the server: the first page of each."""
        has, found = client.server_capabilities, NOTHING
        with suppress(self._sdk.MCPError, ValueError):  # tools can be used without them
            if has.resources is not None:
                found = replace(found, resources=tuple((await client.list_resources()).resources))
            if has.prompts is not None:
                found = replace(found, prompts=tuple((await client.list_prompts()).prompts))
        return found

    async def _keep_listed(self, client: Any) -> None:
        """Read the list again whenever the server says that it has changed."""
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            with suppress(Exception):  # the old list stays in use, and calls say what is wrong
                await self._list(client)

    async def _listen(self, client: Any) -> None:
        """Listen for changes of the list: servers of the protocol of 2026 inform only listeners."""
        if client.protocol_version not in self._sdk.MODERN:
            return
        delay_s = FIRST_DELAY_S
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    delay_s = FIRST_DELAY_S
                    async for _ in events:
                        self._stale.set()
            except self._sdk.MCPError:
                return  # a server need not offer it
            except Exception:  # noqa: BLE001, S110 - the stream was lost, so the list is read again below
                pass
            await anyio.sleep(delay_s)
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)
            self._stale.set()

    async def _heard(self, message: Any) -> None:
        """Handle a notification of the server. Other messages are ignored."""
        types = self._sdk.types
        lists = types.ToolListChangedNotification, types.ResourceListChangedNotification
        if isinstance(message, (*lists, types.PromptListChangedNotification)):
            self._stale.set()

    async def _elicited(self, context: Any, params: Any) -> Any:
        """Ask a person what the server asks. Addresses to visit are declined."""
        types = self._sdk.types
        call = next((one for one in self._open if one.scope is not None and one.questions < MOST_QUESTIONS), None)
        if self._elicit is None or params.mode != "form" or self._asking or call is None:
            return types.ElicitResult(action="decline")
        call.questions += 1
        self._asking = True
        schema = dict(params.requested_schema)
        try:
            content = await self._elicit(f"{self._name}: {printable(params.message[:QUESTION_CHARS])}", schema)
        finally:
            self._asking = False
        if content is None:
            return types.ElicitResult(action="decline")
        known = schema.get("properties") or {}
        return types.ElicitResult(action="accept", content={key: content[key] for key in content if key in known})

    # ------------------------------------------------------------------ the SDK

    def _client(self) -> Any:
        mode = "legacy" if self._legacy else "auto"
        return self._sdk.Client(
            self._watched(self._transport.open()),
            message_handler=self._heard,
            cache=None,
            mode=mode,
            elicitation_callback=None if self._elicit is None else self._elicited,
        )

    @asynccontextmanager
    async def _watched(self, transport: Any) -> AsyncIterator[Any]:
        async with transport as (reading, writing):
            messages = CheckedMessages(self._sdk, lambda: self._version, self.malformed)
            yield WatchedStream(reading, self._lost, messages.checked), writing

    def _told(self, error: BaseException) -> str:
        """The error in one line, with the end of the server's stderr."""
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        text = said(error) if isinstance(error, TimeoutError) else printable(describe(error)[:ERROR_CHARS])
        wrote = "" if self.connects else self._transport.wrote()
        return f"{text}; it wrote: {wrote}" if wrote else text

    def _no_answer(self, why: str) -> ToolError:
        return ToolError(f"the MCP server {self._name!r} gave no answer: {why}", kind=ToolErrorKind.EXECUTION_FAILED)


async def _asked_of(client: Any, call: McpCall) -> Any:
    match call.what:
        case "resource":
            return await client.read_resource(call.name)
        case "prompt":
            return await client.get_prompt(call.name, call.arguments)
    # A result of `None` seconds: the deadline is the caller's.
    return await client.call_tool(call.name, call.arguments, None, call.progress)


def _is_bad_answer(error: Exception) -> bool:
    """Whether the server has answered, but wrongly. Then the connection can still be used."""
    return isinstance(error, ValueError | RuntimeError)
