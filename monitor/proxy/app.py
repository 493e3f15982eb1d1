"""The proxy as an ASGI application: what it is made of, how it begins and ends."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from monitor._util.explained_options import explained
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.detectors import Detector, default_detectors
from monitor.errors import ConfigError
from monitor.guard.options import clock_of
from monitor.guard.streams.wait import Clock
from monitor.proxy.accounts import (
    ARRIVAL_S,
    MOST_BODY,
    MOST_IN_FLIGHT,
    MOST_KEYLESS,
    ROOT,
    WAIT_S,
    Accounts,
    OnLoop,
    ProxyOptions,
    StopAs,
    Unwatched,
    check_keys,
)
from monitor.proxy.admin import Admin, Draining
from monitor.proxy.histories import HistoryReader, KnownHistories
from monitor.proxy.http_messages import Receive, Scope, Send, path_in
from monitor.proxy.keys import Gate, KeyNames, VirtualKeys
from monitor.proxy.reception import Reception
from monitor.proxy.runs import HeldRuns, Peers, ProxiedRun, ProxiedRuns
from monitor.proxy.upstream_requests import GRACE_S, ProxyContext
from monitor.proxy.upstreams import SILENCE_S, Connections, Upstreams
from monitor.shared import BudgetStore, RowStore

if TYPE_CHECKING:
    from monitor.sinks.otel.sink import RequestSpans

PREFIX: Final = "/agent-monitor/"
"""Where the proxy's own pages are."""
TOKEN_VARIABLE: Final = "AGENT_MONITOR_TOKEN"
_CLOSING: Final = "the proxy shuts down"


