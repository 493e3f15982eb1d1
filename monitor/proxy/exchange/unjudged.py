"""A request that cannot be judged: relayed, paid by its bytes, or refused, as was chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import anyio

from monitor.errors import PASSING_REASONS, ConfigError, TerminateReason
from monitor.events import BudgetLost, Event
from monitor.prices import known_price
from monitor.proxy.exchange.requests import (
    BYTES_A_TOKEN,
    GRACE_S,
    LATER,
    REFUSED,
    BudgetSpent,
    ByteMeter,
    ProxyContext,
    reason_of,
)
from monitor.proxy.formats.wire import Wire, refusal_of
from monitor.proxy.transport.headers import Headers, first, is_bare, to_client, to_upstream
from monitor.proxy.transport.incoming import TIMED_OUT, TOO_SLOW, Incoming, Scope, TooSlow
from monitor.proxy.transport.upstreams import Client, Upstream, UpstreamAnswer, UpstreamFailed
from monitor.runs.budget_hold import BudgetHold
from monitor.verdicts import Stop


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
            await self._close()

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
        refusal = refusal_of(self._request.wire, reason, status)
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        headers.append((b"content-length", b"%d" % len(refusal.body)))
        await self._client.begin(refusal.status, to_client(headers, said=said, cuttable=False))
        await self._client.write(refusal.body)
        await self._client.end()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._opened is not None:
                with anyio.move_on_after(GRACE_S):
                    await self._opened.body.aclose()
            if self._holding is not None:
                await self._holding.close()


_CLIENT_ERROR: Final = 400
"""From this status on the service has refused, and asks no money for its answer."""
