"""The request that the upstream gets: as it came, or changed where that was chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.core.detector_bank import DetectorBank, PartCrash
from monitor.detectors.detector import Detector
from monitor.errors import TerminateReason
from monitor.policy import stop_for
from monitor.proxy.accounts import Accounts, ProxyOptions
from monitor.proxy.formats.anthropic import has_cut_thoughts, without_cut_thoughts
from monitor.proxy.formats.base import JudgedRequest, Span, rewritten
from monitor.proxy.formats.merging import as_stream
from monitor.proxy.histories import HistoryReader, RequestReading
from monitor.proxy.http_messages import Headers, HeldBytes, coding_of, to_upstream, with_key
from monitor.proxy.keys import Gate
from monitor.proxy.runs import HeldRuns, Peers, ProxiedRun, ProxiedRuns, signature
from monitor.proxy.upstreams import (
    Connections,
    RequestBody,
    Upstream,
    UpstreamAnswer,
    UpstreamFailed,
    Upstreams,
)
from monitor.runs.budget_hold import BudgetHold
from monitor.verdicts import Detection, Stop

# --------------------------------------------------------------------------------------------------
# The parts that all requests of a proxy share, and the words that they use alike.

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


async def close(opened: UpstreamAnswer | None, holding: BudgetHold | None) -> None:
    """Close the upstream's answer, and settle the budget of a request that is over."""
    with anyio.CancelScope(shield=True):
        if opened is not None:
            with anyio.move_on_after(GRACE_S):
                await opened.body.aclose()
        if holding is not None:
            await holding.close()


_NO_STREAMS: Final = frozenset({405, 501})
"""The statuses of a service that gives no stream. The request is then made as it came."""
_PERHAPS_NO_STREAMS: Final = frozenset({400, 404, 422})
"""The statuses of a refusal, which names the stream if it is refused for that."""


async def _gives_no_stream(opened: UpstreamAnswer) -> bool:
    """Whether the service refuses to stream. Any other refusal would come again."""
    if opened.status not in _PERHAPS_NO_STREAMS:
        return opened.status in _NO_STREAMS
    return b"stream" in (await opened.body.beginning(4_096)).lower()


_SERVER_ERROR: Final = 500
"""From this status on the service has failed, and the second one is asked."""


@dataclass(slots=True, kw_only=True)
class ProxiedRequest:
    """One request that was read to its end."""

    upstream: Upstream
    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    held: HeldBytes
    """Counts the bytes of the request, and then those of its answer that are kept."""
    reading: RequestReading
    hide: Callable[[str], str]
    """Masks the client's key, and whatever looks like one."""


class UpstreamRequest:
    """One request for the upstream. Its body is dropped when it has been sent."""

    def __init__(self, context: ProxyContext, request: ProxiedRequest, *, about_to_ask: Callable[[], None]) -> None:
        """`about_to_ask` is called before each request to the upstream."""
        self._context = context
        self._request = request
        self._about_to_ask = about_to_ask
        self._is_packed = bool(coding_of(request.headers))
        self._known: Span | None = None
        """The records in the body that were read in an earlier request."""
        self._is_changed = False
        self.is_paid = False
        """The upstream has a request for which it asks money, as far as is known."""
        self.fell_back = False
        """The first service has failed, and the second one was asked."""
        self.opened: UpstreamAnswer | None = None
        """The newest answer of the upstream."""

    def judged(self, known: Span | None) -> None:
        """Note which records of the body were `known`."""
        self._known = None if self._is_packed else known

    def change(self, change: Callable[[bytes], bytes]) -> None:
        """Change the body. Raises what `change` raises."""
        request, self._known, known = self._request, None, self._known
        request.body = rewritten(request.body, known, change)
        self._is_changed = True

    async def open(self, asked: JudgedRequest) -> tuple[UpstreamAnswer, bool]:
        """The answer of the upstream, and whether a stream was asked for in place of a whole
        answer. Raises `UpstreamFailed`.
        """
        request = self._request
        if asked.form == "anthropic" and has_cut_thoughts(request.body):
            self._known = None
            self.change(without_cut_thoughts)
        if not (asked.streams or asked.fixed or self._is_packed):
            streamed = as_stream(asked.form, request.path, request.query, request.body, self._known)
            if streamed is not None:
                path, query, body = streamed
                is_changed = self._is_changed or body is not request.body
                del streamed
                sending = RequestBody(body)
                del body
                opened = await self._ask(path, query, sending, is_changed=is_changed)
                if not await _gives_no_stream(opened):
                    request.body = b""
                    return opened, True
                await opened.body.aclose()
        sending, request.body = RequestBody(request.body), b""
        return await self._ask(request.path, request.query, sending, is_changed=self._is_changed), False

    async def _ask(self, path: bytes, query: bytes, body: RequestBody, *, is_changed: bool) -> UpstreamAnswer:
        request, context = self._request, self._context
        second = None if self.fell_back else context.upstreams.second(request.upstream)
        if second is None:
            return await self._ask_one(request.upstream, path, query, body, is_changed=is_changed)
        body.keep = True
        try:
            opened = await self._ask_one(request.upstream, path, query, body, is_changed=is_changed)
        except UpstreamFailed:
            pass
        else:
            if opened.status < _SERVER_ERROR:
                body.drop()
                return opened
            await opened.body.aclose()
        context.runs.count("fallbacks")
        self.fell_back = True
        body.keep = False
        request.upstream = second
        if (key := context.gate.fallback_keys.get(second.name)) is not None:
            request.headers, request.query = with_key(request.headers, request.query, key)
            _, query = with_key((), query, key)
        return await self._ask_one(second, path, query, body, is_changed=is_changed)

    async def _ask_one(
        self, upstream: Upstream, path: bytes, query: bytes, body: RequestBody, *, is_changed: bool
    ) -> UpstreamAnswer:
        request = self._request
        self._about_to_ask()
        headers = to_upstream(request.headers, identity=True, length=body.size if is_changed else None)
        self.is_paid = True
        try:
            self.opened = await self._context.connections.open(
                upstream, method=request.method, path=path, query=query, headers=headers, content=body
            )
        except UpstreamFailed:
            self.is_paid = False
            raise
        self._context.runs.count("upstream_status", str(self.opened.status))
        return self.opened


