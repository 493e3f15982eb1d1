from __future__ import annotations

import json

import pytest

from monitor.detectors.calls.seen_marks import MARKS_A_FIELD, WORDS_KEPT, SeenMarks, WordMarks, mark


def test_what_was_seen_is_known_and_little_else_is():
    seen = SeenMarks()
    seen.add(mark(f"word {i}") for i in range(MARKS_A_FIELD))
    assert all(mark(f"word {i}") in seen for i in range(MARKS_A_FIELD))
    assert sum(mark(f"other {i}") in seen for i in range(10_000)) < 700


def test_the_newest_marks_are_kept_in_a_field_of_fixed_size():
    seen = SeenMarks()
    seen.add(mark(f"word {i}") for i in range(20 * MARKS_A_FIELD))
    newest = range(20 * MARKS_A_FIELD - MARKS_A_FIELD // 2, 20 * MARKS_A_FIELD)
    assert all(mark(f"word {i}") in seen for i in newest)
    assert sum(mark(f"word {i}") in seen for i in range(10_000)) < 1_500, "the oldest are forgotten"
    assert len(json.dumps(seen.save())) < 24_000


def test_a_saved_field_is_the_same():
    seen = SeenMarks()
    seen.add(map(mark, ("a", "b")))
    again = SeenMarks(json.loads(json.dumps(seen.save())))
    assert mark("a") in again
    assert again.save() == seen.save()


@pytest.mark.parametrize("room", [0, 1, 2, 3, 50])
def test_marks_that_come_twice_count_as_if_each_came_alone(room: int):
    words = [mark(f"again {i % 40}") for i in range(120)]
    together, alone = SeenMarks(), SeenMarks()
    for seen in (together, alone):
        seen.add(mark(f"word {i}") for i in range(2 * MARKS_A_FIELD))
        while int(str(seen.save()[2])) < MARKS_A_FIELD - room:
            seen.add([mark(f"filler {seen.save()[2]}")])
    together.add(words)
    for one in words:
        alone.add([one])
    assert together.save() == alone.save()


def test_a_kept_mark_is_the_mark_of_the_word():
    marks = WordMarks()
    words = [f"word{i}" for i in range(WORDS_KEPT + 10)]
    assert marks.of(words) == [*map(mark, words)]
    assert len(marks) <= WORDS_KEPT
