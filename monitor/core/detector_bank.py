"""The detectors of a run: which chunk goes to which detector, and which of them crashed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from monitor._util.codec import MOST_CHARS, MOST_PARTS, has_more
from monitor._util.hashing import TAG, identity
from monitor._util.text import eighths_of_tokens
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from monitor.detectors.calls.front import Shown, joined
from monitor.detectors.detector import (
    NOTHING,
    Detector,
    MadeLate,
    TextFeed,
    is_channel_detector,
    is_request_reader,
    wants_deltas,
)
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection

RESULT_CHARS = 262_144
"""A longer result is abridged before it goes to the detectors, which need about 50 ms for a result
of this length.
"""
EDGE_CHARS = 32_768
"""How much of each end of an abridged result is shown."""
LONG_CHARS = 1_000
"""Longer texts in huge arguments are abridged. Shorter texts stay, because they name the file and
the action.
"""


class PartCrash(Exception):
    """The detector or policy `name` raised `error`, or returned a value of the wrong type."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name = name
        self.error = error


class DetectorBank:
    """The detectors of one run. Detectors of characters get text directly; of the others, only
    those that want deltas get deltas.

    All methods raise `PartCrash` for the first detector that fails.
    """

    __slots__ = (
        "_all",
        "_facts",
        "_of_calls",
        "_of_deltas",
        "_reasoning_feeds",
        "_requests",
        "_text_feeds",
        "_text_names",
        "names",
    )

    def __init__(self, detectors: Sequence[Detector], of_calls: MadeLate | None = None) -> None:
        """`of_calls`: further detectors, which come first."""
        self._all = tuple(detectors)
        self._facts: Sequence[Shown] = joined(self._all)
        self._of_calls = of_calls
        self._requests: tuple[str, ...] = ()  # for the detectors that are not made yet
        own = [detector.name for detector in self._all]
        self.names = names = (*(of_calls.names if of_calls is not None else ()), *own)
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"two detectors are called {', '.join(map(repr, twice))}; give one of them another name=")
        self._of_deltas: tuple[Detector, ...] = ()
        self._text_feeds: tuple[TextFeed, ...] = ()
        self._text_names: tuple[str, ...] = ()  # not in pairs: an object less for each detector of each stream
        self._reasoning_feeds: Sequence[tuple[str, TextFeed]] | None = None
        for detector, name in zip(self._all, own, strict=True):
            if not is_channel_detector(detector):
                self._of_deltas += (detector,) if wants_deltas(detector) else ()
            elif (feed := detector.feed_of("text")) is not None:
                self._text_feeds += (feed,)
                self._text_names += (name,)
        for detector in self._of_deltas:
            self._text_feeds += (_DeltaFeed(detector),)
            self._text_names += (detector.name,)

    def reset(self) -> None:
        """A new run begins, of which nothing is known."""
        self._requests = ()
        for detector in self._all:
            try:
                detector.reset()
            except Exception as error:
                raise PartCrash(detector.name, error) from error

    def request(self, text: str) -> None:
        """The user's request, for the detectors that read it."""
        if self._of_calls is not None:
            self._requests += (text,)
        _tell_request(self._all, text)

    def forget_streaks(self) -> None:
        """A person has said something new to the model."""
        for detector in self._all:
            forget = getattr(detector, "forget_streaks", None)
            if forget is not None:
                try:
                    forget()
                except Exception as error:
                    raise PartCrash(detector.name, error) from error

    def snapshots(self) -> dict[str, Any]:
        """The state of each detector that has one, by its name."""
        self._make_all()
        return {one.name: one.snapshot() for one in self._all if hasattr(one, "snapshot")}

    @property
    def need(self) -> int:
        """How many more code points of visible text any detector needs before it can find
        something.
        """
        need = sys.maxsize
        for feed in self._text_feeds:
            if feed.need < need:
                need = feed.need
        return need

    def text(self, text: str) -> Sequence[Detection]:
        """Pass on visible text, in pieces of any size."""
        return self._fed_to(zip(self._text_names, self._text_feeds, strict=True), text)

    def reasoning(self, delta: ReasoningDelta) -> Sequence[Detection]:
        """Pass on a piece of the model's thinking."""
        if self._reasoning_feeds is None:  # made at first use: most runs have none
            self._reasoning_feeds = self._feeds("reasoning")
        return (*self._fed_to(self._reasoning_feeds, delta.text), *self._shown_to(self._of_deltas, delta))

    def arguments(self, delta: ToolCallDelta) -> Sequence[Detection]:
        """Pass on a piece of a call's arguments."""
        return self._shown_to([*filter(is_channel_detector, self._all), *self._of_deltas], delta)

    def fact(self, chunk: Chunk) -> Sequence[Detection]:
        """Pass on a call, a result, a report, the end of a turn, or a retry."""
        if self._of_calls is not None and isinstance(chunk, ToolCall):
            self._make_all()
        return self._shown_to(self._facts, chunk)

    def _make_all(self) -> None:
        if self._of_calls is not None:
            made = tuple(self._of_calls.make())
            self._all = (*made, *self._all)
            self._facts = joined(self._all)
            self._of_calls = None
            for text in self._requests:
                _tell_request(made, text)
            self._requests = ()

    def _fed_to(self, feeds: Iterable[tuple[str, TextFeed]], text: str) -> Sequence[Detection]:
        found: Sequence[Detection] = NOTHING
        for name, feed in feeds:
            try:
                if seen := feed.feed(text):
                    found = (*found, *_checked(seen))
            except Exception as error:
                raise PartCrash(name, error) from error
        return found

    def _shown_to(self, detectors: Sequence[Shown], chunk: Chunk) -> Sequence[Detection]:
        found: Sequence[Detection] = NOTHING
        for detector in detectors:
            try:
                if seen := detector.observe(chunk):
                    found = (*found, *_checked(seen))
            except Exception as error:
                raise PartCrash(detector.name, error) from error
        return found

    def _feeds(self, channel: Channel) -> list[tuple[str, TextFeed]]:
        return [
            (d.name, feed) for d in self._all if is_channel_detector(d) and (feed := d.feed_of(channel)) is not None
        ]


