"""The request that the upstream gets: as it came, or changed where that was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from monitor.proxy.exchange.context import ProxyContext
from monitor.proxy.formats.anthropic import has_cut_thoughts, without_cut_thoughts
from monitor.proxy.formats.base import JudgedRequest, Span
from monitor.proxy.formats.merging import as_stream
from monitor.proxy.formats.request_body import rewritten
from monitor.proxy.histories.request_reading import RequestReading
from monitor.proxy.transport.content_coding import coding_of
from monitor.proxy.transport.headers import Headers, to_upstream, with_key
from monitor.proxy.transport.room import HeldBytes
from monitor.proxy.transport.sending import RequestBody
from monitor.proxy.transport.upstreams import Upstream, UpstreamAnswer, UpstreamFailed

_NO_STREAMS: Final = frozenset({400, 404, 405, 422, 501})
"""The statuses of a service that gives no stream. The request is then made as it came."""


_SERVER_ERROR: Final = 500
"""From this status on the service has failed, and the second one is asked."""


@dataclass(slots=True, kw_only=True)
class ProxiedRequest:
    """One request that was read to its end."""

    upstream: Upstream
    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    held: HeldBytes
    """Counts the bytes of the request, and then those of its answer that are kept."""
    reading: RequestReading
    hide: Callable[[str], str]
    """Masks the client's key, and whatever looks like one."""


class UpstreamRequest:
    """One request for the upstream. Its body is dropped when it has been sent."""

    def __init__(self, context: ProxyContext, request: ProxiedRequest, *, about_to_ask: Callable[[], None]) -> None:
        """`about_to_ask` is called before each request to the upstream."""
        self._context = context
        self._request = request
        self._about_to_ask = about_to_ask
        self._is_packed = bool(coding_of(request.headers))
        self._known: Span | None = None
        """The records in the body that were read in an earlier request."""
        self._is_changed = False
        self.is_paid = False
        """The upstream has a request for which it asks money, as far as is known."""
        self.fell_back = False
        """The first service has failed, and the second one was asked."""
        self.opened: UpstreamAnswer | None = None
        """The newest answer of the upstream."""

    def judged(self, known: Span | None) -> None:
        """Note which records of the body were `known`."""
        self._known = None if self._is_packed else known

    def change(self, change: Callable[[bytes], bytes]) -> None:
        """Change the body. Raises what `change` raises."""
        request, self._known, known = self._request, None, self._known
        request.body = rewritten(request.body, known, change)
        self._is_changed = True

    async def open(self, asked: JudgedRequest) -> tuple[UpstreamAnswer, bool]:
        """The answer of the upstream, and whether a stream was asked for in place of a whole
        answer. Raises `UpstreamFailed`.
        """
        request = self._request
        if asked.form == "anthropic" and has_cut_thoughts(request.body):
            self._known = None
            self.change(without_cut_thoughts)
        if not asked.streams and not self._is_packed:
            streamed = as_stream(asked.form, request.path, request.query, request.body, self._known)
            if streamed is not None:
                path, query, body = streamed
                is_changed = self._is_changed or body is not request.body
                del streamed
                sending = RequestBody(body)
                del body
                opened = await self._ask(path, query, sending, is_changed=is_changed)
                if opened.status not in _NO_STREAMS:
                    request.body = b""
                    return opened, True
                await opened.body.aclose()
        sending, request.body = RequestBody(request.body), b""
        return await self._ask(request.path, request.query, sending, is_changed=self._is_changed), False

    async def _ask(self, path: bytes, query: bytes, body: RequestBody, *, is_changed: bool) -> UpstreamAnswer:
        request, context = self._request, self._context
        second = None if self.fell_back else context.upstreams.second(request.upstream)
        if second is None:
            return await self._ask_one(request.upstream, path, query, body, is_changed=is_changed)
        body.keep = True
        try:
            opened = await self._ask_one(request.upstream, path, query, body, is_changed=is_changed)
        except UpstreamFailed:
            pass
        else:
            if opened.status < _SERVER_ERROR:
                body.drop()
                return opened
            await opened.body.aclose()
        context.runs.count("fallbacks")
        self.fell_back = True
        body.keep = False
        request.upstream = second
        if (key := context.gate.fallback_keys.get(second.name)) is not None:
            request.headers, request.query = with_key(request.headers, request.query, key)
            _, query = with_key((), query, key)
        return await self._ask_one(second, path, query, body, is_changed=is_changed)

    async def _ask_one(
        self, upstream: Upstream, path: bytes, query: bytes, body: RequestBody, *, is_changed: bool
    ) -> UpstreamAnswer:
        request = self._request
        self._about_to_ask()
        headers = to_upstream(request.headers, identity=True, length=body.size if is_changed else None)
        self.is_paid = True
        try:
            self.opened = await self._context.connections.open(
                upstream, method=request.method, path=path, query=query, headers=headers, content=body
            )
        except UpstreamFailed:
            self.is_paid = False
            raise
        self._context.runs.count("upstream_status", str(self.opened.status))
        return self.opened
