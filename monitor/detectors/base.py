"""What a detector is.

A detector is fed chunks and answers with findings. It is synchronous and pure: no clock, no
randomness, no I/O, no logging; the same chunks give the same findings, and how the provider cut the
text makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from monitor.chunks import Chunk
from monitor.verdicts import Channel, Detection

NOTHING: tuple[Detection, ...] = ()
"""What `observe` usually returns; shared, so that finding nothing allocates nothing."""


@runtime_checkable
class Detector(Protocol):
    """Watches one run. Stateful: give every run its own instance, or `reset()` it."""

    @property
    def name(self) -> str:
        """Stands in detections and reasons; unique among the detectors of a run."""
        ...

    def observe(self, chunk: Chunk, /) -> Sequence[Detection]:
        """Take in the next chunk of the run and say what it completes, ordered by offset; usually
        `NOTHING`.
        """
        ...

    def reset(self) -> None:
        """Forget everything: afterwards like a new instance."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state as small JSON data with a `version`."""
        ...

    def restore(self, state: Mapping[str, Any], /) -> None:
        """Go on as if never interrupted since `snapshot()`."""
        ...


class TextFeed(Protocol):
    """One channel's text, into a detector, without an object for every delta."""

    @property
    def need(self) -> int:
        """Code points that have to come before the detector can find anything. Text may be held
        back until then, for how it is cut makes no difference.
        """
        ...

    def feed(self, text: str, /) -> Sequence[Detection]:
        """Take in the channel's next text: the same as observing it as a delta."""
        ...


class ChannelDetector(Detector, Protocol):
    """A detector of characters. It may be fed a channel's text directly, and in larger pieces than
    it comes in.
    """

    def feed_of(self, channel: Channel, /) -> TextFeed | None:
        """The feed for the channel's text. `None`: text goes to `observe`, or the channel is not
        watched. The feed stays valid after a reset.
        """
        ...


class FactDetector(Detector, Protocol):
    """A detector of whole calls, results and turns. It needs no deltas, so no object is made for
    each one.
    """

    @property
    def wants_deltas(self) -> bool:
        """False: `observe` need not be given text, reasoning and argument deltas."""
        ...


def wants_deltas(detector: Detector) -> bool:
    """Whether `detector` must be shown every delta; it must unless it says otherwise."""
    return getattr(detector, "wants_deltas", True) is not False


def is_channel_detector(detector: Detector) -> TypeGuard[ChannelDetector]:
    """Whether `detector` can be fed text directly. (By the name of the method: checking a whole
    protocol takes 20 us.)
    """
    return hasattr(detector, "feed_of")
