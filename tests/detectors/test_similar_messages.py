from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.hashing import identity
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnFinished,
    UsageReport,
)
from monitor.detectors import SimilarMessages
from monitor.detectors.similar_messages import DEEDS_KEPT, HEAD_CHARS
from monitor.errors import ConfigError, FinishReason
from monitor.testing import cut, rechunk
from monitor.verdicts import Detection
from tests.detectors.text.test_content_repetition import FIXTURES, prose

DONE = TurnFinished(FinishReason.DONE)
MESSAGE = "The test still fails, so I will send the edit of the parser once more and ask you to run it again."
EDIT = (
    "Here is the edit:\n\n```python\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```\n\nPlease run the"
    " tests again.\n"
)


class Run:
    """Speaks to a detector."""

    def __init__(self, **options: Any) -> None:
        self.detector = SimilarMessages(**options)
        self.found: list[Detection] = []
        self.calls = 0

    def observe(self, chunk: Chunk) -> None:
        self.found += self.detector.observe(chunk)

    def say(self, *messages: str) -> None:
        for message in messages:
            self.observe(TextDelta(message))
            self.observe(DONE)

    def act(self, name: str = "read", result: str = "the same", text: str = "") -> None:
        """A turn with a call, and its result."""
        id = f"call_{self.calls}"
        self.calls += 1
        self.observe(TextDelta(text))
        self.observe(ToolCall(id, name, {"path": "a"}))
        self.observe(DONE)
        self.observe(ToolResult(id, name, result))

    @property
    def levels(self) -> list[tuple[str, int]]:
        return [(detection.level, detection.count) for detection in self.found]


# Equal


@pytest.mark.feature("ST-09")
@pytest.mark.parametrize(
    "message", [MESSAGE, EDIT, prose(HEAD_CHARS), prose(5 * HEAD_CHARS + 7), "\u518d\u8bd5\u4e00\u6b21" * 20]
)
def test_three_equal_messages_are_a_loop_and_each_one_after(message: str):
    run = Run()
    run.say(message, message)
    assert run.found == []
    run.say(message, message)
    assert run.levels == [("loop", 3), ("loop", 4)]


@pytest.mark.feature("ST-09")
def test_what_a_finding_says():
    run = Run(name="again")
    run.say("Something else first.", *[EDIT] * 3)
    (finding,) = run.found
    text = " ".join(EDIT.split())
    assert (finding.detector, finding.kind, finding.channel, finding.level) == (
        "again",
        "equal_messages",
        "messages",
        "loop",
    )
    assert (finding.count, finding.threshold, finding.start_offset, finding.offset) == (3, 3, 1, 3)
    assert finding.evidence.offsets == (1, 2, 3)
    assert (finding.evidence.excerpt, finding.evidence.xxhash, finding.evidence.length) == (
        text,
        identity(text),
        len(EDIT),
    )
    assert finding.message == f"3 equal messages of {len(EDIT)} characters in a row"


def test_blanks_do_not_matter_but_every_character_does():
    run = Run(near=False)
    run.say(EDIT, EDIT + "\n\n", EDIT.replace(" ", "  "))
    assert run.levels == [("loop", 3)]
    run.say(*(prose(3 * HEAD_CHARS) + end for end in "abcabc"))
    assert len(run.found) == 1


def test_another_message_between_starts_anew():
    run = Run()
    for number in range(6):
        run.say(MESSAGE, MESSAGE, f"No, first I read file {number}.")
    assert run.found == []


@pytest.mark.parametrize(
    ("times", "levels"), [(2, []), (3, ["suspect"]), (9, ["suspect"]), (11, ["suspect", "loop", "loop"])]
)
def test_short_answers_repeat_more_often(times: int, levels: list[str]):
    run = Run()
    run.say(*["You are welcome!"] * times)
    assert [detection.level for detection in run.found] == levels


# Nearly equal


def reworded(turns: int) -> list[str]:
    words = ["now", "again", "once more", "at last", "carefully", "anew"]
    return [
        f"I am sorry. I will look at the configuration file {word} and tell you which key is missing."
        for word in words[:turns]
    ]


@pytest.mark.feature("ST-09")
def test_nearly_equal_messages_are_a_suspicion_at_three_and_a_loop_at_five():
    run = Run()
    run.say(*reworded(6))
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6)]
    assert {finding.kind for finding in run.found} == {"similar_messages"}
    only_equal = Run(near=False)
    only_equal.say(*reworded(6))
    assert only_equal.found == []