@explained(example="monitor.proxy.Proxy('https://api.openai.com')")
class Proxy:
    """A reverse proxy that watches what language models answer: an ASGI 3 application.

        proxy = Proxy("https://api.openai.com")       # then: uvicorn my_module:proxy

    Every answer goes through the detectors while it passes. If it loops, or exceeds a limit, the
    connection to the upstream is closed, and the client's answer is ended in its own format.

    - `upstreams`: one address, or addresses by the first segment of the path.
    - `stop_when`: a condition. Turns, calls and errors count over the user's task, times and tokens
      in one answer.
    - `detectors`: a function that makes new detectors for each request.
    - `on_loop`: `"stop"`, `"error"`, `"hold"` or `"observe"`. `hold_s`: how long a held run waits
      for an operator before it is stopped. `most_held`: requests that wait at once; a further one
      is stopped.
    - `nudge`: a run that repeats itself over turns gets a message, which is added to its request.
    - `stop_as`: the end of an answer that is stopped: `"text"` (a sentence is its last text),
      `"error"` or `"silent"`. `holds_calls`: a call is passed on when it is whole.
    - `unwatched`: the way of what cannot be judged: `"relay"`, `"pay"` by its bytes, or `"refuse"`.
      By default it pays if there is a budget, and is relayed if there is none.
    - `budget`: a store of shared budgets. Each key spends from `proxy/<key>`. `key_tokens` is the
      limit of a key that has none in the store, and `run_tokens` that of each run. `budget_wait_s`:
      how long a request waits for a store that does not answer, or for what others hold.
    - `rows`: a store by which several proxies share their runs and the operator's words, such as
      `rows_at("redis://...")`. They need the same `token` too, by which they name keys alike.
    - `prices`: of the models, for limits in US dollars.
    - `keys`: the names of keys. Without a name a key is known by a hash with the token in it.
    - `virtual_keys`: the only keys with which clients may pass, and what each may.
    - `service_keys`: the key that a service gets in place of the client's, by the name of its
      upstream.
    - `fallbacks`: the address of a second service, by the name of the upstream. It is asked if the
      first cannot be reached or has a status from 500 on. `fallback_keys`: the key that it gets.
    - `token`: opens the proxy's own pages; by default `AGENT_MONITOR_TOKEN` of the environment, or
      a new one.
    - `most_body`: requests with more bytes cannot be judged. `most_in_flight`: bytes of requests
      and answers that are held at once; a further request is refused with 503. `most_keyless`:
      requests without a key that are answered at once.
    - `arrival_s`: how long a request may take to arrive. `silence_s`: how long an upstream may send
      nothing. `patience_s`: how long a client may take nothing.
    """

    def __init__(
        self,
        upstreams: Mapping[str, str] | str,
        *,
        stop_when: Condition | None = None,
        detectors: Callable[[], Sequence[Detector]] = default_detectors,
        on_loop: OnLoop = "stop",
        hold_s: float = 300.0,
        most_held: int = 1_000,
        keep_alive_s: float = 10.0,
        nudge: bool = False,
        unwatched: Unwatched | None = None,
        stop_as: StopAs = "text",
        holds_calls: bool = True,
        budget: BudgetStore | None = None,
        budget_name: str = ROOT,
        rows: RowStore | None = None,
        key_tokens: int | None = None,
        run_tokens: int | None = None,
        slice_tokens: int = 2_000,
        budget_wait_s: float = WAIT_S,
        prices: Mapping[str, Price] | Price | None = None,
        keys: KeyNames | None = None,
        virtual_keys: VirtualKeys | None = None,
        service_keys: Mapping[str, str] | None = None,
        fallbacks: Mapping[str, str] | str | None = None,
        fallback_keys: Mapping[str, str] | None = None,
        token: str | None = None,
        prefix: str = PREFIX,
        most_body: int = MOST_BODY,
        most_in_flight: int = MOST_IN_FLIGHT,
        most_keyless: int = MOST_KEYLESS,
        arrival_s: float = ARRIVAL_S,
        silence_s: float = SILENCE_S,
        patience_s: float = 120.0,
        most_runs: int = 1_000,
        clock: Clock | None = None,
        wall: Callable[[], float] = time.time,
        told: Callable[[ProxiedRun], None] | None = None,
        spans: RequestSpans | None = None,
    ) -> None:
        """`told` is called with a run whenever one of its answers is over. `spans`: of
        OpenTelemetry, one for each request, `monitor.sinks.RequestSpans()`.
        """
        unwatched = unwatched or ("relay" if budget is None else "pay")
        clock = clock_of(clock)
        given: dict[str, Any] = dict(locals())
        if not (prefix.startswith("/") and prefix.endswith("/") and len(prefix) > 2):  # noqa: PLR2004 - both slashes
            raise ConfigError(f"prefix begins and ends with /, such as {PREFIX}, not {prefix!r}")
        if budget is None and not (key_tokens is None and run_tokens is None):
            raise ConfigError("key_tokens and run_tokens need budget=, a store such as SQLiteBudgets")
        if budget is None and unwatched == "pay":
            raise ConfigError('unwatched="pay" needs budget=, a store such as SQLiteBudgets')
        if token is not None and not token.strip():
            raise ConfigError(f"the token is empty: leave it out, and {TOKEN_VARIABLE} or a new one is used")
        self.upstreams: Upstreams = Upstreams(upstreams, fallbacks)
        for name in {**(service_keys or {}), **(fallback_keys or {})}:
            if name not in {one.name for one in self.upstreams.all}:
                raise ConfigError(f"there is no upstream {name!r} for which a key is given")
        self.token: str = token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        """The secret that opens the proxy's own pages."""
        self.prefix: str = prefix
        self.runs: ProxiedRuns = ProxiedRuns(most_runs, wall)
        """The runs behind the proxy, as far as it knows them."""
        options = ProxyOptions(**{one.name: given[one.name] for one in fields(ProxyOptions)})
        accounts = None
        if budget is not None:
            accounts = Accounts(
                budget,
                root=budget_name,
                key_tokens=key_tokens,
                run_tokens=run_tokens,
                slice_tokens=slice_tokens,
                wait_s=budget_wait_s,
            )
        check_keys(virtual_keys, accounts)
        connections = Connections(silence_s=silence_s)
        self.gate: Gate = Gate(
            (keys or KeyNames()).with_secret(self.token),
            virtual_keys,
            service_keys=service_keys or {},
            fallback_keys=fallback_keys or {},
            now=options.clock.now,
            wall=wall,
        )
        """The keys that may pass."""
        reader = HistoryReader(KnownHistories(), most_body=most_body)
        if accounts is not None:
            accounts.own_tokens = self.gate.tokens_of
        self._peers = None if rows is None else Peers(rows, budget_name, self.runs, most=most_runs)
        self._context = ProxyContext(
            options, connections, self.runs, HeldRuns(), accounts, reader, self.upstreams, self.gate, self._peers
        )
        self._draining = Draining()
        self._admin = Admin(self._context, self.token, self._draining)
        if self._peers is not None:
            self._peers.obey = self._admin.obey
        self._reception = Reception(self._context, told=told, spans=spans)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection, as ASGI 3 describes it."""
        if scope["type"] == "http":
            with self._draining.request():
                await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": "agent-monitor relays no web sockets"})

    def close_pages(self) -> None:
        """End the live pages that are open. A server that waits for its connections calls this when
        it begins to shut down: no page ends by itself.
        """
        self.runs.close()

    async def drain(self, seconds: float | None) -> None:
        """Let running answers end, for `seconds`; `None`: as long as they take. Then those that go
        on get the end of their format, and held requests are answered. Meanwhile new requests are
        served, and the page `ready` has the status 503. A server calls this before it closes its
        listener.
        """
        self._draining.has_begun = True
        self.close_pages()
        if not await self._draining.until_idle(seconds):
            for run in self.runs:
                self._admin.answer(run, "stop", _CLOSING)
            await self._draining.until_idle(GRACE_S)

    async def renew(
        self, *, virtual_keys: VirtualKeys | None = None, detectors: Callable[[], Sequence[Detector]] | None = None
    ) -> None:
        """Take over new settings while requests are being answered: those that come from now on
        follow them. `None`: as it was. A changed limit of a key is set in the store. Raises
        `ConfigError` and `BudgetUnreachable`; then everything is as it was.
        """
        before, accounts = self.gate.keys, self._context.accounts
        if virtual_keys is not None:
            if before is None:
                raise ConfigError("a proxy that was started without virtual keys takes none: start it again")
            check_keys(virtual_keys, accounts)
            limits = {key.name: key.tokens for key in virtual_keys.all if key.tokens is not None}
            old = {key.name: key.tokens for key in before.all}
            for name, tokens in limits.items():
                if accounts is not None and old.get(name, tokens) != tokens:
                    await accounts.set_tokens(name, tokens)
            self.gate.keys = virtual_keys
        if detectors is not None:
            self._context.options = replace(self._context.options, detectors=detectors)
            self._context.reader.forget()

    async def aclose(self) -> None:
        """Close all connections to the upstreams. The stores stay open, except when the server
        shuts down.
        """
        await self._context.connections.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            if self._peers is not None:
                group.start_soon(self._peers.follow)
            while (message := await receive())["type"] != "lifespan.shutdown":
                if message["type"] == "lifespan.startup":
                    await send({"type": "lifespan.startup.complete"})
            group.cancel_scope.cancel()
        await self.aclose()
        for store in (self._context.accounts, self._peers):
            if store is not None:
                await store.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_in(scope)
        if path.startswith(self.prefix.encode()):
            await self._admin.serve(scope, path[len(self.prefix) :].decode("latin-1"), receive, send)
        else:
            await self._reception.serve(scope, path, receive, send)
