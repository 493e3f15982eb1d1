"""A detector of one message turn after turn. Failure answered: an agent sends the same edit again
and again against the same failure, or says "I will now do it" and does nothing. Each message alone
is harmless, and without tool calls no other detector compares messages.

Rules:

- A message is the visible text of one turn, with each run of spaces taken as one space. A turn
  without text is an empty message.
- Two messages are equal if their whole texts are (beyond 1536 characters, if the hashes are). Prose
  of at least 64 characters is nearly equal if seven in ten pieces of 8 characters are common (one
  word in fourteen has changed). The parts beyond 1536 characters must be equal.
- Prose: three in four characters are letters or spaces. Filled forms, JSON and edits resemble one
  another by nature, and are not prose.
- The calls and results between two messages must be the same each time, or the count restarts.
  "Done." after different work is not a loop, nor is a changed status. Results without a call are
  reports of the user.
- A streak is identified by its first message. So nearly equal messages are one loop, and a policy
  that warned of the loop recognises it.
- Three equal messages of at least 64 characters, with no call between, are a loop. In 644 recorded
  good runs no message without calls came twice in a row.
- Shorter and nearly equal messages are a suspicion at three and a loop at five, as with tool calls:
  drafts and polite phrases resemble one another.
- Messages of a word or two and empty ones are a loop at ten: short answers ("Done.", "You are
  welcome!") repeat in a conversation.
- With the same calls and results between, five equal messages are a loop, and fewer are not even a
  suspicion. Runs that call tools recover, and other detectors watch their calls.
- Two or three messages in turn, with no call between, are counted by rounds. The longest message
  decides how many rounds are needed.
- Three different messages in a row are no finding: agents often send them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitor._util.explained_options import explains_options
from monitor._util.hashing import chained, identity
from monitor._util.state import StateOfAttributes
from monitor.chunks import Chunk, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors.calls.front import text_of_call
from monitor.detectors.detector import NOTHING, TextFeed
from monitor.detectors.text.structure import words_percent
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection, Evidence, Level

SNAPSHOT_VERSION = 5
EXCERPT_CHARS = 200
"""The most characters of `Evidence.excerpt`."""
HEAD_CHARS = 1_536
"""How much of a message is kept; the rest is kept as a hash."""
HASHED_CHARS = 256
"""The number of characters that the hash takes at a time."""
HOLD_CHARS = 256
"""Deltas are collected up to this size before they are joined to the message, because each join
copies it."""
PIECE_CHARS = 8
"""Length of the compared pieces. A changed word of six letters changes 13 of them."""
COMMON = 0.7
"""The least share of common pieces among all. One changed word in n characters leaves (n - 13) / (n
+ 13).
"""
WORDS_PERCENT = 75
LONG_CHARS = 64
"""The length of a sentence; shorter messages repeat more easily."""
ANSWER_CHARS = 16
"""Messages up to this many characters are answers of a word or two."""
ANSWER_TIMES = 2
"""The factor by which such short messages multiply the number for a loop."""
PERIODS = (2, 3)
"""The number of messages that may alternate. Longer cycles without calls were never seen in
recordings; cycles with calls have their own detector.
"""
NO_RETURNS = (0,) * len(PERIODS)
DEEDS_KEPT = 64
"""How many calls and results between two messages are kept; further ones are only counted. Also how
many calls are known as answered, so that a second result of a call is ignored.
"""
OFFSETS_SHOWN = 20


class SimilarMessages(StateOfAttributes):
    """Equal or nearly equal assistant messages in a row: a suspicion at `suspect_at`, a loop at
    `loop_at` and at each further message. Equal messages of at least 64 characters, with no call
    between, are a loop at `equal_loop_at`. Messages of a word or two are a loop at twice `loop_at`.
    Rounds of two or three messages in turn count in the same way. `near=False`: only equal messages
    count.

    Offsets are the numbers of the messages in the run.
    """

    STATE = (
        "_answered",
        "_between",
        "_count",
        "_deeds",
        "_done",
        "_exact",
        "_first",
        "_head",
        "_index",
        "_last",
        "_length",
        "_pending",
        "_piece",
        "_recent",
        "_rest",
        "_returns",
        "need",
    )
    __slots__ = (*STATE, "_equal_loop_at", "_loop_at", "_near", "_suspect_at", "name")

    need: int
    """The number of code points that may be held back."""

    @explains_options(example="monitor.detectors.SimilarMessages(loop_at=5)")
    def __init__(
        self,
        *,
        suspect_at: int | None = 3,
        loop_at: int = 5,
        equal_loop_at: int = 3,
        near: bool = True,
        name: str = "similar_messages",
    ) -> None:
        if loop_at <= 1 or equal_loop_at <= 1:
            raise ConfigError(
                f"SimilarMessages(loop_at={loop_at}, equal_loop_at={equal_loop_at}): one message repeats nothing; give"
                " 2 or more"
            )
        if suspect_at is not None and not 1 < suspect_at <= loop_at:
            raise ConfigError(
                f"SimilarMessages(suspect_at={suspect_at}): give 2 to loop_at ({loop_at}), or None for no suspicion"
            )
        self.name: str = name
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        self._equal_loop_at = equal_loop_at
        self._near = near
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._index = -1
        self._last: Sequence[Any] = ("", "", 0)
        self._count = 0
        self._exact = True
        self._first = ""
        self._between: list[str] | None = None
        self._recent: Sequence[str] = ()
        self._returns: Sequence[int] = NO_RETURNS
        self._done: dict[str, str] = {}
        self._answered: dict[str, bool] = {}
        self._forget_turn()

    def forget_streaks(self) -> None:
        """Compare the next message with none before it."""
        self._last = ("", "", 0)
        self._count = 0
        self._exact = True
        self._first = ""
        self._between = None
        self._recent = ()
        self._returns = NO_RETURNS

    def _forget_turn(self) -> None:
        self._head = ""
        self._piece = self._pending = ""
        self._length = self._rest = 0
        self._deeds: dict[str, str] = {}
        self.need = HOLD_CHARS

    def feed_of(self, channel: Channel) -> TextFeed | None:
        """The feed for visible text; thinking is not part of a message."""
        return self if channel == "text" else None

    def feed(self, text: str) -> Sequence[Detection]:
        """Add the next text of the message. Findings come only at the end of the turn."""
        self._pending += text
        self.need -= len(text)
        if self.need <= 0:
            self._put_away()
        return NOTHING

    def _put_away(self) -> None:
        text, start = self._piece + self._pending, 0
        if not self._length and len(text) >= HEAD_CHARS:
            self._head = text[:HEAD_CHARS]
            self._length = start = HEAD_CHARS
        if self._length:
            pieces = range(start, len(text) - HASHED_CHARS + 1, HASHED_CHARS)
            for at in pieces:
                self._rest = chained(self._rest, text[at : at + HASHED_CHARS])
            start += len(pieces) * HASHED_CHARS
            self._length += len(pieces) * HASHED_CHARS
        self._piece, self._pending, self.need = text[start:], "", HOLD_CHARS

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """End the message with its turn, and keep the calls and results between messages."""
        match chunk:
            case TextDelta():
                return self.feed(chunk.text)
            case ToolCall():
                if _remember(self._deeds, chunk.id, text_of_call(chunk)):
                    self._expect(chunk.id, answered=False)
            case ToolResult() if (self._deeds or self._done) and not self._answered.get(chunk.id):
                self._expect(chunk.id, answered=True)
                _remember(self._done, chunk.id, f"{chunk.is_error}:{chunk.text}")
            case StreamRetried():
                for key in self._deeds:
                    self._answered.pop(key.rpartition(":")[0], None)
                self._forget_turn()
            case TurnFinished():
                return self._finished()
            case _:
                pass
        return NOTHING

    def _expect(self, id: str, *, answered: bool) -> None:
        if id:
            self._answered.pop(id, None)
            self._answered[id] = answered
            if len(self._answered) > DEEDS_KEPT:
                del self._answered[next(iter(self._answered))]

    def _finished(self) -> Sequence[Detection]:
        self._put_away()
        text = self._head if self._length else self._piece
        rest = identity(f"{self._rest:016x}{self._piece}") if self._length else ""
        head = " ".join(text.split())
        length = self._length + len(self._piece) if head or rest else 0
        found: Sequence[Detection] = NOTHING
        if head or rest or not self._deeds:
            found = self._compared(head, rest, length)
            self._done = {}
        for id, deed in self._deeds.items():
            _put(self._done, id, deed)
        self._forget_turn()
        return found

    def _compared(self, head: str, rest: str, length: int) -> Sequence[Detection]:
        self._index += 1
        xxhash = identity(head + rest)
        if not self._index:  # the first message: nothing to compare it with
            self._count, self._first, self._last = 1, xxhash, (head, rest, length)
            self._recent = (f"{length}:{xxhash}",)
            return NOTHING
        between, (last, last_rest, _) = sorted(self._done.values()), self._last
        same = rest == last_rest and head == last
        if not same and not (self._near and not between and rest == last_rest and _nearly_equal(head, last)):
            self._count, self._exact, self._between = 1, True, None
            self._first = xxhash
        elif self._between in (None, between):
            self._count += 1
            self._exact = self._exact and same
        else:
            self._count, self._exact = 2, same
            self._first = identity(last + last_rest)
        if self._count > 1:
            self._between = between
        self._last = (head, rest, length)
        cycle = self._cycle(f"{length}:{xxhash}", between)
        level = self._level(self._count, length, exact=self._exact, between=bool(self._between))
        return (self._row(*level),) if level else cycle

    def _level(self, count: int, length: int, *, exact: bool, between: bool) -> tuple[Level, int] | None:
        loop_at = self._loop_at
        if not between and length <= ANSWER_CHARS:
            loop_at *= ANSWER_TIMES
        elif not between and length >= LONG_CHARS and exact:
            loop_at = min(self._equal_loop_at, loop_at)
        if count >= loop_at:
            return "loop", loop_at
        return ("suspect", count) if count == self._suspect_at and not between else None

    def _row(self, level: Level, threshold: int) -> Detection:
        length = self._last[2]
        alike = (
            f"{'equal' if self._exact else 'nearly equal'} messages of {length} characters"
            if length
            else "empty messages"
        )
        done = ", with the same calls and results between them" if self._between else ""
        return self._detection(
            kind="equal_messages" if self._exact else "similar_messages",
            level=level,
            count=self._count,
            threshold=threshold,
            xxhash=self._first,
            message=f"{self._count} {alike} in a row{done}",
        )

    def _cycle(self, message: str, between: list[str]) -> Sequence[Detection]:
        """Compare the message, by length and hash, with the messages two and three before it."""
        if between:
            self._recent, self._returns = (), NO_RETURNS
        recent = (*self._recent, message)
        self._recent = recent[-max(PERIODS) :]
        self._returns = [
            before + 1 if len(recent) > period and recent[-1 - period] == message else 0
            for period, before in zip(PERIODS, self._returns, strict=True)
        ]
        for period, returns in zip(PERIODS, self._returns, strict=True):
            members = set(recent[-period:])
            if returns and returns % period == 0 and len(members) > 1:
                count = returns // period + 1
                longest = max(int(member.partition(":")[0]) for member in members)
                level = self._level(count, longest, exact=True, between=False)
                return (self._turns(*level, period, count, members),) if level else NOTHING
        return NOTHING

    def _turns(self, level: Level, threshold: int, period: int, count: int, members: set[str]) -> Detection:
        return self._detection(
            kind="message_cycle",
            level=level,
            count=count,
            threshold=threshold,
            xxhash=identity(" ".join(sorted(members))),
            message=f"{period} messages in turn, {count} times",
            period=period,
        )

    def _detection(
        self, *, kind: str, level: Level, count: int, threshold: int, xxhash: str, message: str, period: int = 1
    ) -> Detection:
        start = self._index - count * period + 1
        return Detection(
            detector=self.name,
            kind=kind,
            channel="messages",
            level=level,
            count=count,
            threshold=threshold,
            start_offset=start,
            offset=self._index,
            evidence=Evidence(
                excerpt=self._last[0][:EXCERPT_CHARS],
                xxhash=xxhash,
                length=self._last[2],
                offsets=tuple(range(start, self._index + 1, period))[-OFFSETS_SHOWN:],
            ),
            message=message,
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data: at most three times 1536 characters, and hashes."""
        return {"version": SNAPSHOT_VERSION, **super().snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != SNAPSHOT_VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {SNAPSHOT_VERSION}")
        super().restore(state)


def _nearly_equal(one: str, other: str) -> bool:
    """Whether two messages, blanks collapsed, are prose and have most of their pieces in common."""
    if min(len(one), len(other)) < max(LONG_CHARS, COMMON * max(len(one), len(other))):
        return False
    if not _may_be_near(one, other) or min(words_percent(one), words_percent(other)) < WORDS_PERCENT:
        return False
    pieces, others = _pieces(one), _pieces(other)
    common = len(pieces & others)
    return common >= COMMON * (len(pieces) + len(others) - common)


def _may_be_near(one: str, other: str) -> bool:
    """A quick check of sixteen pieces, before all pieces are compared."""
    step = max(len(one) // 16, 1)
    starts = range(0, len(one) - PIECE_CHARS + 1, step)
    return sum(one[start : start + PIECE_CHARS] in other for start in starts) * 2 >= len(starts)


def _pieces(text: str) -> set[str]:
    return {text[at : at + PIECE_CHARS] for at in range(len(text) - PIECE_CHARS + 1)}


def _remember(deeds: dict[str, str], id: str, deed: str) -> bool:
    """Keep a call or result. False: it was delivered before. Without an id, each is new."""
    xxhash = identity(deed)
    key = f"{id}:{xxhash}" if id else f"#{len(deeds)}"
    if key in deeds:
        return False
    _put(deeds, key, xxhash)
    return True


def _put(deeds: dict[str, str], key: str, xxhash: str) -> None:
    if key in deeds or len(deeds) < DEEDS_KEPT:
        deeds[key] = xxhash
    else:
        deeds["more"] = identity(deeds.get("more", "") + xxhash)
