"""The counts as Prometheus reads them. Labels are words of ours only: none is the client's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from monitor.proxy.state.histograms import Histogram
from monitor.proxy.state.runs import ProxiedRuns

_COUNTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "requests": ("requests_total", "format", "Requests, by the format in which they were read."),
    "upstream_requests": ("upstream_requests_total", "", "Watched requests that an upstream has answered."),
    "upstream_status": ("upstream_status_total", "status", "Answers of upstreams, by their status."),
    "upstream_failures": ("upstream_failures_total", "", "Watched requests at which an upstream failed."),
    "fallbacks": ("fallbacks_total", "", "Requests for which the second service was asked."),
    "denied": ("denied_total", "status", "Requests that their key did not allow, by the status of the answer."),
    "unwatched": ("unwatched_total", "", "Answers of which a part was not watched."),
    "clients_left": ("clients_left_total", "", "Clients that left before their answer was complete."),
    "stops": ("stops_total", "reason", "Answers that were stopped."),
    "detections": ("detections_total", "detector", "Findings in answers, suspicions included."),
    "loops": ("loops_over_turns_total", "detector", "Requests whose history was in a loop."),
    "nudges": ("nudges_total", "detector", "Requests to which a message was added."),
    "outages": ("model_outages_total", "", "Models that were found to loop in most runs."),
    "holds": ("holds_total", "", "Requests that were held for an operator."),
    "bytes": ("answer_bytes_total", "", "Bytes that clients were sent."),
    "tokens": ("tokens_total", "", "Tokens that watched answers used, reported or estimated."),
    "closed": ("upstream_closes_total", "", "Upstreams that were closed before their end."),
}
_HISTOGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    "first_byte": ("first_byte_seconds", "Time from a watched request to the first byte of its answer."),
    "added": ("added_seconds", "Time that a watched request spent here before the upstream was asked."),
    "stopped": ("stopped_answer_bytes", "Bytes that clients were sent of an answer that was stopped."),
}
_LABEL_CHARS: Final = 80


def prometheus(runs: ProxiedRuns, held: int) -> str:
    """All counts, in the text format of Prometheus. `held`: requests that wait now."""
    return "".join(f"{line}\n" for line in _lines(runs, held))


def _lines(runs: ProxiedRuns, held: int) -> Iterator[str]:
    for metric, (name, label, told) in _COUNTS.items():
        yield from _head(name, "counter", told)
        found = {kind: number for (known, kind), number in runs.counts.items() if known == metric}
        if not label:
            yield f"agent_monitor_proxy_{name} {found.get('', 0)}"
        for kind, number in sorted(found.items()) if label else ():
            yield f'agent_monitor_proxy_{name}{{{label}="{_escaped(kind)}"}} {number}'
    for metric, (name, told) in _HISTOGRAMS.items():
        yield from _head(name, "histogram", told)
        yield from _histogram(f"agent_monitor_proxy_{name}", runs.histograms[metric])
    yield from _head("upstream_close_seconds_total", "counter", "Time from the decision to the closed upstream.")
    yield f"agent_monitor_proxy_upstream_close_seconds_total {runs.close_s:.6f}"
    yield from _head("active_requests", "gauge", "Watched requests that are being answered.")
    yield f"agent_monitor_proxy_active_requests {sum(run.active for run in runs)}"
    yield from _head("held_requests", "gauge", "Requests that wait for an operator.")
    yield f"agent_monitor_proxy_held_requests {held}"


def _histogram(name: str, values: Histogram) -> Iterator[str]:
    count = 0
    for bound, number in zip((*values.bounds, math.inf), values.counts, strict=True):
        count += number
        yield f'{name}_bucket{{le="{"+Inf" if bound == math.inf else f"{bound:g}"}"}} {count}'
    yield f"{name}_sum {values.total:.6f}"
    yield f"{name}_count {count}"


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP agent_monitor_proxy_{name} {told}"
    yield f"# TYPE agent_monitor_proxy_{name} {kind}"


def _escaped(text: str) -> str:
    return text[:_LABEL_CHARS].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