def _tell_request(detectors: Sequence[Detector], text: str) -> None:
    for detector in detectors:
        try:
            if is_request_reader(detector):
                detector.request(text)
        except Exception as error:
            raise PartCrash(detector.name, error) from error


class _DeltaFeed:
    """Gives a detector each piece of text as a `TextDelta`."""

    need = 1

    def __init__(self, detector: Detector) -> None:
        self._detector = detector

    def feed(self, text: str) -> Sequence[Detection]:
        return self._detector.observe(TextDelta(text))


def _checked(found: Sequence[Detection]) -> Sequence[Detection]:
    """The findings that a detector returned. Raises `TypeError` if any of it is not a detection."""
    if not all(isinstance(detection, Detection) for detection in found):
        raise TypeError(f"expected detections, got {found!r}")
    return found


def abridged_text(text: str) -> str:
    """A result as detectors see it. Of a huge result they see both ends and a hash, so that equal
    results stay equal, and others different.
    """
    if len(text) <= RESULT_CHARS:
        return text
    return f"{text[:EDGE_CHARS]}\n[{len(text)} characters: {identity(text)}]\n{text[-EDGE_CHARS:]}"


def abridged_arguments(given: Any) -> tuple[Any, int] | None:
    """Huge arguments as detectors see them, and the eighths of a token of the original. `None`: the
    arguments are not huge, or not JSON data.
    """
    if not has_more(given, MOST_PARTS, MOST_CHARS):
        return None
    try:
        if not has_more(given, MOST_PARTS, sys.maxsize):
            shown, eighths = _shortened(given)
            return shown, eighths + eighths_of_tokens(json.dumps(shown))
        text = json.dumps(given, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
    return {TAG: f"{len(text)} characters: {identity(text)}"}, eighths_of_tokens(text)


def _shortened(value: Any) -> tuple[Any, int]:
    """JSON data with its long texts abridged, and the eighths of a token of the original texts."""
    if isinstance(value, str) and len(value) > LONG_CHARS:
        return f"{value[:LONG_CHARS]} [{len(value)} characters: {identity(value)}]", eighths_of_tokens(value)
    if isinstance(value, dict):
        values = [_shortened(item) for item in value.values()]
        return dict(zip(value, (shown for shown, _ in values), strict=True)), sum(eighths for _, eighths in values)
    if isinstance(value, list | tuple):
        values = [_shortened(item) for item in value]
        return [shown for shown, _ in values], sum(eighths for _, eighths in values)
    return value, 0
