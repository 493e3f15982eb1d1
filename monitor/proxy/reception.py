"""Requests as they arrive: which service each is for, whether it may pass, and who answers it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from monitor.chunks import Usage
from monitor.errors import PASSING_REASONS, ConfigError, TerminateReason, without_keys
from monitor.events import BudgetLost, Event
from monitor.prices import known_price
from monitor.proxy.exchange import Exchange
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import Unjudged
from monitor.proxy.formats.wire import RETRY_LATER, Wire, refusal_of
from monitor.proxy.histories import RequestReading
from monitor.proxy.http_messages import (
    NO_NAME,
    NO_ROOM,
    RUN,
    SEVERAL_KEYS,
    TIMED_OUT,
    TOO_SLOW,
    ClientGone,
    Headers,
    HeldBytes,
    Incoming,
    NoRoom,
    Receive,
    Room,
    Scope,
    Send,
    TooSlow,
    answer,
    coding_of,
    first,
    is_bare,
    is_plain,
    keys_in,
    run_in,
    squeezed,
    to_client,
    to_upstream,
    with_key,
)
from monitor.proxy.keys import AllowedKey, Denied
from monitor.proxy.runs import ProxiedRun
from monitor.proxy.upstream_requests import (
    BYTES_A_TOKEN,
    LATER,
    REFUSED,
    BudgetSpent,
    ByteMeter,
    ProxiedRequest,
    ProxyContext,
    close,
    reason_of,
)
from monitor.proxy.upstreams import Client, Upstream, UpstreamAnswer, UpstreamFailed
from monitor.runs.budget_hold import BudgetHold
from monitor.tools.masking import MASK, masked
from monitor.verdicts import Stop

if TYPE_CHECKING:
    from monitor.sinks.otel.sink import RequestSpan, RequestSpans


# --------------------------------------------------------------------------------------------------
# The OpenTelemetry span of a watched request.


def begin_span(spans: RequestSpans | None, headers: Headers, run: ProxiedRun) -> RequestSpan | None:
    """The span of a request that has come. `None`: no spans are made."""
    if spans is None:
        return None
    operation = "generate_content" if run.wire == "gemini" else "chat"
    parent = first(headers, b"traceparent")
    return spans.begin(operation, run.model, traceparent=parent.decode("latin-1") if parent is not None else None)


def end_span(span: RequestSpan, run: ProxiedRun, status: int, usage: Usage) -> None:
    """End the span of a request, whose answer had this `status`."""
    stop = run.last_stop if run.state in {"stopped", "failed"} else None
    facts: dict[str, str | int | float | None] = {
        "conversation": run.id,
        "key": run.key,
        "state": run.state,
        "stop": stop["reason"] if stop is not None else None,
        "status": status or None,
        "input_tokens": usage.input_tokens or None,
        "output_tokens": usage.output_tokens or None,
    }
    span.end(facts, error="upstream" if run.state == "failed" else "")


_SHORTEST_KEY: Final = 6
TOO_MANY: Final = "as many requests without a key are being answered as may be: try again, or send a key"
_NO_SOCKETS: Final = "agent-monitor: web sockets are not relayed; use the streams of HTTP\n"


class Reception:
    """Takes in the requests for services."""

    def __init__(
        self, context: ProxyContext, *, told: Callable[[ProxiedRun], None] | None, spans: RequestSpans | None
    ) -> None:
        """`told` is called with a run whenever one of its answers is over."""
        self._context = context
        self._told = told
        self._spans = spans
        self.room: Room = Room(context.options.most_in_flight)
        """The bytes that all requests and answers hold."""
        self._keyless = 0
        """Requests without a key that are being answered."""

    async def serve(self, scope: Scope, path: bytes, receive: Receive, send: Send) -> None:
        """Answer one request. `path`: as the client sent it."""
        if (first(scope["headers"], b"upgrade") or b"").lower() == b"websocket":
            await answer(send, 501, _NO_SOCKETS.encode(), b"text/plain")
            return
        if not is_plain(path):
            said = "agent-monitor: a path begins with / and has no part . or ..\n"
            await answer(send, 400, said.encode(), b"text/plain")
            return
        found = self._context.upstreams.find(path)
        if found is None:
            known = ", ".join(f"/{one.name}/" for one in self._context.upstreams.all)
            said = f"agent-monitor: no upstream for this path; known are {known}\n"
            await answer(send, 404, said.encode(), b"text/plain")
            return
        upstream, path = found
        keys = keys_in(scope["headers"], scope.get("query_string", b""))
        entry = self._context.gate.enter(keys)
        if isinstance(entry, AllowedKey) and not keys and self._keyless >= self._context.options.most_keyless:
            entry = Denied(LATER, TOO_MANY)
        if isinstance(entry, Denied):
            self._context.runs.count("denied", str(entry.status))
            wire = wire_of(scope["method"], unquote(squeezed(path).decode("latin-1")))
            client = Client(send, clock=self._context.options.clock.now)
            await _refuse(client, wire, entry.why, entry.status, after_s=entry.retry_after_s)
            return
        self._keyless += not keys
        try:
            await self._one(scope, upstream, path, receive, send, entry=entry)
        finally:
            self._keyless -= not keys

    async def _one(
        self, scope: Scope, upstream: Upstream, path: bytes, receive: Receive, send: Send, *, entry: AllowedKey
    ) -> None:
        options = self._context.options
        held = HeldBytes(self.room)
        incoming = Incoming(receive, options.most_body, held=held, arrival_s=options.arrival_s)
        client = Client(send, clock=options.clock.now)
        try:
            await self._answer(scope, upstream, path, incoming, client, entry=entry)
        except ClientGone:
            client.left = True
        except (NoRoom, TooSlow) as error:  # while the request was read
            wire = wire_of(scope["method"], path.decode("latin-1"))
            late = isinstance(error, TooSlow)
            await _refuse(client, wire, TOO_SLOW if late else NO_ROOM, TIMED_OUT if late else LATER)
        finally:
            held.release()
        if client.left:
            self._context.runs.count("clients_left")

    async def _answer(
        self, scope: Scope, upstream: Upstream, path: bytes, incoming: Incoming, client: Client, *, entry: AllowedKey
    ) -> None:
        headers, query, key = list(scope["headers"]), scope.get("query_string", b""), entry.key
        keys = keys_in(headers, query)
        if (own := self._context.gate.service_keys.get(upstream.name)) is not None:
            headers, query = with_key(headers, query, own)
            scope = {**scope, "headers": headers, "query_string": query}
        where = squeezed(path)
        wire = wire_of(scope["method"], unquote(where.decode("latin-1")))
        asked = b"?".join((where, query)) if query else where
        reading = await self._read(wire, asked, incoming, headers, key)
        self._context.runs.count("requests", "unwatched" if isinstance(reading, Unjudged) else reading.asked.form)
        looks = isinstance(reading, Unjudged) and is_bare(scope["method"], headers)
        denied = None if looks else entry.denies(None if isinstance(reading, Unjudged) else reading.asked.model)
        if denied is not None:
            self._context.runs.count("denied", str(denied.status))
            await _refuse(client, wire, denied.why, denied.status)
            return
        if isinstance(reading, Unjudged):
            if len(keys) > 1 and self._context.options.unwatched == "pay":
                await _refuse(client, wire, SEVERAL_KEYS, REFUSED)
                return
            unjudged = UnjudgedRequest(
                upstream=upstream, scope=scope, path=path, incoming=incoming, wire=wire, why=reading.why, key=key
            )
            self._context.runs.count("unwatched")
            work = UnjudgedRelay(self._context, unjudged, client).perform
            await client.serve(work, incoming, patience_s=self._context.options.patience_s)
            self._context.runs.count("bytes", number=client.sent_bytes)
            return
        name = run_in(headers)
        several = len(keys) > 1 and self._context.accounts is not None
        if several or (name is None and first(headers, RUN) is not None):
            await _refuse(client, wire, SEVERAL_KEYS if several else NO_NAME, REFUSED)
            return
        run = self._context.runs.begin(key, name or reading.run, reading.asked.form, reading.asked.model)
        request = ProxiedRequest(
            upstream=upstream,
            method=scope["method"],
            path=path,
            query=query,
            headers=headers,
            body=incoming.take(),
            held=incoming.held,
            reading=reading,
            hide=_hider(keys),
        )
        exchange = Exchange(self._context, request, run, client)
        span = begin_span(self._spans, headers, run)
        try:
            await client.serve(exchange.perform, incoming, patience_s=self._context.options.patience_s)
        finally:
            if span is not None:
                end_span(span, run, client.status, exchange.usage)
            self._context.runs.count("bytes", number=client.sent_bytes)
            self._context.runs.leave(run)
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


async def _refuse(
    client: Client, wire: Wire | None, why: str, status: int, *, said: str = "", after_s: float | None = None
) -> None:
    """Answer with an error in the client's format, before anything of an answer was judged.
    `after_s`: the seconds after which the client may try again.
    """
    refusal = refusal_of(wire, why, status)
    if after_s is not None:
        refusal = replace(refusal, headers={**RETRY_LATER, "retry-after": str(math.ceil(after_s))})
    await client.begin(refusal.status, to_client(refusal.head, said=said or f"refused; {why}", cuttable=False))
    await client.write(refusal.body)
    await client.end()


def _hider(keys: Sequence[bytes]) -> Callable[[str], str]:
    """Masks the keys themselves, and whatever looks like a secret."""
    said = [text for key in keys if len(text := key.decode("latin-1")) >= _SHORTEST_KEY]

    def hide(text: str) -> str:
        shown: Any = masked(without_keys(text))
        for one in said:
            shown = shown.replace(one, MASK)
        return str(shown)

    return hide


# --------------------------------------------------------------------------------------------------
# A request that cannot be judged: relayed, paid by its bytes, or refused, as was chosen.


@dataclass(slots=True, kw_only=True)
class UnjudgedRequest:
    """One request as it came."""

    upstream: Upstream
    scope: Scope
    path: bytes
    incoming: Incoming
    wire: Wire | None
    """The format of the request, if its path says one."""
    why: str
    """Why it cannot be judged."""
    key: str
    """The name of the client's key."""


