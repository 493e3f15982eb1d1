"""The way to an MCP server: a command that is started, or an address."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from monitor._util.quoting import printable
from monitor.errors import without_keys
from monitor.tools.processes.process_table import MARKER, marked, members, owner_token, sweep
from monitor.tools.remote.mcp_sdk import Sdk
from monitor.tools.remote.stderr_tail import KEPT_BYTES, StderrTail
from monitor.tools.sandbox.confinement import Confinement

GONE: Final = 404
SESSION_HEADER: Final = "mcp-session-id"
"""How a server says that a session is gone. Source: the protocol, Streamable HTTP, session
management.
"""
STDERR_CHARS: Final = 600
"""If a server cannot be reached, this many last characters of its stderr are shown."""

Transport: TypeAlias = Literal["stdio", "http", "sse"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Endpoint:
    """The place of a server: a command to start, or an address."""

    transport: Transport
    command: tuple[str, ...] = ()
    url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 30.0
    confinement: Confinement | None = None
    """The sandbox of a command."""


class McpTransport:
    """The way to one server, which is taken anew for each connection."""

    def __init__(self, endpoint: Endpoint, sdk: Sdk) -> None:
        self._endpoint = endpoint
        self._sdk = sdk
        self._token = owner_token(secrets.token_hex(8))
        self._stderr: StderrTail | None = None
        self.session_gone = False
        """The server does not know the session any more: it has answered with HTTP 404."""

    def open(self) -> Any:
        """The streams to and from the server, as a context manager of the SDK."""
        endpoint, headers = self._endpoint, dict(self._endpoint.headers)
        if endpoint.transport == "sse":
            return self._sdk.sse_client(endpoint.url, headers)
        if endpoint.transport == "http":
            return self._over_http(endpoint.url, headers)
        if self._stderr is None:
            self._stderr = StderrTail()
        words, given = endpoint.command, {**endpoint.environment, MARKER: marked(self._token)}
        if (confinement := endpoint.confinement) is not None:
            place = Path(endpoint.directory or ".").resolve()
            if shutil.which(words[0]) is None and not (place / words[0]).exists():
                raise FileNotFoundError(f"there is no program {words[0]}")
            words = tuple(confinement.argv(words, place, started_elsewhere=True))
            given = confinement.environment(given)
        command, *arguments = words
        parameters = self._sdk.StdioServerParameters(
            command=command,
            args=arguments,
            env=given,
            cwd=endpoint.directory,
            encoding_error_handler="replace",
        )
        return self._sdk.stdio_client(parameters, self._stderr.file)

    @asynccontextmanager
    async def _over_http(self, url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
        async with (
            self._sdk.create_mcp_http_client(headers) as http,
            self._sdk.streamable_http_client(url, http_client=http) as streams,
        ):
            http.event_hooks = {"response": [self._answered]}
            yield streams

    async def _answered(self, response: Any) -> None:
        """A session is gone where the server answers a request of it with 404."""
        if response.status_code == GONE and SESSION_HEADER in response.request.headers:
            self.session_gone = True

    def sweep(self) -> None:
        """End processes that have left the process group of the server. None leaves a namespace."""
        confinement = self._endpoint.confinement
        if self._endpoint.transport == "stdio" and (confinement is None or not confinement.namespaced):
            sweep(lambda: members(self._token, None))

    def wrote(self) -> str:
        """The end of what a command has written to its stderr, in one line."""
        if self._stderr is None:
            return ""
        return printable(without_keys(self._stderr.text(KEPT_BYTES))[-STDERR_CHARS:].strip())

    def close(self) -> None:
        """No connection follows."""
        self.sweep()
        if self._stderr is not None:
            self._stderr.close()
