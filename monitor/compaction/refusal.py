"""What to do when a request does not fit, step by step. Failures answered: attempts spent on
compactions that removed nothing (OpenClaw #150447), histories compacted over a limit that no
history is short enough for (OpenClaw #130096), and errors that say nothing to do.

    recovery = Recovery()
    step = recovery.on_overflow(overflow, oversized=True, media=False)
    match step:
        case CompactAgain():                     # and, where it failed:
            step = recovery.compaction_failed(failure)
        case Truncate() | ReplayWithoutMedia() | Retry():
            ...                             # then the history, as it is by now, goes out again
        case GiveUp(text):
            ...
    recovery.went_well()  # a call was answered: the next refusal is another matter

It does nothing itself and waits for nothing. An episode, from the first refusal to the next answer,
has an end: at most so many compactions, one truncation and one replay without media.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from monitor._util.checks import is_whole
from monitor.context.overflow import Overflow, OverflowKind
from monitor.errors import ConfigError
from monitor.reasons import CompactionFailure

MAX_COMPACTIONS: Final = 3
"""Of one episode. OpenClaw's number."""


@dataclass(slots=True, frozen=True)
class CompactAgain:
    """Put a summary in the place of old messages, then send again."""

    attempt: int
    """Of this episode, from 1."""
    harder: int
    """0: as the preset has it. Each more keeps less: the ones before did not get far enough."""


@dataclass(slots=True, frozen=True)
class Truncate:
    """Cut tool results that are too large for the window, then send again."""


@dataclass(slots=True, frozen=True)
class ReplayWithoutMedia:
    """Put words in the place of images and files, then send again."""


@dataclass(slots=True, frozen=True)
class Retry:
    """Send again: something else has made the history shorter meanwhile."""


@dataclass(slots=True, frozen=True)
class GiveUp:
    """Nothing helps any more."""

    text: str
    """Why, and what a person can do, with the numbers that are known."""
    failure: CompactionFailure | None = None
    """How the last compaction of the episode failed; `None`: none did."""


RecoveryStep: TypeAlias = CompactAgain | Truncate | ReplayWithoutMedia | Retry | GiveUp

_SUMMARY_HELPS_NOT: Final = frozenset(CompactionFailure) - {CompactionFailure.INEFFECTIVE, CompactionFailure.STALE}
"""After these no compaction of the episode will do better: nothing is there to be summarised,
nobody wants it, or nobody can.
"""
_NOT_OF_SIZE: Final = frozenset({OverflowKind.RATE_LIMIT, OverflowKind.OTHER})


@dataclass(slots=True, frozen=True)
class _Refused:
    """What the caller knew of the request that was refused."""

    overflow: Overflow | None = None
    oversized: bool = False
    media: bool = False


