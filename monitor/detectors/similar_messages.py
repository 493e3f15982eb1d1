"""The same message turn after turn. Failure answered: an agent that sends one edit again and again
against the same failure, or says "I will now do it" and does nothing; each message by itself is a
fine one, and without tool calls nothing else looks at more than one.

Rules:

- a message is the visible text of one turn, runs of blanks taken as one; turns without text are no
  messages;
- equal: the whole text is (beyond 1536 characters by its hash). Nearly equal: prose of at least 64
  characters, of whose pieces of 8 characters seven in ten are common (one word in fourteen has
  changed), and what is beyond 1536 characters is equal. Prose: three in four characters are letters
  or blanks; filled forms, JSON and edits resemble one another by nature;
- what was done between two messages, calls and their results, has to be the same each time, or the
  count starts anew: "Done." after different work is no loop, nor is a status that was asked for and
  has changed. Results without a call are what a user reports;
- what a streak is known by is its first message: nearly equal ones are one loop, and a policy that
  warned of it sees it again;
- three equal messages of at least 64 characters with nothing done between are a loop: in 644
  recorded runs that must stay quiet no message without calls came twice in a row. Shorter and
  nearly equal ones are a suspicion at three and a loop at five, as with tool calls: drafts and
  polite phrases resemble one another. A word or two are a loop at ten: answers repeat in a
  conversation ("Done.", "You are welcome!"), and so is saying nothing at all. With the same calls
  and results between, five equal ones are a loop and nothing less is anything: runs that call tools
  recover, and their calls have detectors of their own;
- two or three messages that come in turn, with nothing done between, count by their rounds, and the
  longest of them says how many it takes;
- "three messages in a row", whatever they say, is no rule: agents say three different things in a
  row all the time.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from monitor._util.hashing import canonical_json, chained, identity
from monitor.chunks import Chunk, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors.base import NOTHING, TextFeed
from monitor.detectors.text.markdown import words_percent
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection, Evidence, Level

SNAPSHOT_VERSION = 4
EXCERPT_CHARS = 200
"""As `Evidence.excerpt` says."""
HEAD_CHARS = 1_536
"""Kept of a message, compressed; of the rest a hash."""
HASHED_CHARS = 256
"""Taken at once into that hash."""
HOLD_CHARS = 256
"""Put aside before it is joined to the piece that is being taken, which is copied each time."""
PIECE_CHARS = 8
"""A changed word of six letters changes 13 of them."""
COMMON = 0.7
"""Of all pieces, those that both messages have: (n - 13) / (n + 13) for one word changed in n
characters.
"""
WORDS_PERCENT = 75
LONG_CHARS = 64
"""A sentence; shorter messages repeat more easily."""
ANSWER_CHARS = 16
"""A word or two."""
ANSWER_TIMES = 2
"""How often the number of a loop it takes for them."""
PERIODS = (2, 3)
"""Messages that come in turn. Longer cycles were never seen without calls between, and those have a
detector of their own.
"""
NO_RETURNS = (0,) * len(PERIODS)
DEEDS_KEPT = 64
"""Calls and results between two messages; what comes after them is only counted. Also the calls of
which is known whether they have their result: the second one of a call is none.
"""
OFFSETS_SHOWN = 20


class SimilarMessages:
    """Equal or nearly equal assistant messages in a row: a suspicion at `suspect_at`, a loop at
    `loop_at` and at each one after it. Equal ones of some length, with nothing done between, are a
    loop at `equal_loop_at`, those of a word or two at twice `loop_at`; and so are rounds of two or
    three messages in turn. `near=False`: only equal ones count.

    Offsets are the numbers of the messages in the run.
    """

    __slots__ = (
        "_answered",
        "_between",
        "_count",
        "_deeds",
        "_done",
        "_equal_loop_at",
        "_exact",
        "_first",
        "_head",
        "_index",
        "_last",
        "_length",
        "_loop_at",
        "_near",
        "_pending",
        "_piece",
        "_recent",
        "_rest",
        "_returns",
        "_suspect_at",
        "name",
        "need",
    )

    need: int
    """Code points that may be held back."""

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
        self.name = name
        self._suspect_at = suspect_at
        self._loop_at = loop_at
        self._equal_loop_at = equal_loop_at
        self._near = near
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._index = -1
        self._last = (NO_TEXT, "", 0)
        self._count = 0
        self._exact = True
        self._first = ""
        self._between: list[str] | None = None
        self._recent: tuple[str, ...] = ()
        self._returns: Sequence[int] = NO_RETURNS
        self._done: dict[str, str] = {}
        self._answered: dict[str, bool] = {}
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._head = NO_TEXT
        self._piece = self._pending = ""
        self._length = self._rest = 0
        self._deeds: dict[str, str] = {}
        self.need = HOLD_CHARS

    def feed_of(self, channel: Channel) -> TextFeed | None:
        """Where the visible text goes; thinking is no message."""
        return self if channel == "text" else None

    def feed(self, text: str) -> Sequence[Detection]:
        """Take in the next text of the message; what it is worth shows at its end."""
        self._pending += text
        self.need -= len(text)
        if self.need <= 0:
            self._put_away()
        return NOTHING

    def _put_away(self) -> None:
        text, start = self._piece + self._pending, 0
        if not self._length and len(text) >= HEAD_CHARS:
            self._head = _packed(text[:HEAD_CHARS])
            self._length = start = HEAD_CHARS
        if self._length:
            pieces = range(start, len(text) - HASHED_CHARS + 1, HASHED_CHARS)
            for at in pieces:
                self._rest = chained(self._rest, text[at : at + HASHED_CHARS])
            start += len(pieces) * HASHED_CHARS
            self._length += len(pieces) * HASHED_CHARS
        self._piece, self._pending, self.need = text[start:], "", HOLD_CHARS

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Messages end with their turn; calls and results are what was done between them."""
        match chunk:
            case TextDelta():
                return self.feed(chunk.text)
            case ToolCall():
                if _remember(self._deeds, chunk.id, f"{chunk.name}({canonical_json(chunk.arguments)})"):
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
        text = _unpacked(self._head) if self._length else self._piece
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
        between, (packed, last_rest, _) = sorted(self._done.values()), self._last
        last, began = _unpacked(packed), self._index >= 0
        self._index += 1
        same = began and rest == last_rest and head == last
        if not same and not (self._near and not between and rest == last_rest and _nearly_equal(head, last)):
            self._count, self._exact, self._between = 1, True, None
            self._first = identity(head + rest)
        elif self._between in (None, between):
            self._count += 1
            self._exact = self._exact and same
        else:
            self._count, self._exact = 2, same
            self._first = identity(last + last_rest)
        if self._count > 1:
            self._between = between
        self._last = (packed if same else _packed(head), rest, length)
        cycle = self._cycle(f"{length}:{identity(head + rest)}", between)
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
        """The message, told by its length and hash, against those that came two and three before
        it.
        """
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
                excerpt=_unpacked(self._last[0])[:EXCERPT_CHARS],
                xxhash=xxhash,
                length=self._last[2],
                offsets=tuple(range(start, self._index + 1, period))[-OFFSETS_SHOWN:],
            ),
            message=message,
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data: at most three times 1536 characters, and hashes."""
        return {
            "version": SNAPSHOT_VERSION,
            "index": self._index,
            "last": [_unpacked(self._last[0]), *self._last[1:]],
            "streak": [self._count, self._exact, self._between, self._first],
            "cycle": [list(self._recent), list(self._returns)],
            "done": dict(self._done),
            "answered": dict(self._answered),
            "turn": {
                "head": _unpacked(self._head),
                "rest": self._rest,
                "piece": self._piece,
                "pending": self._pending,
                "length": self._length,
                "deeds": dict(self._deeds),
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        if state.get("version") != SNAPSHOT_VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {SNAPSHOT_VERSION}")
        turn, (head, rest, length), (count, exact, between, first) = state["turn"], state["last"], state["streak"]
        self._index, self._last = int(state["index"]), (_packed(str(head)), str(rest), int(length))
        self._count, self._exact, self._first = int(count), bool(exact), str(first)
        recent, returns = state["cycle"]
        self._recent, self._returns = tuple(map(str, recent)), tuple(map(int, returns))
        self._between = None if between is None else [str(deed) for deed in between]
        self._done = {str(id): str(deed) for id, deed in state["done"].items()}
        self._answered = {str(id): bool(answered) for id, answered in state["answered"].items()}
        self._deeds = {str(id): str(deed) for id, deed in turn["deeds"].items()}
        self._head, self._rest, self._length = _packed(str(turn["head"])), int(turn["rest"]), int(turn["length"])
        self._piece, self._pending = str(turn["piece"]), str(turn["pending"])
        self.need = HOLD_CHARS - len(self._pending)


SHORT_BYTES = 256
AS_IT_IS = b"\0"
"""No compressed data begins so."""


def _packed(text: str) -> bytes:
    """Prose takes half of its size so, and there are two of these texts in every run. Takes 0.1 ms,
    so a short one is kept as it is.
    """
    data = text.encode("utf-8", "surrogatepass")
    return AS_IT_IS + data if len(data) <= SHORT_BYTES else zlib.compress(data)


def _unpacked(packed: bytes) -> str:
    data = packed[1:] if packed.startswith(AS_IT_IS) else zlib.decompress(packed)
    return data.decode("utf-8", "surrogatepass")


NO_TEXT = _packed("")


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
    """A first look at sixteen pieces: where seven in ten are common, eight in ten of these should
    be.
    """
    step = max(len(one) // 16, 1)
    starts = range(0, len(one) - PIECE_CHARS + 1, step)
    return sum(one[start : start + PIECE_CHARS] in other for start in starts) * 2 >= len(starts)


def _pieces(text: str) -> set[str]:
    return {text[at : at + PIECE_CHARS] for at in range(len(text) - PIECE_CHARS + 1)}


def _remember(deeds: dict[str, str], id: str, deed: str) -> bool:
    """A call or result delivered twice is one; without an id each is one of its own. Whether it is
    new.
    """
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
