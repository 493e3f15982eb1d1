"""Kinds of text that no recorded run holds: the good ones are not stopped, songs and forms at most
nudged, and every flood ends.

`python -m bench.quality` counts the same kinds with other seeds.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.detectors import ContentRepetition
from monitor.testing.loops import OPENINGS, flood_of, text_of
from monitor.verdicts import Channel, Detection
from tests.detectors.made import FLOODS, LISTS, TEXTS, of_group
from tests.examples import ALL_CASES, every_second

NUDGED = {"progress", "rosary", "score_sheet", "knitting"}
"""Good texts that look like loops enough for a nudge: counted lines, and twelve times the same
prayer.
"""
FLOOD_CHARS = 20_000
RANDOM_ORDER = {
    "waits",
    "short phrases",
    "short lines",
    "short Chinese",
    "drifting paragraph",
    "names in a sentence",
    "word salad",
}
"""Rounds in any order: what recurs does so by chance, and later."""


def channel_chunk(channel: Channel, text: str) -> Chunk:
    if channel == "arguments":
        return ToolCallDelta("a", "write_file", text)
    return TextDelta(text) if channel == "text" else ReasoningDelta(text)


def watched(channel: Channel, text: str, rng: random.Random | None = None) -> list[Detection]:
    """The findings; with `rng` from pieces of any size."""
    detector, found, at = ContentRepetition(), list[Detection](), 0
    while at < len(text):
        size = rng.choice((1, 2, 5, 17, 300, 4000)) if rng else len(text)
        found += detector.observe(channel_chunk(channel, text[at : at + size]))
        at += size
    return found


def levels(found: list[Detection]) -> set[str]:
    return {finding.level for finding in found}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", of_group(TEXTS, "good"))
def test_good_texts_are_left_alone(kind: str):
    rng = random.Random(f"{kind} 11")
    text = text_of(TEXTS[kind], rng, LISTS)
    plain = watched("text", f"Here it is:\n\n{text}\nThat was it.\n")
    assert plain == watched("text", f"Here it is:\n\n{text}\nThat was it.\n", rng)
    assert levels(plain) <= ({"suspect"} if kind in NUDGED else set())
    assert levels(watched("text", f"Here it is:\n\n```\n{text}\n```\nThat was it.\n")) == set()
    assert levels(watched("arguments", text)) <= {"suspect"}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", of_group(TEXTS, "borderline"))
def test_what_is_repeated_on_purpose_is_never_stopped(kind: str):
    for seed in range(6):
        text = text_of(TEXTS[kind], random.Random(f"{kind} {seed}"), LISTS)
        for channel in ("text", "arguments"):
            assert levels(watched(channel, text)) <= {"suspect"}


@pytest.mark.feature("GL-02", "ST-09")
@pytest.mark.parametrize(
    ("channel", "kind"), [*product(["text"], FLOODS), *product(["reasoning"], every_second(FLOODS))]
)
def test_every_flood_is_stopped(channel: Channel, kind: str):
    place = list(OPENINGS)[len(kind) % len(OPENINGS)]
    rng = random.Random(f"{kind} {channel} 11")
    chars = 3 * FLOOD_CHARS if kind in RANDOM_ORDER else FLOOD_CHARS
    text, ends = flood_of(
        FLOODS[kind], rng, LISTS, chars=chars, opening=OPENINGS[place] if channel == "text" else "\n\n"
    )
    found = watched(channel, text, rng)
    if ALL_CASES or channel == "text":  # in both channels the same rules read the text
        assert found == watched(channel, text)
    assert next(finding.offset for finding in found if finding.level == "loop") > ends[0]


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize("kind", of_group(FLOODS, "data"))
def test_floods_of_one_unit_are_stopped_in_arguments_as_well(kind: str):
    rng = random.Random(f"{kind} 11")
    text, _ = flood_of(FLOODS[kind], rng, LISTS, chars=FLOOD_CHARS, opening='", "content": "')
    assert "loop" in levels(watched("arguments", text, rng))
