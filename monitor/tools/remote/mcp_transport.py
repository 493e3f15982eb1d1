"""The way to an MCP server: a command that is started, or an address."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import re
import secrets
import select
import shutil
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias

from monitor._util.text import printable
from monitor.chunks import Media
from monitor.context.reduce import clip
from monitor.errors import ConfigError, MissingExtra, without_keys
from monitor.tools.processes.process_table import MARKER, marked, members, owner_token, sweep
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox.confinement import Confinement

# --------------------------------------------------------------------------------------------------
# The SDK of MCP: the names of it that are used, and which versions can be.

FLOOR: Final = (2, 3)
"""The oldest `mcp` whose client closes its server within bounds."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(slots=True, frozen=True)
class Sdk:
    """The names of the SDK that are used here."""

    Client: Any
    MCPError: Any
    SessionMessage: Any
    StdioServerParameters: Any
    stdio_client: Any
    streamable_http_client: Any
    sse_client: Any
    create_mcp_http_client: Any
    types: Any
    validate: Any
    MODERN: Any
    CLOSED: tuple[int, str]
    """The error of a call whose connection ended."""


def sdk() -> Sdk:
    """The SDK. Raises `MissingExtra` if it is missing, and `ConfigError` if it is too old."""
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtra("mcp", "mcp") from None
    check_version(version)
    import mcp_types  # noqa: PLC0415 - the SDK is optional, and takes a second to import
    from mcp import Client, MCPError, StdioServerParameters, stdio_client  # noqa: PLC0415 - the same
    from mcp.client.sse import sse_client  # noqa: PLC0415 - the same
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same
    from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: PLC0415 - the same
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the same
    from mcp_types.methods import validate_server_result  # noqa: PLC0415 - the same
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415 - the same

    for name in ("mcp", "client"):  # the SDK logs each line that is no message: nobody needs that
        logging.getLogger(name).addHandler(logging.NullHandler())
    return Sdk(
        Client,
        MCPError,
        SessionMessage,
        StdioServerParameters,
        stdio_client,
        streamable_http_client,
        sse_client,
        create_mcp_http_client,
        mcp_types,
        validate_server_result,
        MODERN_PROTOCOL_VERSIONS,
        (mcp_types.CONNECTION_CLOSED, "Connection closed"),
    )


def check_version(version: str) -> None:
    """Raise `ConfigError` for a version of the SDK below `FLOOR`."""
    found = _VERSION.match(version)
    if found is None or (int(found[1]), int(found[2])) < FLOOR:
        wanted = ".".join(map(str, FLOOR))
        raise ConfigError(f"mcp {version} is installed, and {wanted} is needed; run: pip install 'agent-monitor[mcp]'")


# --------------------------------------------------------------------------------------------------
# The end of what a server writes to its stderr: read all the time, and bounded.

KEPT_BYTES: Final = 16_384
READ_BYTES: Final = 65_536
READS: Final = 64
"""The most reads of one look: a server may write faster than it is read."""


class StderrTail:
    """The last bytes that were written to `file`. A thread reads them, so that nobody who writes
    has to wait, and no event loop.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.file: IO[str] = os.fdopen(self._writing, "w", encoding="utf-8", errors="replace")
        """The end to write to, for the process of the server."""
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stderr of a server", daemon=True)
        self._thread.start()

    def text(self, chars: int) -> str:
        """The last `chars` characters, with what is in the pipe now."""
        with self._lock:
            self._read()
            return self._kept.decode("utf-8", "replace")[-chars:]

    def close(self) -> None:
        """Read no more. Processes that still write get a broken pipe."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):  # it wakes the thread
            os.set_blocking(self._writing, False)
            os.write(self._writing, b"\n")
        self._thread.join()
        self.file.close()
        os.close(self._reading)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        while not self._closed:
            poll.poll()
            with self._lock:
                self._read()

    def _read(self) -> None:
        for _ in range(READS):
            try:
                piece = os.read(self._reading, READ_BYTES)
            except BlockingIOError:
                return
            self._kept += piece
            del self._kept[:-KEPT_BYTES]


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


# --------------------------------------------------------------------------------------------------
# The texts of MCP servers as answers of tools: data, bounded and printable.

DESCRIPTION_CHARS: Final = 4_000
"""A longer description is cut, because it stands in every request."""


def readable(text: str) -> str:
    """A description as data: printable lines, and no more than `DESCRIPTION_CHARS` characters."""
    return clip("\n".join(map(printable, text.strip().splitlines())), DESCRIPTION_CHARS)


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` as JSON in UTF-8: half a surrogate pair becomes a question mark."""
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    given: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return given


def answer_of(result: Any) -> ToolAnswer:
    """The answer that a result of a server is: its texts, its media and its data."""
    texts: list[str] = []
    media: list[Media] = []
    for block in result.content:
        resource: Any = getattr(block, "resource", None)
        if block.type == "text":
            texts.append(block.text)
        elif block.type in ("image", "audio"):
            media.append(Media(block.mime_type, data=block.data))
        elif block.type == "resource_link":
            texts.append(f"[{block.mime_type or 'resource'} {printable(block.name)}: {printable(str(block.uri))}]")
        elif hasattr(resource, "text"):
            texts.append(f"[{printable(str(resource.uri))}]\n{resource.text}")
        elif resource is not None:
            kind = resource.mime_type or "application/octet-stream"
            media.append(Media(kind, data=resource.blob, name=printable(str(resource.uri))))
    data = getattr(result, "structured_content", None)
    if not texts and not media and data is not None:
        texts.append(json.dumps(data, ensure_ascii=False))
    return ToolAnswer("\n".join(texts), bool(getattr(result, "is_error", False)), media=tuple(media), data=data)