class UnjudgedRelay:
    """Answers one request that cannot be judged. Neither body is kept."""

    def __init__(self, context: ProxyContext, request: UnjudgedRequest, client: Client) -> None:
        self._context = context
        self._request = request
        self._client = client
        self._headers: Headers = list(request.scope["headers"])
        self._opened: UpstreamAnswer | None = None
        self._holding: BudgetHold | None = None
        self._meter: ByteMeter | None = None
        self._lost = ""
        """Why the budget cannot be asked, in words that are not for the client."""

    async def perform(self) -> None:
        """Answer the request. It is cancelled if the client leaves."""
        try:
            await self._perform()
        except BudgetSpent as spent:
            await self._stopped(spent.stop)
        except TooSlow:
            if not self._client.began:
                await self._refuse(TOO_SLOW, TIMED_OUT, said="refused; too slow")
        finally:
            await close(self._opened, self._holding)

    async def _perform(self) -> None:
        request, options = self._request, self._context.options
        if is_bare(request.scope["method"], self._headers):
            await self._pass()
        elif options.unwatched == "refuse":
            said = f"agent-monitor refused this request: it cannot be watched: {request.why}"
            await self._refuse(said, REFUSED, said=f"refused; {request.why}")
        elif options.unwatched == "pay" and (stop := await self._paid()) is not None:
            await self._stopped(stop)
        else:
            await self._pass()

    async def _paid(self) -> Stop | None:
        """Hold a part of the budget. A `Stop`: it cannot be paid."""
        accounts, clock = self._context.accounts, self._context.options.clock
        assert accounts is not None  # noqa: S101 - the options say so
        price = known_price(self._context.options.prices, "")
        length = first(self._headers, b"content-length") or b""
        size = int(length) if length.isdigit() else len(self._request.incoming.kept)
        try:
            self._holding = holding = accounts.open(
                self._request.key, "unwatched", price=price, clock=clock, emit=self._heard, began=clock.now()
            )
            stop = await holding.before_call(size // BYTES_A_TOKEN)
        except ConfigError as error:  # a limit in US dollars, and no price
            return Stop(TerminateReason.ERROR, str(error), "SharedBudget")
        self._meter = ByteMeter(holding)
        return stop

    def _heard(self, event: Event) -> None:
        if isinstance(event, BudgetLost):
            self._lost = event.detail

    # ------------------------------------------------------------------ there and back

    async def _pass(self) -> None:
        request, headers = self._request, self._headers
        has_body = any(name in {b"content-length", b"transfer-encoding"} for name, _ in headers)
        if not has_body:
            async for _ in request.incoming.rest():
                pass  # a request without a body ends with an empty part
        try:
            self._opened = opened = await self._context.connections.open(
                request.upstream,
                method=request.scope["method"],
                path=request.path,
                query=request.scope.get("query_string", b""),
                headers=to_upstream(headers, identity=False),
                content=self._content() if has_body else b"",
            )
        except UpstreamFailed as error:
            await self._refuse(error.why, error.status, said="upstream failed")
            return
        said = f"unwatched; {request.why}"
        await self._client.begin(opened.status, to_client(opened.headers, said=said, cuttable=False))
        try:
            async for part in opened.body:
                if self._meter is not None and opened.status < _CLIENT_ERROR:
                    await self._meter.passed(len(part))
                await self._client.write(part)
            await self._client.end()
        except UpstreamFailed:
            return  # the server cuts the connection off, so the client sees that something is missing

    async def _content(self) -> AsyncIterator[bytes]:
        async for part in self._request.incoming.rest():
            if self._meter is not None:
                await self._meter.passed(len(part))
            yield part

    async def _stopped(self, stop: Stop) -> None:
        """Refuse the request. An answer that has begun is cut off: its form is not known."""
        self._context.runs.count("stops", stop.reason.value)
        if not self._client.began:
            status = LATER if stop.reason in PASSING_REASONS else REFUSED
            await self._refuse(reason_of(stop, self._lost), status, said=f"stopped; {stop.reason.value}")

    async def _refuse(self, reason: str, status: int, *, said: str) -> None:
        await _refuse(self._client, self._request.wire, reason, status, said=said)


_CLIENT_ERROR: Final = 400
"""From this status on the service has refused, and asks no money for its answer."""
