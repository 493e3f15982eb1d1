"""`agent-monitor proxy`: the guard in front of clients in any language."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer
from rich.text import Text

from monitor.cli.options.run_options import IdleTimeoutOption, MaxToolCallsOption, PriceOption, limit_option
from monitor.cli.options.settings_options import DetectorOptions
from monitor.cli.options.supervisor_arguments import limits_of, number_or_off, price_of
from monitor.cli.render import output
from monitor.cli.settings_reload import SettingsReload
from monitor.errors import ConfigError, MissingExtra
from monitor.settings import Settings
from monitor.shared import budgets_at, rows_at

if TYPE_CHECKING:
    from monitor.proxy import ProxiedRun, Proxy
    from monitor.proxy.virtual_keys import VirtualKeys
    from monitor.sinks import RequestSpans

Way: TypeAlias = Literal["relay", "pay", "refuse"]
Ending: TypeAlias = Literal["text", "error", "silent"]
Deed: TypeAlias = Literal["stop", "error", "hold", "observe"]
BUDGETS, KEYS, PAGES = "Budgets", "Keys", "Its own pages"
"""The headings of these options in the help."""
_SQLITE: Final = "sqlite:///"
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
_QUIET: Final = frozenset({"ended", "running"})
_LOOK_S: Final = 0.1
"""Seconds between two looks for a second Ctrl-C, like uvicorn's own."""
_LEFT_S: Final = 3
"""Seconds for what is still open after --drain: answers that are not watched, and their clients."""


