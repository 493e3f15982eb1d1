"""Reads a request and judges its history, at the cost of what is new in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from anyio import to_thread

from monitor.chunks import ToolCall
from monitor.context.measure.tokens import message_tokens, size_of_text
from monitor.messages import AssistantMessage, UserMessage
from monitor.proxy.formats.base import Beginning, JudgedRequest, Span, Unjudged
from monitor.proxy.formats.wire import Wire
from monitor.proxy.histories.judging import HistoryMissing, RequestJudge
from monitor.proxy.histories.known_histories import WORTH_BYTES, KnownHistories, KnownHistory, Lookup
from monitor.proxy.histories.request_history import opening_of, run_of
from monitor.proxy.transport.content_coding import Unpackable, unpacked
from monitor.verdicts import Detection
from monitor.wires.forms import rules_of

LARGE_BYTES: Final = 64 * 1024
"""New bytes that are read and judged in a thread: they would hold up the other streams for 10 ms.
"""


@dataclass(slots=True, kw_only=True)
class RequestReading:
    """A request whose body was read."""

    wire: Wire
    path: str
    """With the query."""
    body: bytes
    """Unpacked."""
    asked: JudgedRequest
    lookup: Lookup | None = None
    """The known beginning of its history. `None`: it is too short to be kept."""
    input_tokens: int = 0
    """The tokens of the history and of the instructions, as an estimate, once it is judged."""

    @property
    def known(self) -> KnownHistory | None:
        """The known beginning behind which the messages stand."""
        return self.lookup.known if self.lookup is not None and self.asked.goes_on else None

    @property
    def records(self) -> Span | None:
        """The place of the known records in the body."""
        return self.known.beginning.records if self.known is not None else None

    @property
    def new_bytes(self) -> int:
        """The bytes that were not known."""
        return len(self.body) - (self.records.end if self.records is not None else 0)

    @property
    def opening(self) -> bytes:
        """The hash of how the history begins."""
        return self.known.opening if self.known is not None else opening_of(self.asked.messages)

    @property
    def run(self) -> str:
        """The name of the run, if the client gives it none."""
        return run_of(self.asked.instructions, self.opening)

    def forget(self) -> None:
        """Drop the body and the messages: the request was judged and sent."""
        self.body, self.lookup = b"", None
        self.asked = replace(self.asked, messages=(), instructions=None)


class HistoryReader:
    """Reads requests, and keeps what their histories have shown."""

    def __init__(self, histories: KnownHistories, *, most_body: int, worth_bytes: int = WORTH_BYTES) -> None:
        """`most_body`: bytes of an unpacked request. `worth_bytes`: a shorter one is not kept."""
        self._worth_bytes = worth_bytes
        self._histories = histories
        self._most_body = most_body

    def forget(self) -> None:
        """Forget all histories: they were judged by other detectors."""
        self._histories.clear()

    async def read(self, wire: Wire, path: str, body: bytes, *, coding: str, key: str) -> RequestReading | Unjudged:
        """Read a body. `coding`: how it is packed. `key`: the name of the client's key."""

        def read() -> RequestReading | Unjudged:
            try:
                plain = unpacked(body, coding, self._most_body) if coding else body
            except Unpackable as error:
                return Unjudged(f"the request is {error}")
            lookup = self._histories.find(wire.form, key, plain) if len(plain) >= self._worth_bytes else None
            known = lookup.known.beginning if lookup is not None and lookup.known is not None else None
            asked = wire.asked(path, plain, known)
            if isinstance(asked, Unjudged):
                return asked
            return RequestReading(wire=wire, path=path, body=plain, asked=asked, lookup=lookup)

        return read() if len(body) < LARGE_BYTES and not coding else await to_thread.run_sync(read)

    async def recall(self, judge: RequestJudge, reading: RequestReading, now: float) -> Detection | None:
        """The loop in which the run is, by its history, which is kept. `None`: it is in none."""

        def recall() -> Detection | None:
            known = reading.known
            try:
                return judge.recall(reading.asked.messages, now, known.state if known is not None else None)
            except HistoryMissing:
                asked = reading.wire.asked(reading.path, reading.body)
                assert isinstance(asked, JudgedRequest)  # noqa: S101 - it was read before
                reading.asked = asked
                return judge.recall(asked.messages, now)

        loop = recall() if reading.new_bytes < LARGE_BYTES else await to_thread.run_sync(recall)
        known, asked = reading.known, reading.asked
        tokens = sum(map(message_tokens, asked.messages), known.tokens if known is not None else 0)
        reading.input_tokens = tokens + size_of_text(asked.instructions or "").tokens
        if reading.lookup is not None and (history := self._history(judge, reading, tokens)) is not None:
            self._histories.add(reading.lookup, reading.body, history)
        return loop

    def _history(self, judge: RequestJudge, reading: RequestReading, tokens: int) -> KnownHistory | None:
        """The findings in the history. `None`: the next request cannot begin behind it."""
        asked, known = reading.asked, reading.known
        if asked.records is None or not _is_closed(asked, known):
            return None
        state = judge.state()
        if state is None:
            return None
        ids = known.beginning.ids if known is not None else frozenset[str]()
        if rules_of(asked.form).unique_ids:
            turns = [message for message in asked.messages if isinstance(message, AssistantMessage)]
            ids |= {part.id for turn in turns for part in turn.content if isinstance(part, ToolCall)}
        beginning = Beginning(asked.records, asked.system_messages, ids)
        return KnownHistory(beginning=beginning, opening=reading.opening, tokens=tokens, state=state)


def _is_closed(asked: JudgedRequest, known: KnownHistory | None) -> bool:
    """Whether no later message can become a part of the last one."""
    if not asked.messages:
        return known is not None
    last = asked.messages[-1]
    return isinstance(last, UserMessage) or (bool(last.results) and not any(result.vetoed for result in last.results))
