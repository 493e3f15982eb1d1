"""`agent-monitor proxy`: the guard in front of clients in any language."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.options.proxy_options import (
    AnswerOptions,
    BoundOptions,
    KeyOptions,
    ServiceOptions,
    SpendingOptions,
)
from monitor.cli.options.settings_options import DetectorOptions
from monitor.cli.options.supervisor_arguments import number_or_off
from monitor.cli.render import output
from monitor.cli.serving import SettingsReload, serve

if TYPE_CHECKING:
    from monitor.proxy import ProxiedRun
    from monitor.sinks import RequestSpans

PAGES: Final = "Its own pages"
"""The heading of this option in the help."""
_QUIET: Final = frozenset({"ended", "running"})


def proxy(
    *,
    services: ServiceOptions,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0: any free one.")] = 8787,
    answers: AnswerOptions,
    bounds: BoundOptions,
    spending: SpendingOptions,
    keys: KeyOptions,
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
    from monitor.proxy import Proxy  # noqa: PLC0415 - may be missing, and takes time

    made = Proxy(
        **services.arguments(),
        **asdict(answers),
        **bounds.arguments(),
        **spending.arguments(),
        **keys.arguments(),
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
        headers_s=bounds.arrival,
        token_given=token is not None,
        reload=SettingsReload(made, keys.keys, settings.read),
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
