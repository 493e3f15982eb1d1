"""The detectors of a run, as one: who is fed what, and whose crash it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.detectors.base import NOTHING, ChannelDetector, Detector, TextFeed, is_channel_detector, wants_deltas
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection

T = TypeVar("T")


class DetectorCrash(Exception):
    """A detector raised `error`, or answered what is no list of detections."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name = name
        self.error = error


class DetectorBank:
    """Detectors of characters are fed text directly; of the others, only those that want deltas are shown them.

    All methods raise `DetectorCrash` for the first detector that fails.
    """

    __slots__ = ("_all", "_of_characters", "_of_deltas", "_reasoning_feeds", "_text_feeds", "names")

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self._all = list(detectors)
        names = [detector.name for detector in self._all]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"two detectors are called {', '.join(map(repr, twice))}; give one of them another name=")
        self.names = tuple(names)
        self._of_characters: list[ChannelDetector] = [d for d in self._all if is_channel_detector(d)]
        self._of_deltas = [d for d in self._all if not is_channel_detector(d) and wants_deltas(d)]
        self._text_feeds = [*self._feeds("text"), *((d.name, _DeltaFeed(d)) for d in self._of_deltas)]
        self._reasoning_feeds: list[tuple[str, TextFeed]] | None = None

    def reset(self) -> None:
        """A new run begins."""
        for detector in self._all:
            try:
                detector.reset()
            except Exception as error:
                raise DetectorCrash(detector.name, error) from error

    @property
    def need(self) -> int:
        """Code points of visible text that have to come before any detector can find something."""
        need = sys.maxsize
        for _, feed in self._text_feeds:
            if feed.need < need:
                need = feed.need
        return need

    def text(self, text: str) -> Sequence[Detection]:
        """Visible text, cut in whatever way."""
        return self._fed_to(self._text_feeds, text)

    def reasoning(self, delta: ReasoningDelta) -> Sequence[Detection]:
        """A piece of the model's thinking."""
        if self._reasoning_feeds is None:  # made at first use: most runs have none
            self._reasoning_feeds = self._feeds("reasoning")
        return (*self._fed_to(self._reasoning_feeds, delta.text), *self._shown_to(self._of_deltas, delta))

    def arguments(self, delta: ToolCallDelta) -> Sequence[Detection]:
        """A piece of a call's arguments."""
        return self._shown_to([*self._of_characters, *self._of_deltas], delta)

    def fact(self, chunk: Chunk) -> Sequence[Detection]:
        """A call, a result, a report, the end of a turn, a retry."""
        return self._shown_to(self._all, chunk)

    def _fed_to(self, feeds: Sequence[tuple[str, TextFeed]], text: str) -> Sequence[Detection]:
        found: Sequence[Detection] = NOTHING
        for name, feed in feeds:
            if seen := _answer(name, feed.feed, text):
                found = (*found, *seen)
        return found

    def _shown_to(self, detectors: Sequence[Detector], chunk: Chunk) -> Sequence[Detection]:
        found: Sequence[Detection] = NOTHING
        for detector in detectors:
            if seen := _answer(detector.name, detector.observe, chunk):
                found = (*found, *seen)
        return found

    def _feeds(self, channel: Channel) -> list[tuple[str, TextFeed]]:
        return [(d.name, feed) for d in self._of_characters if (feed := d.feed_of(channel)) is not None]


class _DeltaFeed:
    """Shows a detector each piece of text as the delta that it came in."""

    need = 1

    def __init__(self, detector: Detector) -> None:
        self._detector = detector

    def feed(self, text: str) -> Sequence[Detection]:
        return self._detector.observe(TextDelta(text))


def _answer(name: str, ask: Callable[[T], Sequence[Detection]], what: T) -> Sequence[Detection]:
    """What a detector answers, if it answers what it should. (One that forgot to return anything found nothing.)"""
    try:
        found = ask(what)
        if found and not all(isinstance(detection, Detection) for detection in found):
            raise TypeError(f"expected detections, got {found!r}")
    except Exception as error:
        raise DetectorCrash(name, error) from error
    return found
