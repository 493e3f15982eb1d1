"""Requests as they arrive: which service each is for, whether it may pass, and who answers it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from monitor.chunks import Usage
from monitor.errors import without_keys
from monitor.proxy.accounts import AllowedKey, Denied
from monitor.proxy.exchange.exchange import Exchange
from monitor.proxy.exchange.requests import LATER, REFUSED, ProxiedRequest, ProxyContext
from monitor.proxy.exchange.unjudged import UnjudgedRelay, UnjudgedRequest
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import Unjudged
from monitor.proxy.formats.wire import RETRY_LATER, Wire, refusal_of
from monitor.proxy.histories import RequestReading
from monitor.proxy.state.runs import ProxiedRun
from monitor.proxy.transport.headers import (
    NO_NAME,
    RUN,
    SEVERAL_KEYS,
    Headers,
    coding_of,
    first,
    is_bare,
    keys_in,
    run_in,
    to_client,
    with_key,
)
from monitor.proxy.transport.incoming import (
    NO_ROOM,
    TIMED_OUT,
    TOO_SLOW,
    ClientGone,
    HeldBytes,
    Incoming,
    NoRoom,
    Receive,
    Room,
    Scope,
    Send,
    TooSlow,
    answer,
    begin,
    body,
    is_plain,
    squeezed,
)
from monitor.proxy.transport.upstreams import Client, Upstream
from monitor.tools.masking import MASK, masked

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
            await _refuse(send, wire, entry.why, entry.status, after_s=entry.retry_after_s)
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
            await _refuse(send, wire, TOO_SLOW if late else NO_ROOM, TIMED_OUT if late else LATER)
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
            await _refuse(client.send, wire, denied.why, denied.status)
            return
        if isinstance(reading, Unjudged):
            if len(keys) > 1 and self._context.options.unwatched == "pay":
                await _refuse(client.send, wire, SEVERAL_KEYS, REFUSED)
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
            await _refuse(client.send, wire, SEVERAL_KEYS if several else NO_NAME, REFUSED)
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


async def _refuse(send: Send, wire: Wire | None, why: str, status: int, *, after_s: float | None = None) -> None:
    """Answer with an error in the client's format, before anything of the request was judged.
    `after_s`: the seconds after which the client may try again.
    """
    refusal = refusal_of(wire, why, status)
    said = refusal.headers if after_s is None else {**RETRY_LATER, "retry-after": str(math.ceil(after_s))}
    headers = [(name.encode(), value.encode()) for name, value in said.items()]
    headers.append((b"content-length", b"%d" % len(refusal.body)))
    await begin(send, refusal.status, to_client(headers, said=f"refused; {why}", cuttable=False))
    await body(send, refusal.body, more=False)


def _hider(keys: Sequence[bytes]) -> Callable[[str], str]:
    """Masks the keys themselves, and whatever looks like a secret."""
    said = [text for key in keys if len(text := key.decode("latin-1")) >= _SHORTEST_KEY]

    def hide(text: str) -> str:
        shown: Any = masked(without_keys(text))
        for one in said:
            shown = shown.replace(one, MASK)
        return str(shown)

    return hide
