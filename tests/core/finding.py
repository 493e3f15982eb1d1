"""A finding for the tests of the core."""

from monitor.verdicts import Detection, Evidence

LOOP = Detection(
    detector="content_repetition",
    kind="block",
    channel="text",
    level="loop",
    count=5,
    threshold=5,
    start_offset=0,
    offset=50,
    evidence=Evidence("again ", "0" * 16, 6),
    message="it repeats itself",
)
