"""Tells public addresses of the network from others. Somebody may lead a model to ask for others:
the metadata of a cloud machine, a service on this machine, a router.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio

from monitor._util.arguments import shown
from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind

URL_CHARS: Final = 4_000
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""RFC 6052: its last 32 bits are an IPv4 address."""


def is_public(address: str) -> bool:
    """Whether an IP address is public. An IPv4 address within an IPv6 one must be public too."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in _NAT64:
            inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if any(one is not None and not is_public(str(one)) for one in inner):
            return False
        if ip.ipv4_mapped is not None:
            return True
    return ip.is_global and not ip.is_multicast


def checked_url(url: str) -> SplitResult:
    """The parts of an address of the web. Raises `ToolError` for anything else, and for an address
    with a user or a password.
    """
    try:
        parts = urlsplit(url.strip())
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine, parts = False, SplitResult("", "", "", "", "")
    if not fine or len(url) > URL_CHARS or not url.strip().isprintable() or " " in url.strip():
        raise ToolError(f"{shown(url)} is no address of the web (http or https)", kind=ToolErrorKind.INVALID_ARGUMENTS)
    if parts.username is not None or parts.password is not None:
        raise ToolError("an address with a user or a password is not opened", kind=ToolErrorKind.PERMISSION)
    return parts


async def check_public(host: str) -> None:
    """Raise `ToolError` if the name `host` leads to an address that is not public."""
    try:
        found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"there is no host {shown(host)}", kind=ToolErrorKind.NOT_FOUND) from None
    for *_, address in found:
        refuse_private(host, str(address[0]))


def refuse_private(host: str, address: str) -> None:
    """Raise `ToolError` if `address` is not public."""
    if not is_public(address):
        raise ToolError(
            f"{shown(host)} is not in the public network; such addresses are not opened", kind=ToolErrorKind.PERMISSION
        )