class Recovery:
    """The episode of one run. Raises `ConfigError` for a number of compactions that is none; 0
    never compacts.
    """

    __slots__ = (
        "_compactions",
        "_failed",
        "_failure",
        "_max",
        "_refused",
        "_replayed",
        "_retries",
        "_truncated",
        "_useless",
    )

    def __init__(self, max_compactions: int = MAX_COMPACTIONS) -> None:
        if not (is_whole(max_compactions) and max_compactions >= 0):
            raise ConfigError(f"max_compactions is a whole number, 0 or more, not {max_compactions!r}")
        self._max = max_compactions
        self.went_well()

    def went_well(self) -> None:
        """A call was answered: the episode is over."""
        self._compactions = 0
        self._failed = 0
        self._retries = 0
        self._truncated = self._replayed = self._useless = False
        self._failure: CompactionFailure | None = None
        self._refused = _Refused()

    def on_overflow(
        self,
        overflow: Overflow | None,
        *,
        oversized: bool,
        media: bool,
        shortened: bool = False,
    ) -> RecoveryStep:
        """What to do about a refusal, or about an answer that only looked like one.

        `overflow`: what is known of it; `None`: that it did not fit. `oversized`: there are tool
        results that truncation would cut. `media`: there are images or files. `shortened`: the
        history has been made shorter since it was sent, by a truncation or a compaction beside the
        run.
        """
        self._refused = _Refused(overflow, oversized, media)
        kind = overflow.kind if overflow is not None else OverflowKind.OVERFLOW
        if kind is OverflowKind.HOPELESS or kind in _NOT_OF_SIZE:
            return self._give_up()
        if shortened and self._retries < max(1, self._max):  # counted, lest two that wait for each other go on for ever
            self._retries += 1
            return Retry()
        return self._next()

    def compaction_failed(self, failure: CompactionFailure) -> RecoveryStep:
        """What to do instead: the history is as it was, so nothing is sent before the next step is
        done.

        One that did not get far enough is tried again, keeping less; before that, results that are
        too large are cut, as they may be in what is kept. After any other there is none in this
        episode. Where no request was refused but that of the compaction itself, there is nothing to
        recover.
        """
        self._failure = failure
        self._failed += 1
        self._useless |= failure in _SUMMARY_HELPS_NOT
        if failure is CompactionFailure.ABORTED:
            return self._give_up()
        if failure is CompactionFailure.INEFFECTIVE and self._may_truncate:
            return self._truncate()
        return self._next()

    @property
    def _bytes(self) -> bool:
        return self._refused.overflow is not None and self._refused.overflow.kind is OverflowKind.BYTES

    @property
    def _may_compact(self) -> bool:
        return not self._useless and self._compactions < self._max

    @property
    def _may_truncate(self) -> bool:
        return self._refused.oversized and not self._truncated

    @property
    def _may_replay(self) -> bool:
        return self._refused.media and not self._replayed

    def _next(self) -> RecoveryStep:
        if self._bytes:  # tokens are not the matter: what is large comes first, and costs no call
            if self._may_replay:
                return self._replay()
            if self._may_truncate:
                return self._truncate()
        if self._may_compact:
            self._compactions += 1
            return CompactAgain(self._compactions, self._compactions - 1)
        if self._may_truncate:
            return self._truncate()
        if self._may_replay:
            return self._replay()
        return self._give_up()

    def _truncate(self) -> Truncate:
        self._truncated = True
        return Truncate()

    def _replay(self) -> ReplayWithoutMedia:
        self._replayed = True
        return ReplayWithoutMedia()

    def _give_up(self) -> GiveUp:
        return GiveUp(" ".join(self._sentences()), self._failure)

    def _sentences(self) -> list[str]:
        overflow = self._refused.overflow
        kind = overflow.kind if overflow is not None else OverflowKind.OVERFLOW
        used = f"{overflow.used_tokens:,} tokens" if overflow is not None and overflow.used_tokens else None
        limit = f"{overflow.limit_tokens:,}" if overflow is not None and overflow.limit_tokens else None
        if kind is OverflowKind.HOPELESS:
            asked = f"This one request asks for {used or 'more tokens'}"
            return [
                (
                    f"{asked}, and the account may use {limit or 'fewer'} in a minute: neither waiting nor compaction"
                    " helps."
                ),
                (
                    "Raise the account's limit per minute, ask for a shorter answer, shorten the instructions, or use"
                    " another provider."
                ),
            ]
        if kind in _NOT_OF_SIZE:
            return ["The refusal does not speak of the size of the request: a shorter one would be refused as well."]
        if self._bytes:
            return [
                f"The request has too many bytes.{self._tried()}",
                "Send fewer or smaller images and files, have tools answer with less, or split the task.",
            ]
        numbers = (
            f": it has {used}, and the model takes {limit}" if used and limit else f": it has {used}" if used else ""
        )
        numbers = numbers or (f": the model takes {limit} tokens" if limit else "")
        return [f"The request is too long for the model{numbers}.{self._tried()}", self._advice()]

    def _tried(self) -> str:
        compactions = self._compactions - self._failed
        done = [f"{compactions} compaction{'s' if compactions > 1 else ''}"] if compactions > 0 else []
        done += ["a truncation of tool results"] if self._truncated else []
        done += ["a replay without media"] if self._replayed else []
        tried = f" Not enough: {', '.join(done)}." if done else ""
        return tried + (f" The last compaction failed ({self._failure.value})." if self._failure is not None else "")

    def _advice(self) -> str:
        ways = [
            "shorten the instructions or the tools",
            "have tools answer with less",
            "split the task",
            "use a model with a larger window",
        ]
        if self._compactions == self._max and not self._useless:
            ways.append(f"allow more than {self._max} compaction{'s' if self._max != 1 else ''} for one refusal")
        sentence = f"{', '.join(ways[:-1])} or {ways[-1]}."
        return sentence[0].upper() + sentence[1:]
