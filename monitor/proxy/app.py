"""The proxy as an ASGI application: which request goes where."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

from monitor.conditions import Condition
from monitor.detectors import Detector, default_detectors
from monitor.errors import ConfigError, without_keys
from monitor.harness.checks import clock_of
from monitor.harness.streams.clock import Clock
from monitor.proxy.accounts import ROOT, WAIT_S, Accounts
from monitor.proxy.admin.admin import Admin
from monitor.proxy.draining import Draining
from monitor.proxy.exchange.context import GRACE_S, ProxyContext
from monitor.proxy.exchange.exchange import Exchange, ProxiedRequest
from monitor.proxy.exchange.known_histories import KnownHistories
from monitor.proxy.exchange.reading import HistoryReader, RequestReading
from monitor.proxy.exchange.unjudged import UnjudgedRelay, UnjudgedRequest
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import Unjudged, Wire
from monitor.proxy.holds import HeldRuns
from monitor.proxy.keys import KeyNames
from monitor.proxy.options import MOST_BODY, OnLoop, ProxyOptions, StopAs, Unwatched
from monitor.proxy.runs import ProxiedRun, ProxiedRuns
from monitor.proxy.transport.asgi import Receive, Scope, Send, answer
from monitor.proxy.transport.client import Client
from monitor.proxy.transport.content_coding import coding_of
from monitor.proxy.transport.headers import NO_NAME, RUN, SEVERAL_KEYS, Headers, first, keys_in, run_in
from monitor.proxy.transport.incoming import ClientGone, Incoming
from monitor.proxy.transport.upstreams import SILENCE_S, Connections, Upstream, Upstreams
from monitor.shared import BudgetStore
from monitor.tools.secrets.masking import MASK, masked
from monitor.usage import Price

PREFIX: Final = "/agent-monitor/"
"""Where the proxy's own pages are."""
TOKEN_VARIABLE: Final = "AGENT_MONITOR_TOKEN"
_SHORTEST_KEY: Final = 6
_CLOSING: Final = "the proxy shuts down"
_NO_SOCKETS: Final = "agent-monitor: web sockets are not relayed; use the streams of HTTP\n"


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
    - `prices`: of the models, for limits in US dollars.
    - `keys`: the names of keys. Without a name a key is known by a hash that nobody can check.
    - `token`: opens the proxy's own pages; by default `AGENT_MONITOR_TOKEN` of the environment, or
      a new one.
    - `most_body`: requests with more bytes are relayed without being watched. `silence_s`: how long
      an upstream may send nothing. `patience_s`: how long a client may take nothing.
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
        key_tokens: int | None = None,
        run_tokens: int | None = None,
        slice_tokens: int = 2_000,
        budget_wait_s: float = WAIT_S,
        prices: Mapping[str, Price] | Price | None = None,
        keys: KeyNames | None = None,
        token: str | None = None,
        prefix: str = PREFIX,
        most_body: int = MOST_BODY,
        silence_s: float = SILENCE_S,
        patience_s: float = 120.0,
        most_runs: int = 1_000,
        clock: Clock | None = None,
        wall: Callable[[], float] = time.time,
        told: Callable[[ProxiedRun], None] | None = None,
    ) -> None:
        """`told` is called with a run whenever one of its answers is over."""
        if not (prefix.startswith("/") and prefix.endswith("/") and len(prefix) > 2):  # noqa: PLR2004 - both slashes
            raise ConfigError(f"prefix begins and ends with /, such as {PREFIX}, not {prefix!r}")
        if budget is None and not (key_tokens is None and run_tokens is None):
            raise ConfigError("key_tokens and run_tokens need budget=, a store such as SQLiteBudgets")
        if budget is None and unwatched == "pay":
            raise ConfigError('unwatched="pay" needs budget=, a store such as SQLiteBudgets')
        if token is not None and not token.strip():
            raise ConfigError(f"the token is empty: leave it out, and {TOKEN_VARIABLE} or a new one is used")
        self.upstreams: Upstreams = Upstreams(upstreams)
        self.token: str = token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        """The secret that opens the proxy's own pages."""
        self.prefix: str = prefix
        self.runs: ProxiedRuns = ProxiedRuns(most_runs, wall)
        """The runs behind the proxy, as far as it knows them."""
        options = ProxyOptions(
            stop_when=stop_when,
            detectors=detectors,
            on_loop=on_loop,
            hold_s=hold_s,
            most_held=most_held,
            keep_alive_s=keep_alive_s,
            nudge=nudge,
            unwatched=unwatched or ("relay" if budget is None else "pay"),
            stop_as=stop_as,
            holds_calls=holds_calls,
            prices=prices,
            most_body=most_body,
            silence_s=silence_s,
            patience_s=patience_s,
            most_runs=most_runs,
            clock=clock_of(clock),
        )
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
        connections = Connections(silence_s=silence_s)
        reader = HistoryReader(KnownHistories(), most_body=most_body)
        self._context = ProxyContext(options, connections, self.runs, HeldRuns(), accounts, reader)
        self._keys = keys or KeyNames()
        self._draining = Draining()
        self._admin = Admin(self._context, self.token, self._draining)
        self._told = told

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

    async def aclose(self) -> None:
        """Close all connections to the upstreams. The store of the budgets stays open, except when
        the server shuts down.
        """
        await self._context.connections.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                if self._context.accounts is not None:
                    await self._context.accounts.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_in(scope)
        if path.startswith(self.prefix.encode()):
            await self._admin.serve(scope, path[len(self.prefix) :].decode("latin-1"), receive, send)
            return
        if (first(scope["headers"], b"upgrade") or b"").lower() == b"websocket":
            await answer(send, 501, _NO_SOCKETS.encode(), b"text/plain")
            return
        if not _is_plain(path):
            said = "agent-monitor: a path begins with / and has no part . or ..\n"
            await answer(send, 400, said.encode(), b"text/plain")
            return
        found = self.upstreams.find(path)
        if found is None:
            known = ", ".join(f"/{one.name}/" for one in self.upstreams.all)
            said = f"agent-monitor: no upstream for this path; known are {known}\n"
            await answer(send, 404, said.encode(), b"text/plain")
            return
        incoming = Incoming(receive, self._context.options.most_body)
        client = Client(send, clock=self._context.options.clock.now)
        try:
            await self._answer(scope, found[0], found[1], incoming, client)
        except ClientGone:
            client.left = True
        if client.left:
            self.runs.count("clients_left")

    async def _answer(self, scope: Scope, upstream: Upstream, path: bytes, incoming: Incoming, client: Client) -> None:
        headers, query = list(scope["headers"]), scope.get("query_string", b"")
        keys = keys_in(headers, query)
        key = self._keys.name_of(keys[0] if keys else None)
        where = _squeezed(path)
        wire = wire_of(scope["method"], unquote(where.decode("latin-1")))
        asked = b"?".join((where, query)) if query else where
        reading = await self._read(wire, asked, incoming, headers, key)
        self.runs.count("requests", "unwatched" if isinstance(reading, Unjudged) else reading.asked.form)
        if isinstance(reading, Unjudged):
            if len(keys) > 1 and self._context.options.unwatched == "pay":
                await answer(client.send, 400, f"agent-monitor: {SEVERAL_KEYS}\n".encode(), b"text/plain", _NEVER_AGAIN)
                return
            unjudged = UnjudgedRequest(
                upstream=upstream, scope=scope, path=path, incoming=incoming, wire=wire, why=reading.why, key=key
            )
            self.runs.count("unwatched")
            work = UnjudgedRelay(self._context, unjudged, client).perform
            await client.serve(work, incoming, patience_s=self._context.options.patience_s)
            self.runs.count("bytes", number=client.sent_bytes)
            return
        name = run_in(headers)
        several = len(keys) > 1 and self._context.accounts is not None
        if several or (name is None and first(headers, RUN) is not None):
            refusal = reading.wire.refusal(SEVERAL_KEYS if several else NO_NAME, status=400)
            await answer(client.send, refusal.status, refusal.body, b"application/json", _NEVER_AGAIN)
            return
        run = self.runs.begin(key, name or reading.run, reading.asked.form, reading.asked.model)
        request = ProxiedRequest(
            upstream=upstream,
            method=scope["method"],
            path=path,
            query=query,
            headers=headers,
            body=incoming.take(),
            reading=reading,
            hide=_hider(keys),
        )
        try:
            exchange = Exchange(self._context, request, run, client)
            await client.serve(exchange.perform, incoming, patience_s=self._context.options.patience_s)
        finally:
            self.runs.count("bytes", number=client.sent_bytes)
            self.runs.leave(run)
            if self._told is not None:
                self._told(run)

    async def _read(
        self, wire: Wire | None, path: bytes, incoming: Incoming, headers: Headers, key: str
    ) -> RequestReading | Unjudged:
        if wire is None:
            return Unjudged("unknown format")
        if not await incoming.read():
            return Unjudged("the request is too long")
        where, coding = path.decode("latin-1"), coding_of(headers)
        return await self._context.reader.read(wire, where, incoming.kept, coding=coding, key=key)


_NEVER_AGAIN: Final = (b"x-should-retry", b"false")


def _path_in(scope: Scope) -> bytes:
    """The path as the client sent it, below the place where the application is mounted."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root = scope.get("root_path", "").encode()
    return raw[len(root) :] if root and raw.startswith(root) else raw


def _is_plain(path: bytes) -> bool:
    """Whether the upstream reads the path as it stands here. One with `..` in it means another path
    there, so it would pass without being watched.
    """
    parts = unquote_to_bytes(path).split(b"/")
    return path.startswith(b"/") and b"." not in parts and b".." not in parts


def _squeezed(path: bytes) -> bytes:
    """The path with one slash where several stand, and none at its end. Services may read both
    alike.
    """
    return b"/" + b"/".join(part for part in path.split(b"/") if part)


def _hider(keys: Sequence[bytes]) -> Callable[[str], str]:
    """Masks the keys themselves, and whatever looks like a secret."""
    said = [text for key in keys if len(text := key.decode("latin-1")) >= _SHORTEST_KEY]

    def hide(text: str) -> str:
        shown: Any = masked(without_keys(text))
        for one in said:
            shown = shown.replace(one, MASK)
        return str(shown)

    return hide
