"""The SDK of MCP: the names of it that are used, and which versions can be."""

from __future__ import annotations

import importlib.metadata
import logging
import re
from dataclasses import dataclass
from typing import Any, Final

from monitor.errors import ConfigError, MissingExtra

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