# --------------------------------------------------------------------------------------------------
# A run that loops over its turns waits for an operator.


async def may_go_on(
    context: ProxyContext,
    run: ProxiedRun,
    loop: Detection,
    *,
    remark: Callable[[], Awaitable[None]],
    hide: Callable[[str], str],
) -> bool:
    """Whether an operator lets the run go on, at this proxy or at another one. Meanwhile `remark`
    is called, which keeps the client waiting. `hide` masks secrets.
    """
    options, peers = context.options, context.peers
    if peers is not None:
        await peers.look()
        if signature(loop) in peers.allowed(run.id):
            run.allow(loop)
            return True
    if len(context.desk) >= options.most_held:
        return False
    await remark()
    run.end("held", stop_for(loop), hide=hide)
    context.runs.count("holds")
    until = options.clock.now() + options.hold_s
    run.held += 1
    context.runs.changed(run)
    try:
        with context.desk.wait(run.id) as waiting:
            while waiting.said is None and (left := until - options.clock.now()) > 0:
                await waiting.for_at_most(min(left, options.keep_alive_s))
                await remark()
    finally:
        run.held -= 1
        run.end("running")
        context.runs.changed(run)
    if waiting.said != "go":
        return False
    run.allow(loop)
    if peers is not None:
        await peers.look()  # the next request of the run may come to another proxy
    return True


# --------------------------------------------------------------------------------------------------
# Pays for what is not read: four bytes count as one token.

BYTES_A_TOKEN: Final = 4
"""The bytes that count as one token, like in the estimates of texts."""


class BudgetSpent(Exception):
    """The budget pays no more of these bytes."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.detail)
        self.stop = stop


class ByteMeter:
    """Spends from the budget of one request as its bytes pass."""

    def __init__(self, holding: BudgetHold) -> None:
        self._holding = holding
        self._bytes = 0
        self.tokens = 0
        """The tokens that were paid."""

    async def passed(self, number: int) -> None:
        """Pay for `number` bytes, which are about to pass. Raises `BudgetSpent`."""
        self._bytes += number
        grant, more = self._holding.grant, self._bytes // BYTES_A_TOKEN - self.tokens
        if more:
            grant.spend(more, more * grant.slice_usd / grant.slice_tokens)
            self.tokens += more
        if grant.is_used_up:
            await self._holding.more()
        if (stop := grant.exhausted()) is not None:
            raise BudgetSpent(stop)


# --------------------------------------------------------------------------------------------------
# The further choices of an answer (`n` above 1), each watched as a stream of its own.
#
# A loop in one of them ends the whole answer: clients read all choices together, and the service
# bills them together.


class OtherChoices:
    """Watches all choices but the first."""

    def __init__(
        self,
        detectors: Callable[[], Sequence[Detector]],
        holding: BudgetHold | None,
        *,
        counts: Callable[[Detection], bool],
    ) -> None:
        """`counts`: whether a detection ends an answer. `holding` pays for their text, until the
        service reports what all choices have used.
        """
        self._detectors = detectors
        self._holding = holding
        self._counts = counts
        self._banks: dict[int, DetectorBank] = {}
        self._bytes = 0
        self._tokens = 0

    def hear(self, chunks: Mapping[int, Sequence[Chunk]]) -> Stop | None:
        """The next chunks by the index of their choice. `Stop`: the answer ends."""
        if not chunks:
            return None
        for index, heard in chunks.items():
            try:
                found = self._found(self._bank(index), heard)
            except PartCrash as crash:
                return Stop(TerminateReason.ERROR, f"{crash.name} failed: {crash.error!r}", crash.name)
            for detection in found:
                if self._counts(detection):
                    return stop_for(detection)
        return self._pay()

    def reported(self) -> None:
        """The service has reported what all choices used: the estimates are taken back."""
        self._spend(-self._tokens)

    def _bank(self, index: int) -> DetectorBank:
        bank = self._banks.get(index)
        if bank is None:
            bank = self._banks[index] = DetectorBank(self._detectors())
            bank.reset()
        return bank

    def _found(self, bank: DetectorBank, chunks: Sequence[Chunk]) -> list[Detection]:
        found: list[Detection] = []
        for chunk in chunks:
            match chunk:
                case TextDelta(text=text):
                    self._bytes += len(text)
                    found += bank.text(text)
                case ReasoningDelta():
                    self._bytes += len(chunk.text)
                    found += bank.reasoning(chunk)
                case ToolCallDelta():
                    self._bytes += len(chunk.arguments_text)
                    found += bank.arguments(chunk)
                case _:
                    found += bank.fact(chunk)
        return found

    def _pay(self) -> Stop | None:
        self._spend(self._bytes // BYTES_A_TOKEN - self._tokens)
        return self._holding.grant.exhausted() if self._holding is not None else None

    def _spend(self, tokens: int) -> None:
        self._tokens += tokens
        if self._holding is not None and tokens:
            grant = self._holding.grant
            grant.spend(tokens, tokens * grant.slice_usd / grant.slice_tokens)
