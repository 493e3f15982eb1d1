"""The pages of the proxy: health, readiness, metrics, runs, and a live page of the runs.

All but the first two and the empty page need the token, in the header `authorization: Bearer ...`.
The page has no data: its script fetches it with the token from the address bar's fragment, which no
browser sends to a server.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import anyio

from monitor.errors import StoreError
from monitor.proxy.formats.framing import event
from monitor.proxy.http_messages import Receive, Scope, Send, answer, begin, body, first
from monitor.proxy.runs import Histogram, HoldAnswer, ProxiedRun, ProxiedRuns
from monitor.report.report_page import policy_of

if TYPE_CHECKING:
    from monitor.proxy.upstream_requests import ProxyContext


# --------------------------------------------------------------------------------------------------
# The live page: one HTML file with its style and its script, which loads nothing but the runs.


def _part(name: str) -> str:
    return files("monitor.proxy").joinpath("admin", name).read_text("utf-8")


@cache
def page() -> tuple[bytes, str]:
    """The page, and its content security policy: this script, this style, and this server."""
    style, script = _part("page.css"), _part("page.js")
    filled = _part("page.html").replace("%STYLE%", style).replace("%SCRIPT%", script)
    return filled.encode(), f"{policy_of(style, script)}; connect-src 'self'; frame-ancestors 'none'"


# --------------------------------------------------------------------------------------------------
# The counts as Prometheus reads them. Labels are words of ours only: none is the client's.

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


_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
_NOT_KEPT: Final = (b"cache-control", b"no-store")
_OPERATOR: Final = "an operator stopped it"
_NOT_HEARD: Final = "the store does not answer, so other proxies with this run have not heard of it"
_IDLE: Final = "nothing of this run waits or runs"
_EVERY_S: Final = 0.25
"""The page gets changes at most so often."""
_SHOWN: Final = 200
"""The page shows this many runs at most."""
_METHODS: Final[Mapping[str, frozenset[str]]] = {
    "health": frozenset({"GET", "HEAD"}),
    "ready": frozenset({"GET", "HEAD"}),
    "": frozenset({"GET", "HEAD"}),
    "metrics": frozenset({"GET"}),
    "runs": frozenset({"GET"}),
    "events": frozenset({"GET"}),
}


class Admin:
    """Answers below the proxy's own prefix."""

    def __init__(self, context: ProxyContext, token: str, draining: Draining) -> None:
        self._context = context
        self._draining = draining
        self._token = token.encode()

    async def serve(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """One request. `path`: what follows the prefix."""
        method, path = scope["method"], unquote(path)
        is_run = path.startswith("runs/")
        allowed = frozenset({"GET", "POST"}) if is_run else _METHODS.get(path)
        if allowed is None:
            await _say(send, 404, {"error": "there is no such page"})
        elif method not in allowed:
            await _say(send, 405, {"error": f"use {' or '.join(sorted(allowed))}"})
        elif path == "health":
            await _say(send, 200, {"ok": True, "held": len(self._context.desk)}, empty=method == "HEAD")
        elif path == "ready":
            ready = not self._draining.has_begun
            why = {} if ready else {"why": "the proxy shuts down, and lets running answers end"}
            await _say(send, 200 if ready else 503, {"ready": ready, **why}, empty=method == "HEAD")
        elif path == "":
            content, policy = page()
            kind, safe = b"text/html; charset=utf-8", (b"content-security-policy", policy.encode())
            plain = (b"x-content-type-options", b"nosniff")
            await answer(send, 200, content, kind, safe, plain, _NOT_KEPT, empty=method == "HEAD")
        elif not self._may(scope):
            await _say(send, 401, {"error": "send the token: authorization: Bearer ..."})
        elif is_run:
            await self._run(scope, method, path.removeprefix("runs/"), send)
        elif path == "metrics":
            content = prometheus(self._context.runs, len(self._context.desk)).encode()
            await answer(send, 200, content, _TEXT, _NOT_KEPT)
        elif path == "runs":
            outages = [asdict(one) for one in self._context.runs.outages()]
            await _say(send, 200, {"runs": self._all_runs(), "outages": outages, **self._proxies()})
        else:
            await self._events(receive, send)

    def _may(self, scope: Scope) -> bool:
        given = first(scope["headers"], b"authorization") or b""
        kind, _, token = given.partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _run(self, scope: Scope, method: str, id: str, send: Send) -> None:
        run = self._one_run(id)
        if run is None:
            await _say(send, 404, {"error": "there is no such run, or it is long over"})
        elif method == "GET":
            await _say(send, 200, run)
        else:
            asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("do", [""])[0]
            if asked not in {"go", "stop"}:
                await _say(send, 400, {"error": "say do=go or do=stop"})
                return
            try:
                done = await self._decide(id, "go" if asked == "go" else "stop")
            except StoreError:
                await _say(send, 503, {"error": _NOT_HEARD})
                return
            status = 200 if done else 409
            await _say(send, status, self._one_run(id) or run if done else {"error": _IDLE})

    async def _decide(self, id: str, asked: HoldAnswer) -> bool:
        """Carry an operator's word out at all proxies. False: nothing of the run waits or goes on.
        Raises `StoreError` if the other proxies cannot hear of it; here it is carried out then too.
        """
        peers, run = self._context.peers, self._context.runs.get(id)
        elsewhere = peers is not None and peers.goes_on(id, held=asked == "go")
        here = run is not None and self.answer(run, asked, _OPERATOR)
        if peers is not None and elsewhere:
            await peers.say(id, asked, _OPERATOR)
        return here or elsewhere

    def obey(self, id: str, asked: HoldAnswer, why: str) -> None:
        """Carry out what an operator has said at another proxy."""
        if (run := self._context.runs.get(id)) is not None:
            self.answer(run, asked, why)

    def _one_run(self, id: str) -> Mapping[str, Any] | None:
        if self._context.peers is not None:
            return self._context.peers.run(id)
        run = self._context.runs.get(id)
        return None if run is None else run.to_dict()

    def _all_runs(self) -> Sequence[Mapping[str, Any]]:
        peers = self._context.peers
        return [run.to_dict() for run in self._context.runs] if peers is None else peers.all_runs()

    def _proxies(self) -> Mapping[str, Any]:
        """How many proxies the runs are of, and why they may be those of one only."""
        peers = self._context.peers
        return {} if peers is None else {"proxies": peers.proxies, "away": bool(peers.away)}

    def answer(self, run: ProxiedRun, asked: HoldAnswer, why: str) -> bool:
        """Let held requests go, or stop them and the answers that go on, with the reason `why`.
        False: there is none.
        """
        held = self._context.desk.answer(run.id, asked)
        if asked == "go":
            return held
        aborts = list(run.aborts)
        for abort in aborts:
            abort(why)
        return held or bool(aborts)

    async def _events(self, receive: Receive, send: Send) -> None:
        """The runs, again after each change, until the reader leaves or the proxy closes."""
        runs = self._context.runs
        headers = [(b"content-type", b"text/event-stream"), _NOT_KEPT]
        async with anyio.create_task_group() as group:

            async def until_left() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(until_left)
            await begin(send, 200, headers)
            while not runs.closed_down:
                version = runs.version
                outages = [one.message for one in runs.outages()]
                shown = self._all_runs()
                held = sum(run["state"] == "held" for run in shown)
                told = {"runs": shown[:_SHOWN], "held": held, "outages": outages, **self._proxies()}
                await body(send, event(told), more=True)
                await anyio.sleep(_EVERY_S)
                await runs.news(version)
            await body(send, b"", more=False)
            group.cancel_scope.cancel()


async def _say(send: Send, status: int, value: Mapping[str, Any], *, empty: bool = False) -> None:
    content = json.dumps(value, separators=(",", ":")).encode()
    await answer(send, status, content, _JSON, _NOT_KEPT, empty=empty)


# --------------------------------------------------------------------------------------------------
# The end of a proxy: running answers may end, then the others get the end of their format.


class Draining:
    """The requests that are being answered, and whether the server shuts down."""

    def __init__(self) -> None:
        self.has_begun = False
        """The server shuts down: it answers what still comes, and says that it is not ready."""
        self._open = 0
        self._idle = anyio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request that is being answered."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()
                self._idle = anyio.Event()

    async def until_idle(self, seconds: float | None) -> bool:
        """Wait until no request is being answered, for `seconds` at most; `None`: without an end.
        Returns whether none is.
        """
        with anyio.move_on_after(seconds):
            while self._open:
                await self._idle.wait()
        return not self._open
