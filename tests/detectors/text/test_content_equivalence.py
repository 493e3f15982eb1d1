"""The sampled scanners find what the plain rules find, at the same character, however the text is
cut (laws 1 and 6).

`MONITOR_EXAMPLES=20000` looks harder; the usual number keeps the suite quick.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ReasoningDelta, TextDelta
from monitor.detectors import ContentRepetition, TailRule, WindowRule
from monitor.detectors.text.copies import ANCHOR_CHARS
from monitor.testing import cut
from monitor.verdicts import Detection
from tests.detectors import reference
from tests.detectors.rounds import ALPHABETS, EDGES, LOOPS, loop, some_text
from tests.examples import FEWER_EACH, at_least

MANY = at_least(200)
SEEDS = st.integers(0, 2**60)
SOME_LETTERS = st.sampled_from(ALPHABETS)


def pieces(rng: random.Random, text: str) -> list[str]:
    """Any split, empty pieces too."""
    size, out, at = rng.choice([1, 2, 3, 5, 17, 400, 3000]), [], 0
    while at < len(text):
        step = rng.randint(0, 2 * size)
        out.append(text[at : at + step])
        at += step
    return out


def watched(detector: ContentRepetition, deltas: list[str]) -> list[Detection]:
    return [detection for delta in deltas for detection in detector.feed(delta)]


def earliest_arrivals(detector: ContentRepetition, text: str) -> list[int]:
    """Characters taken in when each finding came, fed one at a time."""
    return [at for at, character in enumerate(text, 1) for _ in detector.feed(character)]


def check_chant(seed: int, alphabet: str, rule: WindowRule) -> None:
    rng = random.Random(seed)
    text = some_text(rng, alphabet, rule.window_chars)
    expected = list(reference.told(reference.chants(text, rule)))
    found = watched(
        ContentRepetition(chant=rule, tail=None, recurrence=None, counted=None, information=None), pieces(rng, text)
    )
    assert [(finding.offset, finding.evidence.offsets, finding.level) for finding in found] == expected
    assert earliest_arrivals(
        ContentRepetition(chant=rule, tail=None, recurrence=None, counted=None, information=None), text
    ) == [end for end, _, _ in expected]


@MANY
@given(SEEDS, SOME_LETTERS, st.data())
@pytest.mark.feature("GL-02")
def test_chant_with_small_numbers(seed: int, alphabet: str, data: st.DataObject):
    window = data.draw(st.integers(2, 12))
    rule = WindowRule(
        window_chars=window,
        repeats=data.draw(st.integers(2, 6)),
        near_chars=data.draw(st.integers(1, 20)),
        far_chars=data.draw(st.sampled_from([None, 8, 30])),
        far_texts=data.draw(st.integers(1, 3)),
        unit_chars=data.draw(st.integers(1, window)),
        sample_chars=data.draw(st.integers(1, window)),
    )
    check_chant(seed, alphabet, rule)


@MANY
@given(SEEDS, SOME_LETTERS, st.sampled_from([8, 12, 16, 25]))
@pytest.mark.feature("GL-02")
def test_chant_with_the_real_numbers(seed: int, alphabet: str, sample_chars: int):
    check_chant(seed, alphabet, WindowRule(sample_chars=sample_chars))


@MANY
@given(SEEDS, st.integers(1, 90), st.integers(0, 600))
def test_exact_tail_at_its_first_character(seed: int, period: int, before: int):
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz \u00e9\u6211"
    rule = TailRule(max_period_chars=100)
    # Blanks all along: letters without any are taken for a blob, behind which a short unit needs
    # more copies.
    noise = "".join(" " if place % 7 == 0 else rng.choice(letters) for place in range(before)) + " "
    unit = "x" + "".join(rng.choice(letters) for _ in range(period - 1))
    text = noise + unit * (rule.strong_chars(period) // period + 2)
    expected = reference.first_tail(text, rule)
    (finding, *_) = watched(
        ContentRepetition(chant=None, tail=rule, recurrence=None, counted=None, information=None), pieces(rng, text)
    )
    assert (finding.offset, finding.evidence.length) == expected
    assert (
        earliest_arrivals(
            ContentRepetition(chant=None, tail=rule, recurrence=None, counted=None, information=None), text
        )[0]
        == finding.offset
    )


@pytest.mark.parametrize("kind", EDGES)
@FEWER_EACH
@given(seed=SEEDS)
def test_any_cut_gives_the_same_findings(seed: int, kind: str):
    rng = random.Random(seed)
    text = EDGES[kind](rng)
    whole = watched(ContentRepetition(), [text])
    assert watched(ContentRepetition(), pieces(rng, text)) == whole
    assert earliest_arrivals(ContentRepetition(), text) == [finding.offset for finding in whole]
    for finding in whole:
        assert_true_to_the_text(text, finding)


@pytest.mark.parametrize("kind", EDGES)
@FEWER_EACH
@given(seed=SEEDS)
def test_restored_is_never_interrupted(seed: int, kind: str):
    rng = random.Random(seed)
    sizes = [rng.randint(1, 300), rng.randint(0, 20), 1]
    repeated, edge = cut(loop(rng.choice(list(LOOPS)), 60), sizes), cut(EDGES[kind](rng)[:4_000], sizes)
    chunks = [*map(TextDelta, repeated), *(rng.choice([TextDelta, ReasoningDelta])(delta) for delta in edge)]
    interrupted, whole = ContentRepetition(), ContentRepetition()
    findings: list[Detection] = []
    for chunk in chunks:
        got = list(interrupted.observe(chunk))
        assert got == list(whole.observe(chunk))
        findings += got
        if rng.random() < 0.1:
            state = json.loads(json.dumps(interrupted.snapshot()))
            interrupted = ContentRepetition()
            interrupted.restore(state)
    assert findings


def assert_true_to_the_text(text: str, finding: Detection) -> None:
    length, offsets = finding.evidence.length, finding.evidence.offsets
    repeated = {text[at : at + length] for at in offsets}
    assert len(repeated) == 1
    shown = ANCHOR_CHARS if finding.kind == "copies" else 200
    assert next(iter(repeated))[:shown] == finding.evidence.excerpt
    assert finding.count >= finding.threshold
    if finding.kind == "exact_tail":
        run = text[finding.start_offset : finding.offset]
        assert run[length:] == run[:-length]
