from __future__ import annotations

import json

from monitor.detectors.calls.novelty.marks import MARKS_A_FIELD, SeenMarks, mark


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
