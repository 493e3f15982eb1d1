"""Loops of calls that no rule of equal calls sees, and good work, by what was learnt."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pytest

from monitor.chunks import Chunk, StreamRetried, ToolCall, ToolResult, TurnFinished
from monitor.detectors import LearnedEvidence, ToolPolicy
from monitor.detectors.calls.learned_evidence import MODEL
from monitor.errors import ConfigError, FinishReason
from monitor.verdicts import Detection

DONE = TurnFinished(FinishReason.DONE)
Step: TypeAlias = tuple[Any, ...]
WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet"),
    *("knoll", "larch", "maple", "north", "ocean", "plain", "quartz", "river", "stone"),
)


def chunks_of(turns: Iterable[Step | list[Step]]) -> Iterator[Chunk]:
    """Each turn is one call, or several: (tool, arguments, result, is_error)."""
    calls = 0
    for turn in turns:
        results: list[Chunk] = []
        for tool, arguments, result, *is_error in turn if isinstance(turn, list) else [turn]:
            yield ToolCall(f"c{calls}", tool, arguments)
            results.append(ToolResult(f"c{calls}", tool, result, bool(is_error)))
            calls += 1
        yield DONE
        yield from results


def found(
    turns: Iterable[Step | list[Step]], request: str = "Find out how to reset the password.", **options: Any
) -> list[Detection]:
    detector = LearnedEvidence(**options)
    if request:
        detector.request(request)
    return [one for chunk in chunks_of(turns) for one in detector.observe(chunk)]


def levels(*given: Any, **options: Any) -> set[str]:
    return {one.level for one in found(*given, **options)}


QUERIES = (
    *("reset password key", "key reset of the password", "password key", "how to reset the key"),
    *("reset key password file", "the key for a password", "where key password reset", "password reset file key"),
    *("file with the key", "reset file", "key file password", "find password key reset"),
)


def searched(times: int) -> list[Step]:
    """Searches in other words, which find nothing."""
    return [("search", {"query": query}, "No files found") for query in (QUERIES * 2)[:times]]


def test_searches_in_other_words_that_find_nothing_are_first_a_suspicion_and_then_a_loop():
    findings = found(searched(16))
    assert [one.level for one in findings[:2]] == ["suspect", "loop"]
    assert findings[0].evidence.nats is not None
    assert findings[0].evidence.nats < MODEL.stop <= (findings[1].evidence.nats or 0)


def test_the_message_says_which_steps_and_what_they_answered_and_no_number_of_the_method():
    one = found(searched(16))[-1]
    said = "steps of search found nothing that was not known: each answered"
    assert one.message == f'{one.count} {said} "No files found"'
    assert one.evidence.tools == ("search",)


def test_pages_that_are_read_one_after_the_other_are_work():
    rng = random.Random(3)
    pages: list[Step] = [
        ("read", {"page": at}, " ".join(f"{rng.choice(WORDS)}{rng.choice(WORDS)}{at}x" for _ in range(30)))
        for at in range(30)
    ]
    assert levels(pages, "Read the book.") == set()


def test_an_edit_between_two_checks_is_work():
    rng = random.Random(1)
    work: list[Step] = []
    for _ in range(10):
        new = " ".join(f"{rng.choice(WORDS)}{rng.choice(WORDS)}{rng.choice(WORDS)}" for _ in range(9))
        work += [("edit", {"path": "a.py", "new": new}, "ok"), ("test", {}, "1 failed: test_total")]
    assert "loop" not in levels(work, "Make the tests pass.")


def test_no_single_step_goes_from_no_finding_to_a_loop():
    assert MODEL.most < MODEL.stop - MODEL.doubt
    for cut in range(16):
        assert levels(searched(cut)) in (set(), {"suspect"}, {"suspect", "loop"})


def test_calls_without_a_result_are_no_steps():
    detector = LearnedEvidence()
    assert [
        one for at in range(40) for one in detector.observe(ToolCall(f"c{at}", "read", {"path": "ab"[at % 2]}))
    ] == []


def test_equal_calls_in_a_row_with_equal_results_are_left_to_the_counter_of_equal_calls():
    assert found([("read", {"path": "a"}, "the same text of the file")] * 12) == []


def shuffled(chunks: Iterable[Chunk], rng: random.Random) -> list[Chunk]:
    """The chunks, with the results of each turn in any order."""
    out: list[Chunk] = []
    results: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, ToolResult):
            results.append(chunk)
            continue
        rng.shuffle(results)
        out += [*results, chunk]
        results = []
    return [*out, *results]


def test_results_of_one_turn_count_alike_in_whichever_order_they_come_and_wherever_it_is_restored():
    rng = random.Random(5)
    turns: list[list[Step]] = [
        [("read", {"path": f"{rng.choice(WORDS[:6])}.md"}, f"no {WORDS[turn % 3]}") for _ in range(rng.randrange(1, 5))]
        for turn in range(30)
    ]
    steps = list(chunks_of(turns))
    in_order, other = LearnedEvidence(), LearnedEvidence()
    expected = [one for chunk in steps for one in in_order.observe(chunk)]
    assert expected
    findings: list[Detection] = []
    for chunk in shuffled(steps, rng):
        findings += other.observe(chunk)
        saved = json.loads(json.dumps(other.snapshot()))
        other = LearnedEvidence()
        other.restore(saved)
    assert findings == expected
    assert json.dumps(other.snapshot()) == json.dumps(in_order.snapshot())


def test_a_failed_attempt_leaves_no_evidence():
    detector, spared = LearnedEvidence(), LearnedEvidence()
    for at in range(4):
        detector.observe(ToolCall(f"x{at}", "search", {"query": "a"}))
    detector.observe(StreamRetried("lost"))
    steps = searched(14)
    expected = [one for chunk in chunks_of(steps) for one in spared.observe(chunk)]
    assert [one for chunk in chunks_of(steps) for one in detector.observe(chunk)] == expected


def test_a_new_word_of_a_person_ends_the_evidence_and_what_was_seen_stays_known():
    detector = LearnedEvidence()
    steps = list(chunks_of(searched(12)))
    assert [one for chunk in steps for one in detector.observe(chunk)]
    detector.forget_streaks()
    assert detector.idle_steps == {}
    seen = detector.snapshot()["features"]["seen"]
    assert seen != LearnedEvidence().snapshot()["features"]["seen"]


def test_what_the_caller_says_of_a_tool_counts():
    steps = searched(16)
    assert "loop" in levels(steps)
    for policy in (ToolPolicy(exempt=True), ToolPolicy(no_op=True), ToolPolicy(polling=True)):
        assert levels(steps, tools={"search": policy}) == set()


def test_the_steps_without_news_are_told_by_the_index_of_their_call():
    detector = LearnedEvidence()
    for chunk in chunks_of(searched(10)):
        detector.observe(chunk)
    assert set(detector.idle_steps) <= set(range(10))
    assert set(detector.idle_steps.values()) >= {"a call like the one before it, with an answer seen before"}
    assert 0 <= detector.steps_left < LearnedEvidence().steps_left


def test_a_long_run_of_large_results_has_a_snapshot_of_bounded_size():
    detector, rng = LearnedEvidence(), random.Random(3)
    detector.request(" ".join(f"{rng.getrandbits(40):x}" for _ in range(2_000)))
    for chunk in chunks_of(
        (
            f"tool{at % 40}",
            {"path": f"{rng.getrandbits(50):x}"},
            " ".join(f"{rng.getrandbits(40):x}" for _ in range(900)),
        )
        for at in range(2_000)
    ):
        detector.observe(chunk)
    assert len(json.dumps(detector.snapshot())) < 64_000


@pytest.mark.parametrize(("doubt", "stop"), [(0, 5), (-1, 5), (5, 5), (6, 5), (1, float("inf")), (float("nan"), 5)])
def test_lines_that_mean_nothing_are_refused(doubt: float, stop: float):
    with pytest.raises(ConfigError, match="doubt"):
        LearnedEvidence(doubt=doubt, stop=stop)


def test_the_model_says_from_what_it_was_learnt_and_how_well_it_does_on_unseen_authors():
    assert MODEL.about["area_under_roc"] > 0.9
    assert "composed_a" in MODEL.about["sets"]
    unseen = MODEL.about["reached_by_unseen_authors"]
    assert unseen["doubt"]["loops"] > unseen["stop"]["loops"]