def proxy(
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            "--upstream",
            metavar="[NAME=]URL",
            help="The service, without /v1. With a NAME it gets the paths below /NAME/; may be given again.",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0: any free one.")] = 8787,
    on_loop: Annotated[
        Deed,
        typer.Option(
            help="stop: end the answer well; error: with an error; hold: wait for an operator; observe: only show it."
        ),
    ] = "stop",
    hold: Annotated[
        float, typer.Option("--hold", metavar="SECONDS", min=1, help="How long a held run waits for an operator.")
    ] = 300.0,
    nudge: Annotated[
        bool,
        typer.Option("--nudge", help="Add a message to the request of a run that repeats itself, and may loop soon."),
    ] = False,
    stop_as: Annotated[
        Ending,
        typer.Option(
            help="text: one sentence is the last text of an answer that is stopped; error: it ends with an error; "
            "silent: only a comment says why."
        ),
    ] = "text",
    holds_calls: Annotated[
        bool, typer.Option("--hold-calls/--pass-calls", help="Pass a call on when it is whole, or as it comes.")
    ] = True,
    unwatched: Annotated[
        Way | None,
        typer.Option(
            help="What cannot be judged: relay it, let it pay by its bytes, or refuse it. "
            "The default pays if there is a --budget.",
        ),
    ] = None,
    max_turns: Annotated[str, limit_option(metavar="N|off", help="Turns since the user's last task.")] = "off",
    max_tool_calls: MaxToolCallsOption = None,
    timeout: Annotated[str, limit_option(metavar="SECONDS|off", help="For one answer.")] = "off",
    idle_timeout: IdleTimeoutOption = "off",
    max_body: Annotated[int, limit_option(metavar="BYTES", min=1, help="Longer requests cannot be judged.")] = 32
    * 1024
    * 1024,
    max_in_flight: Annotated[
        int, limit_option(metavar="BYTES", min=1, help="Held at once, of all requests and answers.")
    ] = 256 * 1024 * 1024,
    max_keyless: Annotated[
        int, limit_option(metavar="N", min=1, help="Requests without a key that are answered at once.")
    ] = 100,
    arrival: Annotated[
        float, limit_option(metavar="SECONDS", min=0.1, help="How long a request may take to arrive.")
    ] = 60.0,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            envvar="AGENT_MONITOR_BUDGETS",
            help="A file, sqlite:///FILE, redis://... or postgresql://.... Keys spend from proxy/<key>.",
            rich_help_panel=BUDGETS,
        ),
    ] = None,
    key_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="The limit of a key that has none in the store.", rich_help_panel=BUDGETS
        ),
    ] = None,
    run_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The limit of each run.", rich_help_panel=BUDGETS)
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share/--no-share",
            help="Share runs, their page and the operator's words with the other proxies of this STORE.",
            rich_help_panel=BUDGETS,
        ),
    ] = True,
    price: PriceOption = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="NAME=WHAT",
            help="What a key is called. WHAT: the variable that holds the key, or sha256: and its digest.",
            rich_help_panel=BUDGETS,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="AGENT_MONITOR_KEYS",
            help="Only the keys in this file may pass: agent-monitor keys makes them. Read again on SIGHUP.",
            rich_help_panel=KEYS,
        ),
    ] = None,
    service_key: Annotated[
        list[str] | None,
        typer.Option(
            "--service-key",
            metavar="[NAME=]VARIABLE",
            help="The variable with the key that the service gets in place of the client's.",
            rich_help_panel=KEYS,
        ),
    ] = None,
    fallback: Annotated[
        list[str] | None,
        typer.Option(
            "--fallback",
            metavar="[NAME=]URL",
            help="A second service, asked if the first cannot be reached or has a status from 500 on.",
        ),
    ] = None,
    fallback_key: Annotated[
        list[str] | None,
        typer.Option(
            "--fallback-key",
            metavar="[NAME=]VARIABLE",
            help="The variable with the key that the second service gets. Without it, the same key.",
            rich_help_panel=KEYS,
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="AGENT_MONITOR_TOKEN",
            help="Opens the pages. Give it by the variable; without it there is a new one at each start.",
            rich_help_panel=PAGES,
        ),
    ] = None,
    drain: Annotated[
        str, typer.Option(metavar="SECONDS|off", help="How long Ctrl-C lets running answers go on.")
    ] = "10",
    otel: Annotated[
        bool,
        typer.Option("--otel", help="An OpenTelemetry span for each request. Configure the SDK as opentelemetry does."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each answer.")] = False,
    settings: DetectorOptions,
) -> None:
    """Watch what models answer to clients in any language: a proxy in front of the service.

    Point your SDK at it, and change nothing else. What the model writes passes through
    unchanged. When it loops, or exceeds a limit, the connection to the service is closed,
    and your SDK sees an answer that has ended.

    \b
    Examples:
      agent-monitor proxy --upstream https://api.openai.com
      agent-monitor proxy --upstream openai=https://api.openai.com \\
        --upstream anthropic=https://api.anthropic.com
      agent-monitor proxy --upstream https://api.anthropic.com --on-loop hold
      agent-monitor proxy --upstream http://localhost:11434 --max-turns 40 \\
        --budget budgets.db --key-tokens 2000000

    \b
    Loops over turns are judged from the history in each request, so a restart or
    a second proxy changes no verdict. Name a run with the header
    x-agent-monitor-run. Without it, two runs that begin alike count as one.

    \b
    It listens on this machine only, unless --host says otherwise. Keys pass
    through; none is stored or logged. Its own pages are below /agent-monitor/,
    and need the token: metrics, runs, and a page that shows them live.

    \b
    Ctrl-C lets running answers end, for --drain seconds; again, it closes at once.
    SIGHUP reads --keys and the settings of the detectors again.
    """  # noqa: D301 - \b keeps the lines of an example apart
    with output.tidy_exit():
        chosen = settings.read()
        made = _made(
            _upstreams(upstream),
            chosen,
            stop_when=limits_of(
                max_turns=max_turns, timeout=timeout, idle_timeout=idle_timeout, max_tool_calls=max_tool_calls
            ),
            on_loop=on_loop,
            hold_s=hold,
            nudge=nudge,
            unwatched=unwatched,
            stop_as=stop_as,
            holds_calls=holds_calls,
            budget=None if budget is None else budgets_at(budget.removeprefix(_SQLITE)),
            rows=rows_at(budget.removeprefix(_SQLITE)) if share and budget is not None else None,
            key_tokens=key_tokens,
            run_tokens=run_tokens,
            prices=price_of(price),
            keys=_names(key or ()),
            virtual_keys=None if keys is None else _keys_in(keys),
            service_keys=_secrets("--service-key", service_key or ()),
            fallbacks=_addresses("--fallback", fallback or ()),
            fallback_keys=_secrets("--fallback-key", fallback_key or ()),
            token=token,
            most_body=max_body,
            most_in_flight=max_in_flight,
            most_keyless=max_keyless,
            arrival_s=arrival,
            told=_json if as_json else _told,
            spans=_spans() if otel else None,
        )
        reload = SettingsReload(made, keys, settings.read)
        _serve(made, host, port, number_or_off(drain, "--drain"), token_given=token is not None, reload=reload)


def _made(upstreams: Mapping[str, str], chosen: Settings, *, keys: Mapping[str, str], **options: Any) -> Proxy:
    from monitor.proxy import KeyNames, Proxy  # noqa: PLC0415 - may be missing, and takes time

    return Proxy(upstreams, detectors=chosen.detectors, keys=KeyNames(keys), **options)


def _upstreams(given: Sequence[str] | None) -> Mapping[str, str]:
    if not given:
        raise ConfigError("say where the requests go: --upstream https://api.openai.com")
    return _addresses("upstream", given)


def _addresses(what: str, given: Sequence[str]) -> Mapping[str, str]:
    """Addresses by the names of upstreams."""
    found: dict[str, str] = {}
    for one in given:
        before, sign, after = one.partition("=")
        name, address = (before, after) if sign and "/" not in before else ("", one)
        if name in found:
            raise ConfigError(f"two {what}s are called {name!r}" if name else f"only one {what} may have no name")
        found[name] = address
    return found


def _secrets(option: str, given: Sequence[str]) -> Mapping[str, str]:
    """The keys of services by the names of upstreams. The options have the names of variables."""
    found: dict[str, str] = {}
    for one in given:
        before, sign, after = one.partition("=")
        name, variable = (before, after) if sign else ("", before)
        value = os.environ.get(variable)
        if not value:
            raise ConfigError(f"{option}: the variable that it names is not set")
        if name in found:
            raise ConfigError(f"{option}: two keys are for the upstream {name!r}")
        found[name] = value
    return found


def _spans() -> RequestSpans:
    from monitor.sinks import RequestSpans  # noqa: PLC0415 - the extra may be missing

    return RequestSpans()


def _keys_in(file: Path) -> VirtualKeys:
    from monitor.proxy.key_file import read_keys  # noqa: PLC0415 - takes time

    return read_keys(file)


def _names(given: Sequence[str]) -> Mapping[str, str]:
    """The digests of keys by their names."""
    from monitor.proxy.keys import digest_of  # noqa: PLC0415 - as above

    found: dict[str, str] = {}
    for one in given:
        name, sign, what = one.partition("=")
        if name in found:
            raise ConfigError(f"--key {name}: two keys have this name")
        if not sign or not what:
            raise ConfigError(f"--key {name}: write NAME=VARIABLE, or NAME=sha256:...")
        if not what.startswith("sha256:"):
            value = os.environ.get(what)
            if not value:
                raise ConfigError(f"--key {name}: the variable that it names is not set")
            what = digest_of(value)
        found[name] = what
    return found


def _told(run: ProxiedRun) -> None:
    """One line for each answer that did not end by itself."""
    if run.state in _QUIET:
        return
    stop = run.last_stop
    why = f": {stop['reason']}: {stop['detail']}" if stop is not None and run.state != "left" else ""
    output.complain(output.stderr(), f"{run.state} {run.id} ({run.wire} {run.model}){why}", style="")


def _json(run: ProxiedRun) -> None:
    output.write_json(run.to_dict())


def _serve(
    made: Proxy, host: str, port: int, drain_s: float | None, *, token_given: bool, reload: SettingsReload
) -> None:
    try:
        import uvicorn  # noqa: PLC0415 - may be missing
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
        console.print(Text(f"{base} -> {one}", "bold"), soft_wrap=True)
        known = [kind for kind, signs in _SIGNS.items() if any(sign in f"{one.name} {one.host}" for sign in signs)]
        for kind in known or _BASES:
            variable, path = _BASES[kind]
            console.print(Text(f"  {variable}={base}{path}"), soft_wrap=True)
    page = f"{address}{made.prefix}"
    console.print(Text(f"page: {page}" if token_given else f"page: {page}#token={made.token}"), soft_wrap=True)
