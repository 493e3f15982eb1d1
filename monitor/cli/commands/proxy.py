"""`agent-monitor proxy`: the guard in front of clients in any language."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio

from monitor.cli.options.proxy_options import AnswerLimits, ProxyCommandOptions
from monitor.cli.options.shared import DetectorOptions, flag, option
from monitor.cli.options.supervisor_arguments import number_or_off
from monitor.cli.render import output
from monitor.errors import ConfigError, MissingExtra, MonitorError
from monitor.settings import Settings

if TYPE_CHECKING:
    from monitor.proxy import ProxiedRun, Proxy
    from monitor.sinks import RequestSpans

# --------------------------------------------------------------------------------------------------
# SIGHUP of `agent-monitor proxy`: its keys and its detectors are read again.

_REST: Final = "addresses, limits, budgets and the port need a restart"


class SettingsReload:
    """Reads what can change without a restart."""

    def __init__(self, proxy: Proxy, keys: Path | None, read: Callable[[], Settings]) -> None:
        """`keys`: the file of virtual keys, if there is one. `read` reads the settings."""
        self._proxy = proxy
        self._keys = keys
        self._read = read

    async def follow(self) -> None:
        """Read again at each SIGHUP, if the system has it, until this is cancelled."""
        if hasattr(signal, "SIGHUP"):
            with anyio.open_signal_receiver(signal.SIGHUP) as signals:
                async for _ in signals:
                    await self.run()

    async def run(self) -> None:
        """Read the keys and the settings, and say what came of it. If anything in them is wrong,
        everything stays as it was.
        """
        from monitor.proxy.keys import read_keys  # noqa: PLC0415 - the extra may be missing

        console = output.stderr()
        try:
            detectors = self._read().detectors
            keys = None if self._keys is None else read_keys(self._keys)
            await self._proxy.renew(virtual_keys=keys, detectors=detectors)
        except MonitorError as error:
            output.complain(console, f"the settings were not read again: {error}")
            return
        said = "" if keys is None else f"{len(keys)} {'key' if len(keys) == 1 else 'keys'} and "
        output.line(console, f"read again: {said}the detectors; {_REST}")


_BASES: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("OPENAI_BASE_URL", "/v1"),
    "anthropic": ("ANTHROPIC_BASE_URL", ""),
    "google": ("GOOGLE_GEMINI_BASE_URL", ""),
}
"""The variable from which the SDK of a service takes its address, and what its path begins with."""
_SIGNS: Final[Mapping[str, Sequence[str]]] = {
    "openai": ("openai",),
    "anthropic": ("anthropic", "claude"),
    "google": ("google", "gemini"),
}
"""The words by which the name or the address of such a service is recognised."""
_LOOK_S: Final = 0.1
"""Seconds between two looks for a second Ctrl-C, like uvicorn's own."""
_LEFT_S: Final = 3
"""Seconds for what is still open after --drain: answers that are not watched, and their clients."""


def serve(
    made: Proxy,
    host: str,
    port: int,
    drain_s: float | None,
    *,
    headers_s: float,
    token_given: bool,
    reload: SettingsReload,
) -> None:
    """Serve until Ctrl-C or SIGTERM, and then let running answers go on for `drain_s` seconds.
    `headers_s`: how long the headers of a request may take. `token_given`: it is not shown.
    """
    try:
        import uvicorn  # noqa: PLC0415 - may be missing
        from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("uvicorn", "proxy") from None

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.reloading = asyncio.ensure_future(reload.follow())

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            self.reloading.cancel()
            draining = asyncio.ensure_future(made.drain(drain_s))  # the listener stays meanwhile
            while not (draining.done() or self.force_exit):
                await asyncio.wait([draining], timeout=_LOOK_S)
            draining.cancel()
            await super().shutdown(sockets)

    logging.getLogger("uvicorn.error").addFilter(_is_news)
    options = uvicorn.Config(
        made,
        host=host,
        port=port,
        http=in_time(AutoHTTPProtocol, headers_s),
        log_config=None,
        access_log=False,  # Gemini's keys stand in the addresses
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=_LEFT_S,
    )
    try:
        listening = options.bind_socket()
    except SystemExit:
        raise ConfigError(f"nothing can listen on {host} port {port}: is it used already?") from None
    with listening:
        listening.listen()  # from now on connections wait until the server takes them
        real = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        _greet(made, f"http://{shown}:{real}", token_given=token_given)
        Server(options).run(sockets=[listening])


