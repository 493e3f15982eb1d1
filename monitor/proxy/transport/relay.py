"""Passes a request and its answer on, untouched: for what is not watched."""

from __future__ import annotations

import anyio

from monitor.proxy.transport.asgi import Scope
from monitor.proxy.transport.client import Client
from monitor.proxy.transport.headers import to_client, to_upstream
from monitor.proxy.transport.incoming import Incoming
from monitor.proxy.transport.upstreams import Connections, Upstream, UpstreamFailed

_GRACE_S = 2.0


async def relay(
    connections: Connections,
    upstream: Upstream,
    *,
    scope: Scope,
    path: bytes,
    incoming: Incoming,
    client: Client,
    why: str,
) -> None:
    """Relay one request, and say in a header `why` it is not watched. Neither body is kept."""
    headers = list(scope["headers"])
    said = f"unwatched; {why}"
    has_body = any(name in {b"content-length", b"transfer-encoding"} for name, _ in headers)
    content = incoming.rest() if has_body else b""
    if not has_body:
        async for _ in incoming.rest():
            pass  # a request without a body ends with an empty part
    try:
        opened = await connections.open(
            upstream,
            method=scope["method"],
            path=path,
            query=scope.get("query_string", b""),
            headers=to_upstream(headers, identity=False),
            content=content,
        )
    except UpstreamFailed as error:
        text = f"agent-monitor: {error.why}\n".encode()
        plain = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
        await client.begin(error.status, to_client(plain, said="upstream failed", cuttable=False))
        await client.write(text)
        await client.end()
        return
    try:
        await client.begin(opened.status, to_client(opened.headers, said=said, cuttable=False))
        async for part in opened.body:
            await client.write(part)
        await client.end()
    except UpstreamFailed:
        return  # the server cuts the connection off, so the client sees that something is missing
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_GRACE_S):
            await opened.body.aclose()
