"""One channel of text and the rules that watch it.

Work for every delta would be too much: models send four characters at a time. So a delta is only
kept until some rule is due. The rules examine a few thousand characters, which move along with the
text.

Findings come in the order of the text, whatever one delta contained. Each rule first skips what
cannot end in a finding (`seek`). Then the rule whose next point comes first is asked (`scan`). If
two points are equal, the order is chant, tail, recurrence, vocabulary, counter, copies,
information.

A loop clears the evidence of all rules, and watching goes on behind it. A suspicion clears nothing.
Whatever rule finds its continuation, it is the same suspicion and is not reported again, until it
ends or becomes a loop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from monitor.detections import Channel, Detection
from monitor.detectors.detector import NOTHING
from monitor.detectors.text.chant import CHANT_KIND, WindowRule, WindowScanner
from monitor.detectors.text.copies import CopyScanner
from monitor.detectors.text.counted import CountedRule, CountedScanner
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.information import InformationRule, InformationScanner
from monitor.detectors.text.markdown import Fences
from monitor.detectors.text.recurrence import RecurrenceRule, RecurrenceScanner
from monitor.detectors.text.tail import TailRule, TailScanner
from monitor.detectors.text.vocabulary import WORDS_STEP, Vocabulary

SLICE_CHARS = 8_192
"""A delta is examined in slices of this size. So a delta of 100 MB needs no second copy, and no
rule works for long at once.
"""
SLACK_CHARS = 128
"""Text that is kept beyond what the rules need, so that it is not cut at every look."""
SAME_CHARS = 256
"""A suspicion that starts within this distance of the last finding continues it: the mean distance
of a chant.
"""


class Off:
    """Stands for a rule that is switched off."""

    __slots__ = ()

    due = since = sys.maxsize

    def seek(self, text: str, base: int, end: int) -> None:
        """Never called, because never due."""

    def scan(self, text: str, base: int, end: int = 0) -> Hit | None:
        """Never called, because never due."""

    def restart(self, offset: int) -> None:
        """A rule that is switched off has nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        """A rule that is switched off has nothing to keep."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """A rule that is switched off has nothing to take back."""


TextRules: TypeAlias = tuple[
    WindowRule | None, TailRule | None, RecurrenceRule | None, CountedRule | None, InformationRule | None
]
"""Chant, tail, recurrence, counter and information; `None`: not wanted."""
OtherScanner: TypeAlias = (
    "TailScanner | RecurrenceScanner | Vocabulary | CountedScanner | CopyScanner | InformationScanner | Off"
)
"""The scanner of any rule but the chant."""


class TextChannel:
    """Feeds the rules; offsets are code points since the run began.

    The scanners are made, and start anew after `restart`, when a text is long enough for a finding:
    most channels of a run stay empty, many answers are short, and most restarts are the end of the
    run.
    """

    __slots__ = (
        "_base",
        "_channel",
        "_chant",
        "_copies",
        "_counted",
        "_detector",
        "_fences",
        "_history",
        "_information",
        "_least_chars",
        "_others",
        "_pending",
        "_recurrence",
        "_rules",
        "_scanning",
        "_tail",
        "_text",
        "_told",
        "_vocabulary",
        "need",
    )

    need: int
    """Code points that have to come before a rule is due, or a new text can have a finding."""
    _scanning: bool
    """The scanners are set to the text from `_base` on."""

    def __init__(self, rules: TextRules, channel: Channel, *, detector: str) -> None:
        """`detector`: its name, for the findings."""
        self._rules = rules
        self._channel: Channel = channel
        self._detector = detector
        self._least_chars = min([rule.least_chars for rule in rules if rule], default=sys.maxsize)
        self._fences: Fences | None = None
        self.restart(0)

    def _make_scanners(self) -> Fences:
        chant, tail, recurrence, counted, information = self._rules
        self._fences = fences = Fences()
        self._chant = WindowScanner(chant, fences) if chant else Off()
        data = self._channel == "arguments"  # JSON, code, files, where similar pieces are the rule
        self._tail = TailScanner(tail, fences, data=data) if tail else Off()
        self._recurrence = RecurrenceScanner(recurrence) if recurrence else Off()
        self._vocabulary = Vocabulary() if recurrence else Off()
        self._counted = CountedScanner(counted, fences) if counted else Off()
        self._copies: CopyScanner | Off = Off()
        if tail and tail.longest_copy_chars:
            enough = (tail.weak_copies, tail.data_copies) if data else (tail.copies, tail.loop_copies)
            self._copies = CopyScanner(tail.longest_copy_chars, *enough)
        self._information = InformationScanner(information) if information else Off()
        self._others = (
            self._tail,
            self._recurrence,
            self._vocabulary,
            self._counted,
            self._copies,
            self._information,
        )
        self._history = max([WORDS_STEP if recurrence else 0, *[rule.history for rule in self._rules if rule]])
        return fences

    @property
    def offset(self) -> int:
        """Code points taken in so far."""
        return self._base + len(self._text) + len(self._pending)

    def restart(self, offset: int) -> None:
        """A new piece of text begins at `offset`; nothing before it counts."""
        self._text = self._pending = ""
        self._base = offset
        self._told = -SAME_CHARS - 1
        self._scanning = False
        self.need = self._least_chars

    def _scan_anew(self) -> Fences:
        """Make the scanners unless there are any, and set them to the text from `_base` on."""
        are_new = self._fences is None
        fences = self._fences or self._make_scanners()
        if self._base or not are_new:
            fences.restart(self._base)
            self._clear(self._base)
        self._scanning = True
        self._plan()
        return fences

    def _plan(self) -> None:
        self.need = min(self._chant.due, self._nearest().due) - self.offset

    def feed(self, delta: str) -> Sequence[Detection]:
        """Take in the next text."""
        self._pending = pending = self._pending + delta
        self.need -= len(delta)
        if self.need > 0:
            return NOTHING
        if not self._scanning:
            self._scan_anew()
            if self.need > 0:
                return NOTHING
        self._pending = ""
        return self._look(pending) if len(pending) <= SLICE_CHARS else self._look_by_slices(pending)

    def _look_by_slices(self, pending: str) -> Sequence[Detection]:
        slices = range(0, len(pending), SLICE_CHARS)
        return [
            detection for start in slices for detection in self._look(pending[start : start + SLICE_CHARS])
        ] or NOTHING

    def _look(self, piece: str) -> Sequence[Detection]:
        chant, (tail, recurrence, vocabulary, counted, _, information), base = self._chant, self._others, self._base
        text, fences = self._text, self._fences
        assert fences is not None  # noqa: S101 - there is text
        self._text = ""  # so that it grows in place
        text += piece
        end = base + len(text)
        found: Sequence[Detection] = NOTHING
        while True:
            if chant.due <= end:
                chant.seek(text, base, end)
            if tail.due <= end:
                tail.seek(text, base, end)
            if recurrence.due <= end:
                recurrence.seek(text, base, end)
            if vocabulary.due <= end:
                vocabulary.seek(text, base, end)
            if counted.due <= end:
                counted.seek(text, base, end)
            if information.due <= end:
                information.seek(text, base, end)
            other = self._nearest()
            self.need = min(chant.due, other.due) - end
            if self.need > 0:
                break
            hit = chant.scan(text, base, min(other.due, end)) if chant.due <= other.due else other.scan(text, base)
            if hit is not None and not self._is_followed(hit):
                found = (*found, *self._take(hit))
        if len(text) > self._history + SLACK_CHARS:
            fences.inside(text, base, end)
            self._base = end - self._history
            text = text[-self._history :]
        self._text = text
        return found

    def _nearest(self) -> OtherScanner:
        """The rule that is due first; on a par in their order."""
        nearest: OtherScanner
        nearest, recurrence, vocabulary, counted, copies, information = self._others
        if recurrence.due < nearest.due:
            nearest = recurrence
        if vocabulary.due < nearest.due:
            nearest = vocabulary
        if counted.due < nearest.due:
            nearest = counted
        if copies.due < nearest.due:
            nearest = copies
        return information if information.due < nearest.due else nearest

    def _is_followed(self, hit: Hit) -> bool:
        """A chant that the tail rule follows is exact; that rule knows what it is."""
        return hit.kind == CHANT_KIND and hit.start >= self._tail.since

    def _take(self, hit: Hit) -> Sequence[Detection]:
        news = hit.level == "loop" or (not hit.again and hit.start > self._told + SAME_CHARS)
        if hit.level == "loop":
            self._clear(hit.end)
        self._told = hit.end
        return (hit.found_by(self._detector, self._channel),) if news else NOTHING

    def _clear(self, offset: int) -> None:
        """Every rule forgets its evidence and starts again at `offset`."""
        for rule in (self._chant, *self._others):
            rule.restart(offset)

    def snapshot(self) -> dict[str, Any]:
        """A few thousand characters of text, and positions."""
        fences = self._fences if self._scanning else None
        if fences is None:
            fences = self._scan_anew()
        return {
            "base": self._base,
            "text": self._text,
            "pending": self._pending,
            "told": self._told,
            "fence": [fences.marker, fences.origin, fences.seen],
            "chant": self._chant.snapshot(),
            "tail": self._tail.snapshot(),
            "recurrence": self._recurrence.snapshot(),
            "vocabulary": self._vocabulary.snapshot(),
            "counted": self._counted.snapshot(),
            "copies": self._copies.snapshot(),
            "information": self._information.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`, for a channel with the same rules."""
        fences = self._scan_anew()
        self._base, self._text, self._pending = int(state["base"]), str(state["text"]), str(state["pending"])
        self._told = int(state["told"])
        marker, origin, seen = state["fence"]
        fences.marker, fences.origin, fences.seen = str(marker), int(origin), int(seen)
        self._chant.restore(state["chant"])
        self._tail.restore(state["tail"])
        self._recurrence.restore(state["recurrence"])
        self._vocabulary.restore(state["vocabulary"])
        self._counted.restore(state["counted"])
        self._copies.restore(state["copies"])
        self._information.restore(state["information"])
        self._plan()
