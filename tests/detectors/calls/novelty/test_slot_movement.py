from __future__ import annotations

import pytest

from monitor.detectors.calls.novelty.slot_movement import Drift, Movement, SlotMovement
from monitor.detectors.calls.novelty.step_reading import ends_of, number_of


def last(rows: list[list[str]], text: str = "", words: int = 6) -> Movement | None:
    """The last of the movements. What is saved in between makes no difference."""
    moving, movement = SlotMovement(rows[0]), None
    for row in rows[1:]:
        moving = SlotMovement.of(moving.save())
        movement = moving.moved(row, ends_of(text.format(*row), row), words=words)
    return movement


@pytest.mark.parametrize(
    ("rows", "text", "words", "movement"),
    [
        ([["41"], ["42"]], "{} % done", 6, Movement.TO_AN_END),
        ([["3", "9"], ["4", "9"]], "{} of {}", 6, Movement.TO_AN_END),
        ([["200"], ["180"], ["160"]], "", 6, Movement.TO_AN_END),
        ([["41000", "200000"], ["41800", "200000"]], "{}/{}", 6, Movement.ONE_WAY),
        ([[":10:01"], [":10:02"]], "", 6, Movement.CLOCK),
        ([["~0.3"], ["~0.2"], ["~0.4"]], "", 6, Movement.BY_ITSELF),
        ([["@a1"], ["@b7"]], "", 6, Movement.BY_ITSELF),
        ([["7"], ["3"]], "", 0, Movement.ANSWER),
        ([["7"], ["8"]], "", 0, Movement.OTHER_VALUE),
        (
            [["513", "104", "40"], ["512", "102", "43"], ["514", "103", "41"], ["512", "104", "42"]],
            "",
            5,
            Movement.BY_ITSELF,
        ),
    ],
)
def test_a_number_is_judged_by_how_it_moves(rows: list[list[str]], text: str, words: int, movement: Movement):
    assert last(rows, text, words) is movement


def test_numbers_that_only_count_on_drift_whatever_is_asked():
    counting, answering = Drift(), Drift()
    assert [counting.add([str(i)]) for i in range(5)][2:] == [True, True, True]
    assert not all([answering.add([number]) for number in ("3", "90", "12", "700")][1:])
    assert Drift(counting.save()).save() == counting.save()


@pytest.mark.parametrize(
    ("slot", "number"), [("1,200", 1200), ("@v7", 7), ("@7f3a", None), (":10:02", 1002), ("1.2.3", None), ("~0.5", 0.5)]
)
def test_a_slot_is_read_as_a_number(slot: str, number: float | None):
    assert number_of(slot) == number
