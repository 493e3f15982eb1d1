"""The parts that all requests of a proxy share, and the words that they use alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from monitor.proxy.accounts import Accounts
from monitor.proxy.gate import Gate
from monitor.proxy.histories.request_reading import HistoryReader
from monitor.proxy.options import ProxyOptions
from monitor.proxy.state.holds import HeldRuns
from monitor.proxy.state.peers import Peers
from monitor.proxy.state.runs import ProxiedRuns
from monitor.proxy.transport.upstreams import Connections, Upstreams
from monitor.reasons import TerminateReason
from monitor.verdicts import Stop

GRACE_S: Final = 2.0
"""How long closing an upstream may take, in seconds."""
REFUSED: Final = 400
"""The status of a refusal. No client of four SDKs and three agents tries again after it; after 429
several do.
"""
LATER: Final = 503
"""The status of a refusal that may be over soon: clients try again."""


@dataclass(slots=True)
class ProxyContext:
    """The objects that all requests share."""

    options: ProxyOptions
    connections: Connections
    runs: ProxiedRuns
    desk: HeldRuns
    accounts: Accounts | None
    reader: HistoryReader
    upstreams: Upstreams
    gate: Gate
    peers: Peers | None = None
    """The other proxies behind the same balancer. `None`: this one shares nothing."""


_WORDS: Final[Mapping[TerminateReason, str]] = {
    TerminateReason.LOOP_DETECTED: "it repeated itself",
    TerminateReason.TOKEN_LIMIT: "its budget of tokens is used up",
    TerminateReason.COST_LIMIT: "its budget of money is used up",
    TerminateReason.TIMEOUT: "it took too long",
    TerminateReason.IDLE_TIMEOUT: "the service was silent for too long",
    TerminateReason.MAX_TURNS: "the run has had all its turns",
    TerminateReason.TOOL_CALL_LIMIT: "the run has made all its calls",
}


def sentence_of(stop: Stop, run: str) -> str:
    """The sentence that the client's user reads: a fixed beginning, and no text of the model."""
    aborted = stop.reason is TerminateReason.ABORTED  # by an operator or at the end of the proxy, in our words
    why = stop.detail if aborted else _WORDS.get(stop.reason, f"a limit was reached ({stop.reason.value})")
    return f"[agent-monitor stopped this answer: {why}. Run {run}.]"


def reason_of(stop: Stop, lost: str) -> str:
    """The reason as the client reads it. Operators read the whole detail. `lost`: what a store has
    said of itself.
    """
    detail = stop.detail.replace(lost, "its store does not answer") if lost else stop.detail
    return f"agent-monitor stopped this run: {stop.reason.value}: {detail}"
