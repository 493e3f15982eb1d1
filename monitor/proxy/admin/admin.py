"""The pages of the proxy: health, readiness, metrics, runs, and a live page of the runs.

All but the first two and the empty page need the token, in the header `authorization: Bearer ...`.
The page has no data: its script fetches it with the token from the address bar's fragment, which no
browser sends to a server.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import anyio

from monitor.errors import StoreError
from monitor.proxy.admin.live_page import page
from monitor.proxy.admin.prometheus import prometheus
from monitor.proxy.draining import Draining
from monitor.proxy.formats.framing.sse import event
from monitor.proxy.state.runs import HoldAnswer, ProxiedRun
from monitor.proxy.transport.asgi import Receive, Scope, Send, answer, begin, body
from monitor.proxy.transport.headers import first

if TYPE_CHECKING:
    from monitor.proxy.exchange.context import ProxyContext

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
