"""The web as tools: `web_fetch` reads a page, `web_search` asks your provider of searches.

Needs the extra `web`. A page is read as text, bounded in bytes and seconds. An address that is not
public is refused. The address of the connection is checked again after it was made, because a name
may lead elsewhere the second time.
"""

from __future__ import annotations

import ipaddress
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit

import anyio
from pydantic import Field

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.arguments import shown
from monitor.errors import ConfigError, MissingExtra, StoreError, ToolError, ToolErrorKind, describe
from monitor.tools.artifacts.artifact_store import Fetched, InMemoryArtifacts, Recent, Reference
from monitor.tools.base import Tool, ToolContext
from monitor.tools.functions import FunctionTool
from monitor.tools.processes.printed_output import printed
from monitor.tools.registry import ToolGroup
from monitor.tools.remote import page_program
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.workspace import decoded

# --------------------------------------------------------------------------------------------------
# Tells public addresses of the network from others. Somebody may lead a model to ask for others:
# the metadata of a cloud machine, a service on this machine, a router.

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


try:
    import httpx2
except ImportError:
    raise MissingExtra("httpx2", "web") from None

__all__ = ["SearchProvider", "SearchResult", "WebTools"]

MAX_BYTES: Final = 5 * 1024 * 1024
"""Only the beginning of a longer page is read."""
TIMEOUT_S: Final = 30.0
REDIRECTS: Final = 5
RESULTS: Final = 10
RECENT_BYTES: Final = 50_000_000
"""The most bytes of pages that are kept in memory, so that they are not fetched again."""
VALIDATOR_CHARS: Final = 1_000
"""A longer ETag is not sent back."""
NOT_MODIFIED: Final = 304
PAGE_S: Final = 10.0
"""The most seconds that a page may take to become text."""
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
_PAGES: Final = ("text/html", "application/xhtml+xml")


@dataclass(slots=True, frozen=True)
class SearchResult:
    """One page that a search has found."""

    title: str
    url: str
    text: str = ""
    """The content of the page, in a sentence or two."""


class SearchProvider(Protocol):
    """Searches the web. No provider is built in: give one that holds your key."""

    async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
        """The best hits, at most `limit`, the best one first."""
        ...


