"""What a detector is.

A detector takes chunks and returns findings. It is synchronous and pure: no clock, no randomness,
no I/O, no logging. The same chunks give the same findings, however the provider cut the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeGuard, runtime_checkable

from monitor.chunks import Chunk
from monitor.verdicts import Channel, Detection

NOTHING: tuple[Detection, ...] = ()
"""The usual answer of `observe`; shared, so that finding nothing allocates nothing."""


@runtime_checkable
class Detector(Protocol):
    """Watches one run. Stateful: give every run its own instance, or `reset()` it."""

    @property
    def name(self) -> str:
        """The name in detections and reasons; unique among the detectors of a run."""
        ...

    def observe(self, chunk: Chunk, /) -> Sequence[Detection]:
        """Take in the next chunk of the run and say what it completes, ordered by offset; usually
        `NOTHING`.
        """
        ...

    def reset(self) -> None:
        """Return to the state of a new instance."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state as small JSON data with a `version`."""
        ...

    def restore(self, state: Mapping[str, Any], /) -> None:
        """Take over the state of a `snapshot()`. Later findings are the same as without the
        interruption.
        """
        ...


class TextFeed(Protocol):
    """Passes one channel's text to a detector, without an object for every delta."""

    @property
    def need(self) -> int:
        """How many more code points the detector needs before it can find anything. The caller may
        hold text back until then, because the cutting makes no difference.
        """
        ...

    def feed(self, text: str, /) -> Sequence[Detection]:
        """Process the channel's next text, with the same findings as for a delta."""
        ...


class ChannelDetector(Detector, Protocol):
    """A detector of characters. It accepts a channel's text directly, and in larger pieces than the
    provider's.
    """

    def feed_of(self, channel: Channel, /) -> TextFeed | None:
        """The feed for the channel's text. `None`: text goes to `observe`, or the channel is not
        watched. The feed is still valid after a reset.
        """
        ...


class FactDetector(Detector, Protocol):
    """A detector of whole calls, results and turns. It needs no deltas, so no object is made for
    each one.
    """

    @property
    def wants_deltas(self) -> bool:
        """False: text, reasoning and argument deltas need not be passed to `observe`."""
        ...


class RequestReader(Detector, Protocol):
    """A detector that reads the user's request: "20 times" allows twenty repetitions."""

    def request(self, text: str, /) -> None:
        """Take in the user's request, at the beginning of a run or with a later message."""
        ...


class MadeLate:
    """Detectors of calls that are made with the first call of a run: most streams have none. Before
    a call they have no state, so they find the same.
    """

    def __init__(self, make: Callable[[], Iterable[Detector]]) -> None:
        self.make = make

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the detectors."""
        return tuple([detector.name for detector in self.make()])


def wants_deltas(detector: Detector) -> bool:
    """Whether `detector` needs every delta. A detector without `wants_deltas` does."""
    return getattr(detector, "wants_deltas", True) is not False


def is_request_reader(detector: Detector) -> TypeGuard[RequestReader]:
    """Whether `detector` takes the user's request."""
    return callable(getattr(detector, "request", None))


def is_channel_detector(detector: Detector) -> TypeGuard[ChannelDetector]:
    """Whether `detector` accepts text directly. Only the method's name is checked, because a check
    of the whole protocol takes 20 us.
    """
    return hasattr(detector, "feed_of")