@pytest.mark.parametrize(("changed", "fires"), [(1, True), (5, True), (9, False)])
def test_one_word_in_fourteen_may_change(changed: int, fires: bool):
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(80)]
    run = Run()
    for _ in range(5):
        for place in range(3, 3 + 8 * changed, 8):
            words[place] = "".join(rng.choices("qrstuvwxyz", k=6))
        run.say(" ".join(words))
    assert bool(run.found) is fires


def test_filled_forms_edits_and_short_answers_are_not_nearly_equal():
    run = Run()
    for turn in range(8):
        run.say(
            json.dumps({"label": "positive", "score": turn / 10, "tags": ["a", "b"], "explanation": None, "id": turn})
        )
    for turn in range(8):
        run.say(EDIT.replace("x = 2", f"x = {turn + 2}; y[{turn}] = {{}}"))
    for turn in range(8):
        run.say(f"My guess is {turn}.")
    for turn in range(8):
        run.say(prose(600, seed=turn))
    assert run.found == []


# What is done between


@pytest.mark.feature("ST-09")
def test_other_events_between_do_not_matter():
    run = Run()
    for _ in range(3):
        run.observe(ReasoningDelta("I think so."))
        run.say(MESSAGE)
        run.observe(UsageReport(output_tokens=10))
        run.observe(DONE)
    assert run.levels == [("loop", 3)]


def test_the_same_calls_and_results_between_do_not_hide_it():
    run = Run()
    for _ in range(5):
        run.act(text=MESSAGE)
    for _ in range(5):
        run.say("I have read what is there, and it is what I expected to find in this file.")
        run.act()
        run.act("list")
    for message in reworded(6):
        run.act(text=message)
    assert run.levels == [("loop", 5), ("loop", 5)]
    assert run.found[-1].message.endswith("with the same calls and results between them")


def test_other_work_between_starts_anew():
    run = Run()
    for turn in range(9):
        run.act(result=f"{turn} %", text="Let me look at the state of the build, which should be done soon, once more.")
    for turn in range(9):
        run.act(name=f"tool_{turn}")
        run.say("Done! I have made the change you asked for. Let me know if you need anything else.")
    assert run.found == []


def test_a_call_delivered_twice_and_results_in_another_order_are_the_same_work():
    run = Run()
    for turn in range(5):
        run.say(MESSAGE)
        ids = [f"a{turn}", f"b{turn}"]
        for id in ids * (1 + turn % 2):
            run.observe(ToolCall(id, "read", {"id": id[0]}))
        run.observe(DONE)
        for id in sorted(ids, reverse=turn % 2 == 0):
            run.observe(ToolResult(id, "read", f"of {id[0]}"))
    assert run.levels == [("loop", 5)]


# Turns, retries, options, state


def test_a_retried_stream_takes_its_text_and_calls_back():
    run, plain = Run(), Run()
    for one in (run, plain):
        one.say(MESSAGE, MESSAGE)
    run.observe(TextDelta("Something else " * 500))
    run.observe(ToolCall("x", "read", {}))
    run.observe(StreamRetried("connection lost"))
    assert run.detector.snapshot() == plain.detector.snapshot()
    run.say(MESSAGE)
    assert run.levels == [("loop", 3)]


def test_saying_nothing_is_a_suspicion_at_three_and_a_loop_at_ten():
    run = Run()
    run.say(*["", " \n"] * 5)
    assert run.levels == [("suspect", 3), ("loop", 10)]
    assert run.found[0].message == "3 empty messages in a row"


def test_turns_that_only_act_are_no_messages():
    run = Run()
    run.say(MESSAGE)
    for number in range(10):
        run.act(result=f"line {number}")
    assert run.found == []


@pytest.mark.feature("ST-09")
@pytest.mark.parametrize("turn", [[MESSAGE, EDIT], [MESSAGE, EDIT, "Done."], [MESSAGE, MESSAGE, EDIT], [MESSAGE, ""]])
def test_messages_in_turn_are_a_loop_in_the_third_round(turn: list[str]):
    run = Run()
    run.say("First something else.", *turn * 3)
    (finding,) = run.found
    assert (finding.kind, finding.level, finding.count, finding.threshold) == ("message_cycle", "loop", 3, 3)
    assert (finding.start_offset, finding.offset) == (1, 3 * len(turn))
    assert finding.evidence.offsets == (1, 1 + len(turn), 1 + 2 * len(turn))
    assert finding.message == f"{len(turn)} messages in turn, 3 times"