class WebTools(ToolGroup):
    """The tools `web_fetch` and, where a provider is given, `web_search`.

    - `search`: the provider of `web_search`.
    - `private`: also open addresses that are not public.
    - `timeout_s`: the most seconds of a call. `max_bytes`: the most bytes of a page that are read.
    - `needs_approval`: for `web_fetch`, because an address can carry data out.
    - `recent`: the newest pages. A page that has not changed is not sent again. `None`: they are
      kept in memory, at most 50 MB.
    """

    def __init__(
        self,
        *,
        search: SearchProvider | None = None,
        private: bool = False,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        user_agent: str = "agent-monitor",
        recent: Recent | None = None,
        needs_approval: bool | Callable[[Mapping[str, Any], ToolContext], bool] = False,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - as ToolGroup has it
    ) -> None:
        if not (is_finite(timeout_s) and timeout_s > 0 and is_whole(max_bytes) and max_bytes > 0):
            raise ConfigError("WebTools: timeout_s and max_bytes are numbers above 0")
        if search is not None and (isinstance(search, type) or not callable(getattr(search, "search", None))):
            raise ConfigError(f"WebTools(search={search!r}): give an object with search(query, limit)")
        self._provider = search
        self._private = private
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._recent = Recent(InMemoryArtifacts(max_bytes=RECENT_BYTES)) if recent is None else recent
        self._headers = {"user-agent": user_agent, "accept": "text/html, text/*;q=0.9, application/json;q=0.9"}
        tools: list[Tool] = [
            FunctionTool(self._fetch, name="web_fetch", kind="read", keep="head", needs_approval=needs_approval)
        ]
        if search is not None:
            tools.append(FunctionTool(self._search, name="web_search", kind="read", keep="head"))
        super().__init__(tools, prefix=prefix, filter=filter)

    async def _fetch(self, *, url: Annotated[str, Field(description="An address with http or https.")]) -> ToolAnswer:
        """Read a page of the web as text. Links stand as [text](address)."""
        with anyio.move_on_after(self._timeout_s):
            return await self._read(url)
        raise ToolError(f"{shown(url)} was not read within {self._timeout_s:g} s", kind=ToolErrorKind.TIMEOUT)

    async def _search(self, *, query: Annotated[str, Field(min_length=1)]) -> ToolAnswer:
        """Search the web. Read a page that was found with web_fetch."""
        assert self._provider is not None  # noqa: S101 - without one there is no such tool
        found = [*await self._provider.search(query, RESULTS)][:RESULTS]
        text = "\n\n".join(f"{one.title}\n{one.url}\n{one.text}".strip() for one in found)
        reference = Reference(kind="reply", request={"query": query})
        return ToolAnswer(text, status=f"{len(found)} found", reference=reference)

    async def _read(self, url: str) -> ToolAnswer:
        async with httpx2.AsyncClient(trust_env=False, timeout=self._timeout_s, headers=self._headers) as client:
            for _ in range(REDIRECTS + 1):
                host = checked_url(url).hostname or ""
                if not self._private:
                    await check_public(host)
                earlier = await self._recent.earlier(Reference(kind="page", url=url))
                asks = _if_changed(earlier[1].validator) if earlier is not None else {}
                trace = {"trace": self._guard(host)}
                try:
                    async with client.stream("GET", url, headers=asks, extensions=trace) as response:
                        if earlier is not None and response.status_code == NOT_MODIFIED:
                            page, fetched = earlier
                            return ToolAnswer(fetched.text, status=f"HTTP 200; {url}", reference=page)
                        if response.is_redirect:
                            url = urljoin(url, response.headers.get("location", ""))
                            continue
                        return await self._answer(url, response)
                except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                    raise ToolError(f"{shown(url)} could not be read: {describe(error)}") from None
        raise ToolError(f"more than {REDIRECTS} redirects, the last one to {shown(url)}")

    def _guard(self, host: str) -> Callable[[str, Mapping[str, Any]], Any]:
        """A function that checks each connection before anything is sent."""

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            if event != "connection.connect_tcp.complete" or self._private:
                return
            stream = info["return_value"]
            try:
                refuse_private(host, str(stream.get_extra_info("server_addr")[0]))
            except BaseException:
                await stream.aclose()
                raise

        return trace

    async def _answer(self, url: str, response: httpx2.Response) -> ToolAnswer:
        kind = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
        if not (kind.startswith(_TEXTS) or kind in _PAGES or kind.endswith(("+json", "+xml"))):
            raise ToolError(f"{shown(url)} is no text: {shown(kind)}", kind=ToolErrorKind.INVALID_ARGUMENTS)
        content = bytearray()
        with anyio.CancelScope() as scope:
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > self._max_bytes:
                    scope.cancel()  # `break` would leave the SDK's generators suspended
        whole = len(content) <= self._max_bytes
        text = _text(bytes(content[: self._max_bytes]), response.charset_encoding, whole=whole)
        notes = [f"HTTP {response.status_code}", url]
        if not whole:
            notes.append(f"the first {self._max_bytes:,} bytes")
        note = ""
        if kind in _PAGES:
            text = await _page_text(text, url)
            note = text.partition("\n")[0]
        failed = response.is_error
        reference = None if failed else Reference(kind="page", url=url, note=note)
        if reference is not None and whole:
            with suppress(StoreError):  # then it is fetched again
                await self._recent.keep(reference, Fetched(text, _validator(response.headers)))
        error = ToolErrorKind.NOT_FOUND if response.status_code in {404, 410} else ToolErrorKind.EXECUTION_FAILED
        return ToolAnswer(text, failed, error if failed else None, status="; ".join(notes), reference=reference)


def _validator(headers: Mapping[str, str]) -> str | None:
    """The ETag of a page, or the time of its last change. `None`: the page has neither that can be
    sent back, or says that it must not be kept.
    """
    found: str | None = headers.get("etag") or headers.get("last-modified")
    if found is None or not found.isascii() or not found.isprintable() or len(found) > VALIDATOR_CHARS:
        return None
    return None if "no-store" in headers.get("cache-control", "").lower() else found


def _if_changed(validator: str | None) -> dict[str, str]:
    """The header that asks for a page only if it has changed. Only an ETag has quotes."""
    if validator is None:
        return {}
    return {"if-none-match" if validator.endswith('"') else "if-modified-since": validator}


def _text(content: bytes, charset: str | None, *, whole: bool) -> str:
    if charset is not None:
        try:
            return content.decode(charset, "replace")
        except LookupError:
            pass
    found = decoded(content, whole=whole)
    return found[0] if found is not None else content.decode("utf-8", "replace")


async def _page_text(page: str, url: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page")
        await anyio.Path(file).write_text(page, encoding="utf-8", errors="replace")
        text, over = await printed(
            [page_program.__file__, str(file), url], directory=Path(folder), bound=MAX_BYTES, seconds=PAGE_S
        )
    if over:
        raise ToolError(f"{shown(url)} could not be made text within {PAGE_S:g} s", kind=ToolErrorKind.TIMEOUT)
    return text.strip()