def _is_news(record: logging.LogRecord) -> bool:
    """Leaves out that answers were cut off: by Ctrl-C, or because the service broke off."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not record.getMessage().startswith("ASGI callable returned without completing")


def _greet(made: Proxy, address: str, *, token_given: bool) -> None:
    """Say what to set for each SDK."""
    console = output.stderr()
    for one in made.upstreams.all:
        base = f"{address}/{one.name}" if one.name else address
        output.line(console, f"{base} -> {one}", "bold")
        known = [kind for kind, signs in _SIGNS.items() if any(sign in f"{one.name} {one.host}" for sign in signs)]
        for kind in known or _BASES:
            variable, path = _BASES[kind]
            output.line(console, f"  {variable}={base}{path}")
    page = f"{address}{made.prefix}"
    output.line(console, f"page: {page}" if token_given else f"page: {page}#token={made.token}")


def in_time(protocol: Any, headers_s: float) -> type[Any]:
    """The HTTP protocol of uvicorn, which closes a connection whose next request has not all its
    headers within `headers_s` seconds: uvicorn itself waits for ever.
    """

    class InTime(protocol):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            self.late: asyncio.TimerHandle | None = None
            super().connection_made(transport)
            self.wait_for_headers()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            if self.late is None and (before is None or before.response_complete):
                self.wait_for_headers()
            super().data_received(data)
            if self.cycle is not before:
                self.stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(exc)

        def wait_for_headers(self) -> None:
            self.late = asyncio.get_running_loop().call_later(headers_s, self.transport.close)

        def stop_waiting(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

    return InTime


# --------------------------------------------------------------------------------------------------
# `agent-monitor proxy`: the guard in front of clients in any language.

PAGES: Final = "Its own pages"
"""The heading of this option in the help."""
_QUIET: Final = frozenset({"ended", "running"})


def proxy(
    *,
    host: Annotated[str, option("ADDRESS", "Where it listens.")] = "127.0.0.1",
    port: Annotated[int, option("N", "0: any free one.", min=0, max=65535)] = 8787,
    options: ProxyCommandOptions,
    limits: AnswerLimits,
    token: Annotated[
        str | None,
        option(
            "TEXT",
            "Opens the pages. Give it by the variable; without it there is a new one at each start.",
            envvar="AGENT_MONITOR_TOKEN",
            panel=PAGES,
        ),
    ] = None,
    drain: Annotated[str, option("SECONDS|off", "How long Ctrl-C lets running answers go on.")] = "10",
    otel: Annotated[
        bool,
        flag("--otel", "An OpenTelemetry span for each request. Configure the SDK as opentelemetry does."),
    ] = False,
    as_json: Annotated[bool, flag("--json", "Print a JSON object for each answer.")] = False,
    settings: DetectorOptions,
) -> None:
    """Watch what models answer to clients in any language: a proxy in front of the service.

    Point your SDK at it, and change nothing else. What the model writes passes through
    unchanged. When it loops, or exceeds a limit, the connection to the service is closed,
    and your SDK sees an answer that has ended.

    Examples:
      agent-monitor proxy --upstream https://api.openai.com
      agent-monitor proxy --upstream openai=https://api.openai.com \\
        --upstream anthropic=https://api.anthropic.com
      agent-monitor proxy --upstream https://api.anthropic.com --on-loop hold
      agent-monitor proxy --upstream http://localhost:11434 --max-turns 40 \\
        --budget budgets.db --key-tokens 2000000

    Loops over turns are judged from the history in each request, so a restart or
    a second proxy changes no verdict. Name a run with the header
    x-agent-monitor-run. Without it, two runs that begin alike count as one.

    It listens on this machine only, unless --host says otherwise. Keys pass
    through; none is stored or logged. Its own pages are below /agent-monitor/,
    and need the token: metrics, runs, and a page that shows them live.

    Ctrl-C lets running answers end, for --drain seconds; again, it closes at once.
    SIGHUP reads --keys and the settings of the detectors again.
    """
    from monitor.proxy import Proxy  # noqa: PLC0415 - may be missing, and takes time

    made = Proxy(
        **options.arguments(limits),
        detectors=settings.read().detectors,
        token=token,
        told=_json if as_json else _told,
        spans=_spans() if otel else None,
    )
    serve(
        made,
        host,
        port,
        number_or_off(drain, "--drain"),
        headers_s=options.arrival_s,
        token_given=token is not None,
        reload=SettingsReload(made, options.virtual_keys, settings.read),
    )


def _spans() -> RequestSpans:
    from monitor.sinks import RequestSpans  # noqa: PLC0415 - the extra may be missing

    return RequestSpans()


def _told(run: ProxiedRun) -> None:
    """One line for each answer that did not end by itself."""
    if run.state in _QUIET:
        return
    stop = run.last_stop
    why = f": {stop['reason']}: {stop['detail']}" if stop is not None and run.state != "left" else ""
    output.line(output.stderr(), f"{run.state} {run.id} ({run.wire} {run.model}){why}")


def _json(run: ProxiedRun) -> None:
    output.write_json(run.to_dict())