def test_a_cycle_is_known_by_its_messages_wherever_it_begins():
    one, other = Run(), Run()
    one.say(*[MESSAGE, EDIT] * 3)
    other.say("Something else.", *[EDIT, MESSAGE] * 3)
    assert one.found[0].evidence.xxhash == other.found[0].evidence.xxhash


def test_short_messages_in_turn_take_more_rounds():
    run, words = Run(), Run()
    run.say(*["I look at the first one.", "I look at the other one."] * 5)
    words.say(*["Yes.", "No."] * 9)
    assert run.levels == [("suspect", 3), ("loop", 5)]
    assert words.levels == [("suspect", 3)]


def test_what_is_done_between_ends_a_cycle_of_messages():
    run = Run()
    for number in range(8):
        run.say(MESSAGE, EDIT)
        run.act(result=f"line {number}")
    assert run.found == []


@pytest.mark.parametrize("options", [{"loop_at": 1}, {"equal_loop_at": 1}, {"suspect_at": 1}, {"suspect_at": 6}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        SimilarMessages(**options)


def test_other_numbers():
    run = Run(suspect_at=None, loop_at=2, equal_loop_at=2)
    run.say(*reworded(2), *["a"] * 4)
    assert run.levels == [("loop", 2), ("loop", 4)], "words: twice as many"


@given(
    st.lists(
        st.sampled_from([MESSAGE, EDIT, prose(2 * HEAD_CHARS), prose(2 * HEAD_CHARS) + "!", *reworded(3)]), max_size=12
    ),
    st.data(),
)
def test_any_cut_gives_the_same_and_restored_is_never_interrupted(messages: list[str], data: st.DataObject):
    chunks: list[Chunk] = []
    for turn, message in enumerate(messages):
        chunks += [TextDelta(message), DONE]
        if data.draw(st.booleans()):
            chunks += [ToolCall(f"c{turn}", "read", {}), DONE, ToolResult(f"c{turn}", "read", "the same")]
    sizes = data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=5).filter(any))
    whole, restored = SimilarMessages(), SimilarMessages()
    expected = [finding for chunk in chunks for finding in whole.observe(chunk)]
    found: list[Detection] = []
    for chunk in rechunk(chunks, sizes):
        found += restored.observe(chunk)
        state = json.loads(json.dumps(restored.snapshot()))
        restored = SimilarMessages()
        restored.restore(state)
    assert found == expected
    with pytest.raises(ValueError, match="version None"):
        whole.restore({})


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    detector = SimilarMessages()
    text = prose(50_000)
    pieces = cut(text, 64)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            for piece in pieces:
                detector.feed(piece)
        detector.observe(DONE)
        for piece in pieces:
            detector.feed(piece)
        assert tracemalloc.get_traced_memory()[0] - before < 8_000
    finally:
        tracemalloc.stop()
    for turn in range(5 * DEEDS_KEPT):
        detector.observe(ToolCall(f"c{turn}", "write", {"text": "x" * 10_000}))
    detector.observe(DONE)
    assert len(json.dumps(detector.snapshot())) < 12_000


# Recorded runs


def chunks_of(run: dict[str, Any]) -> Iterator[Chunk]:
    """Calls and results are paired in their order; of a result that was cut, its hash tells."""
    waiting: list[str] = []
    for turn, message in enumerate(run["messages"]):
        if message["role"] == "assistant":
            yield TextDelta(message.get("text") or "")
            waiting = []
            for at, call in enumerate(message.get("tool_calls") or []):
                waiting.append(f"{turn}.{at}")
                yield ToolCall(waiting[-1], call["name"], call["args"])
            yield DONE
        for result in message.get("tool_results") or []:
            yield ToolResult(
                waiting.pop(0) if waiting else "", result["name"], f"{result.get('sha1')}", bool(result.get("is_error"))
            )


@pytest.mark.feature("ST-09")
def test_recorded_runs():
    path = FIXTURES / "dev.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        runs = [json.loads(line) for line in lines]
    seen: Counter[str] = Counter()
    for run in runs:
        kind = run["loop"]["kind"] if run["label"] == "loop" else run["label"]
        detector = SimilarMessages()
        levels = [finding.level for chunk in chunks_of(run) for finding in detector.observe(chunk)]
        seen[kind] += "loop" in levels
        seen[f"{kind}, suspected"] += bool(levels)
    assert seen["turn_text_repeat"] == 2
    assert seen["clean, suspected"] == seen["hard_negative, suspected"] == seen["borderline"] == 0
