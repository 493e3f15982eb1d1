"""One request that is watched, from its verdict to the end of its answer.

The order at a stop: the upstream is closed, then the client's answer is ended. `SourceStream` does
the first before it hands out the frame in which the stop falls, and that frame is not sent.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

import anyio

from monitor.budget import Budget
from monitor.chunks import NO_USAGE
from monitor.core.run import RunCore
from monitor.errors import PASSING_REASONS, ConfigError, TerminateReason
from monitor.events import BudgetLost, DetectionRaised, Event, StreamClosed
from monitor.guard.streams.source_stream import SourceStream
from monitor.policy import nudge_text, stop_for
from monitor.prices import known_price
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import HISTORY, FrameContent, to_bytes
from monitor.proxy.formats.merging import merged
from monitor.proxy.formats.wire import WireAnswer
from monitor.proxy.histories import LoopPolicy, RequestJudge
from monitor.proxy.http_messages import NUDGED, Headers, Unpackable, coding_of, to_client
from monitor.proxy.relays import AnswerRelay, BodyAdapter, BodyRelay, StreamRelay, WholeRelay, values_in
from monitor.proxy.runs import TASK_CHARS, ProxiedRun
from monitor.proxy.upstream_requests import (
    BYTES_A_TOKEN,
    GRACE_S,
    LATER,
    REFUSED,
    BudgetSpent,
    ByteMeter,
    OtherChoices,
    ProxiedRequest,
    ProxyContext,
    UpstreamRequest,
    close,
    may_go_on,
    reason_of,
    sentence_of,
)
from monitor.proxy.upstreams import Client, UpstreamFailed
from monitor.runs.budget_hold import BudgetHold
from monitor.verdicts import Detection, Stop
from monitor.wires.fields import Form

# --------------------------------------------------------------------------------------------------
# A message of the monitor, added to a request. Off by default: the proxy then changes no request.
#
# A run that repeats itself, and is not yet sure to loop, gets a message: what repeats, and that
# it should try something else. The client's history does not have it, so neither has the next
# request.


def nudged(form: Form, body: bytes, text: str) -> bytes:
    """The request with `text` as the last words of the user. Raises `ValueError` if it has no place
    for them.
    """
    request: Any = json.loads(body)
    name = HISTORY[form]
    records: Any = request.get(name) if isinstance(request, dict) else None
    if isinstance(records, str) and form == "openai-responses":
        records = request[name] = [{"role": "user", "content": records}]
    if not isinstance(records, list):
        raise ValueError(f"the request has no list {name!r}")
    where, part = _USER_PARTS.get(form, ("content", None))
    last = records[-1] if records and part is not None else None
    if isinstance(last, dict) and last.get("role") == "user" and isinstance(last.get(where), list):
        last[where].append({**(part or {}), "text": text})
    else:
        records.append({"role": "user", where: text if part is None else [{**part, "text": text}]})
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_USER_PARTS: Final[Mapping[Form, tuple[str, Mapping[str, str] | None]]] = {
    "anthropic": ("content", {"type": "text"}),
    "gemini": ("parts", {}),
}
"""Forms in which two messages of the user may not follow each other, and how they write a text."""


_OK: Final = 200
_NEVER_WELL: Final = frozenset({TerminateReason.ERROR, TerminateReason.INVALID_STREAM})
"""Ends that nobody has chosen: the client gets an error."""
MOST_HIDDEN: Final = 4_000
"""Characters of a task in which secrets are looked for. Less of them is shown."""


class _Unwatchable(Exception):
    """The upstream's answer cannot be watched: it is an error, or packed in a form of its own."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Exchange:
    """Answers one request, and judges its answer."""

    def __init__(self, context: ProxyContext, request: ProxiedRequest, run: ProxiedRun, client: Client) -> None:
        self._context = context
        self._request = request
        self._asked = request.reading.asked
        self._wire = request.reading.wire
        self._run = run
        self._client = client
        self._clock = context.options.clock
        self._began = context.options.clock.now()
        self._on_loop = context.options.on_loop
        self._holding: BudgetHold | None = None
        self._passing: AnswerRelay | None = None
        self.usage = NO_USAGE
        """The tokens that the answer used, when it is over."""
        self._others: OtherChoices | None = None
        """Watches the further choices of the answer, once it has some."""
        self._lost = ""
        """Why the budget cannot be asked, in words that are not for the client."""
        self._nudged = ""
        """The detector for which a message was added to the request."""
        self._sending = UpstreamRequest(context, request, about_to_ask=self._about_to_ask)
        self._input_tokens = 0
        """The tokens of the request, as an estimate."""
        self._said = "watched"
        """The word for the exchange in the headers of the answer."""

    async def perform(self) -> None:
        """Answer the request. It is cancelled if the client leaves."""
        self._run.state = "running"
        try:
            core, stop = await self._verdict()
            if stop is not None:
                await self._without_upstream(stop)
            else:
                await self._with_upstream(core)
        except anyio.get_cancelled_exc_class():
            self._run.end("left")
            raise
        finally:
            await self._close()

    # ------------------------------------------------------------------ without the upstream

    async def _verdict(self) -> tuple[RunCore, Stop | None]:
        """The core of the run, and why the upstream is not asked. `None`: it is."""
        options, asked = self._context.options, self._asked
        price = known_price(options.prices, asked.model)
        budgets: list[Budget] = []
        if self._context.accounts is not None:
            self._holding = self._context.accounts.open(
                self._run.key, self._run.name, price=price, clock=self._clock, emit=self._heard, began=self._began
            )
            budgets = [self._holding.grant]
        policy = LoopPolicy(self._run.allowed, observe=self._on_loop == "observe", patient=self._on_loop != "error")
        judged = RequestJudge(
            stop_when=options.stop_when,
            detectors=options.detectors(),
            policy=policy,
            price=price,
            budgets=budgets,
            emit=self._heard,
        )
        reading = self._request.reading
        self._others = OtherChoices(options.detectors, self._holding, counts=policy.ends)
        loop = await self._context.reader.recall(judged, reading, self._clock.now())
        self._sending.judged(reading.records)
        self._input_tokens = reading.input_tokens
        reading.forget()
        self._asked = reading.asked
        self._run.turns = judged.turns + 1
        self._run.task = " ".join(self._request.hide(judged.task[:MOST_HIDDEN]).split())[:TASK_CHARS]
        stop = judged.core.stop
        if stop is None and loop is not None:
            stop = await self._about(loop)
        if stop is None and options.nudge and policy.suspicion is not None:
            self._nudge(policy.suspicion)
        if stop is None and self._holding is not None:
            try:
                stop = await self._holding.before_call(self._input_tokens)
            except ConfigError as error:  # a limit in US dollars, and no price
                stop = Stop(TerminateReason.ERROR, str(error), "SharedBudget")
        return judged.core, stop

    async def _about(self, loop: Detection) -> Stop | None:
        """Acts on a loop over turns."""
        self._context.runs.count("loops", loop.detector)
        if self._on_loop == "observe":
            self._run.end("running", stop_for(loop), hide=self._request.hide)
            return None
        if self._on_loop == "hold" and await may_go_on(
            self._context, self._run, loop, remark=self._remark, hide=self._request.hide
        ):
            return None
        return stop_for(loop)

    def _nudge(self, suspicion: Detection) -> None:
        """Add a message for the model to the request."""
        if self._asked.fixed:
            return
        with contextlib.suppress(ValueError):
            form, text = self._asked.form, nudge_text(suspicion)
            self._sending.change(lambda body: nudged(form, body, text))
            self._nudged = suspicion.detector
            self._context.runs.count("nudges", suspicion.detector)

    async def _remark(self) -> None:
        """Send a comment, if the format has comments and the client reads a stream."""
        remark = self._speak().comment("held: an operator is asked") if self._asked.streams else b""
        if remark:
            await self._begin(_OK, [(b"content-type", self._speak().media_type.encode())], said="held")
            await self._client.write(remark)

    async def _without_upstream(self, stop: Stop) -> None:
        """End the answer that never began at the upstream."""
        said = self._note(stop)
        error = self._is_error(stop)
        if stop.reason in PASSING_REASONS and not self._client.began:
            await self._refuse(reason_of(stop, self._lost), LATER, said=said)
            return
        answer = self._speak()
        ending = answer.ending(reason_of(stop, self._lost), sentence=self._sentence(stop), error=error)
        if error and not self._client.began:
            await self._refuse(reason_of(stop, self._lost), REFUSED, said=said)
            return
        kind = "application/json" if self._asked.array or not self._asked.streams else answer.media_type
        if not self._asked.streams:
            ending = to_bytes(answer.in_one_piece(merged(self._asked.form, values_in(ending))))
        await self._begin(_OK, [(b"content-type", kind.encode())], said=said)
        await self._client.write(ending)
        await self._client.end()

    # ------------------------------------------------------------------ with the upstream

    async def _with_upstream(self, core: RunCore) -> None:
        stream: SourceStream[Any] = SourceStream(
            self._open, core, clock=self._clock, adapter=self._adapter, close_grace_s=GRACE_S
        )

        def abort(why: str) -> None:
            core.abort(why)
            stream.wake()

        late: Stop | None = None
        """A loop in a further choice of an answer that came in one piece."""
        self._run.aborts.append(abort)
        try:
            async with stream:
                async for item in stream:
                    if core.ends_stream:
                        break
                    if self._passing is not None:
                        if self._others is not None and (stop := self._others.hear(self._passing.others(item))):
                            core.leave(stop, None, self._clock.now())
                            break
                        await self._passing.take(item)
                        self._pay_unread(core, self._passing)
                    if self._holding is not None and self._holding.grant.is_used_up:
                        await self._holding.more()
            if self._others is not None and isinstance(self._passing, BodyRelay):
                late = self._others.hear(self._passing.adapter.others)
        finally:
            self._run.aborts.remove(abort)
            if self._sending.is_paid and self._holding is not None and not (core.turn and core.turn.usage.input_tokens):
                core.charge_input(self._input_tokens)
            if self._others is not None and core.turn and core.turn.usage.input_tokens:
                self._others.reported()
            outcome = core.terminate(self._clock.now())
            self.usage = outcome.usage
            self._run.tokens += outcome.usage.total_tokens
            self._run.estimated |= outcome.usage_estimated
            self._run.paid(outcome.cost_usd)
            self._context.runs.count("tokens", number=outcome.usage.total_tokens)
        await self._end(core.stop or late, stream.turn.error)

    async def _open(self) -> Any:
        """Ask the upstream, and send the head of its answer on at once."""
        opened, streamed = await self._sending.open(self._asked)
        self._context.runs.count("upstream_requests")
        if opened.status != _OK:
            self._sending.is_paid = False
            raise _Unwatchable(f"status {opened.status}")
        coding = coding_of(opened.headers)
        if coding:
            try:
                opened.body.unpack(coding)
            except Unpackable as error:
                raise _Unwatchable(f"the answer is {error}") from None
        answer = self._wire.answer(self._asked, await opened.body.beginning(sse.ENOUGH))

        async def begin(unread: str) -> None:
            said = f"unwatched; {unread}" if unread else None
            await self._begin(
                opened.status, opened.headers, said=said, cuttable=answer is not None, unpacked=bool(coding)
            )

        async def begin_whole(unread: str, status: int, length: int) -> None:
            said = f"unwatched; {unread}" if unread else None
            kept = [one for one in opened.headers if one[0].lower() not in {b"content-type", b"content-length"}]
            head = [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
            await self._begin(status, head, said=said, cuttable=False)

        held = self._request.held
        held.release()  # the request was sent, and the answer begins
        if answer is not None and streamed:
            self._passing = one = WholeRelay(self._client, answer, opened.body, begin_whole, held)
            return one.source
        if answer is not None:
            self._passing = passed = StreamRelay(
                self._client, answer, opened.body, begin, holds_calls=self._context.options.holds_calls, held=held
            )
            return passed.source
        self._passing = whole = BodyRelay(
            self._client,
            opened.body,
            lambda body: self._wire.whole(self._asked, body),
            begin,
            self._context.options.most_body,
            held=held,
        )
        return whole.source

    def _about_to_ask(self) -> None:
        self._context.runs.histograms["added"].add(self._clock.now() - self._began)

    def _pay_unread(self, core: RunCore, passing: AnswerRelay) -> None:
        """Pay for bytes that could not be read, or end the answer, as the operator chose."""
        unread = passing.adapter.take_unread()
        if not unread:
            return
        match self._context.options.unwatched:
            case "pay" if self._holding is not None:
                grant, tokens = self._holding.grant, unread // BYTES_A_TOKEN + 1
                grant.spend(tokens, tokens * grant.slice_usd / grant.slice_tokens)
                if (stop := grant.exhausted()) is not None:
                    core.leave(stop, None, self._clock.now())
            case "refuse":
                detail = f"the answer cannot be watched: {passing.adapter.unread}"
                core.leave(Stop(TerminateReason.INVALID_STREAM, detail, "proxy"), None, self._clock.now())
            case _:
                return

    def _adapter(self, _: int) -> Any:
        return self._passing.adapter if self._passing is not None else BodyAdapter(lambda _: FrameContent(), 0)

    async def _end(self, stop: Stop | None, error: BaseException | None) -> None:
        """End the client's answer, now that the upstream is closed."""
        if isinstance(error, _Unwatchable):
            await self._relay(error.why)
            return
        passing = self._passing
        if passing is not None and passing.adapter.unread:
            self._unwatched(passing.adapter.unread)
        if stop is not None:
            if passing is None:
                await self._without_upstream(stop)
            elif self._is_complete(passing) and not self._is_error(stop):
                self._note(stop)
                await passing.finished()
            else:
                said, reason = self._note(stop), reason_of(stop, self._lost)
                if not await passing.stopped(reason, self._sentence(stop), error=self._is_error(stop)):
                    await self._refuse(reason, REFUSED, said=said)
        elif isinstance(error, UpstreamFailed):
            await self._failed(error)
        elif passing is not None:
            await self._finished(passing)

    async def _finished(self, passing: AnswerRelay) -> None:
        """The upstream has closed its answer, perhaps too early."""
        if cut := await passing.finished():
            if not self._client.began:
                await self._failed(UpstreamFailed(502, cut))
                return
            self._context.runs.count("upstream_failures")
            self._fail(cut)
        else:
            self._run.end("ended")

    def _is_complete(self, passing: AnswerRelay) -> bool:
        """Whether it is a body that was read to its end. It is handed on with what was found in it:
        nothing is saved by keeping it back.
        """
        return isinstance(passing, BodyRelay) and passing.adapter.read

    async def _failed(self, error: UpstreamFailed) -> None:
        self._context.runs.count("upstream_failures")
        self._fail(error.why)
        if self._passing is None or not await self._passing.broken(error.why):
            if self._client.began:  # by comments, while the run was held
                await self._client.write(self._speak().broken(error.why))
                await self._client.end()
            else:
                await self._refuse(error.why, error.status, said="upstream failed")

    async def _relay(self, why: str) -> None:
        """Pass an answer on that cannot be watched."""
        opened = self._sending.opened
        assert opened is not None  # noqa: S101 - it was opened
        if self._client.began:
            await self._failed(UpstreamFailed(502, f"the upstream's answer cannot follow a hold: {why}"))
            return
        self._unwatched(why)
        good, chosen = opened.status == _OK, self._context.options.unwatched
        if good and chosen == "refuse":
            stop = Stop(TerminateReason.INVALID_STREAM, f"the answer cannot be watched: {why}", "proxy")
            said = self._note(stop)
            await self._refuse(reason_of(stop, ""), REFUSED, said=said)
            return
        meter = ByteMeter(self._holding) if good and chosen == "pay" and self._holding is not None else None
        await self._begin(opened.status, opened.headers, said=f"unwatched; {why}", cuttable=False)
        try:
            async for part in opened.body:
                if meter is not None:
                    await meter.passed(len(part))
                await self._client.write(part)
        except BudgetSpent as spent:
            self._note(spent.stop)
            return  # as below
        except UpstreamFailed as error:
            self._fail(error.why)
            return  # the server cuts the connection off
        await self._client.end()
        self._run.end("ended")

    async def _close(self) -> None:
        """Close what is open, and settle the budget."""
        self._run.answer_bytes += self._client.sent_bytes
        await close(self._sending.opened, self._holding)

    # ------------------------------------------------------------------ words

    def _speak(self) -> WireAnswer:
        """An answer that has not begun, to say something in its format."""
        return self._wire.stream(self._asked)

    async def _begin(
        self, status: int, headers: Headers, *, said: str | None = None, cuttable: bool = True, unpacked: bool = False
    ) -> None:
        if not self._client.began:
            said = said or self._said
            more = [(NUDGED, self._nudged.encode("ascii", "replace"))] if self._nudged else []
            second = "; fallback" if self._sending.fell_back else ""
            said = f"{said}{second}; run={self._run.name}"
            self._context.runs.histograms["first_byte"].add(self._clock.now() - self._began)
            await self._client.begin(
                status, to_client(headers, said=said, cuttable=cuttable, unpacked=unpacked, more=more)
            )

    async def _refuse(self, reason: str, status: int, *, said: str) -> None:
        """Answer with an error of the wire."""
        refusal = self._wire.refusal(reason, status=status)
        await self._begin(refusal.status, refusal.head, said=said, cuttable=False)
        await self._client.write(refusal.body)
        await self._client.end()

    def _fail(self, why: str) -> None:
        """Write down why the upstream's answer failed."""
        self._run.end("failed", Stop(TerminateReason.ERROR, why, "upstream"), hide=self._request.hide)

    def _note(self, stop: Stop) -> str:
        """Write down why the answer was stopped. Returns it in short."""
        self._run.end("stopped", stop, hide=self._request.hide)
        self._context.runs.count("stops", stop.reason.value)
        self._context.runs.histograms["stopped"].add(self._client.sent_bytes)
        self._said = f"stopped; {stop.reason.value}"
        return self._said

    def _sentence(self, stop: Stop) -> str:
        """The last text of an answer that is stopped. Empty: it ends in silence."""
        return sentence_of(stop, self._run.name) if self._context.options.stop_as == "text" else ""

    def _is_error(self, stop: Stop) -> bool:
        if self._context.options.stop_as == "error" or stop.reason in _NEVER_WELL:
            return True
        return self._on_loop == "error" and stop.reason is TerminateReason.LOOP_DETECTED

    def _unwatched(self, why: str) -> None:
        self._run.unwatched = why
        self._context.runs.count("unwatched")

    def _heard(self, event: Event) -> None:
        if isinstance(event, DetectionRaised):
            self._context.runs.count("detections", event.detection.detector)
        elif isinstance(event, StreamClosed):
            self._context.runs.closed(event.after_s)
        elif isinstance(event, BudgetLost):
            self._lost = event.detail
