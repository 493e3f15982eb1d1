from __future__ import annotations

import pytest

from monitor.detectors.calls.allowance import EACH_STEPS, SET_STEPS, UNTIL_STEPS, Allowance


@pytest.mark.parametrize(
    ("request_text", "left"),
    [
        ("Run test_net 20 times and tell me how often it fails.", [20, 20, 0, 0]),
        ("Undo the last twelve changes.", [12, 12, 0, SET_STEPS]),
        ("Read src/f1.py to src/f60.py.", [0, 60, 0, 0]),
        ("Check page 3 to 9.", [0, 7, 0, 0]),
        ("Rename these 14 functions.", [14, 14, 0, EACH_STEPS]),
        ("Rename these 7 functions.", [0, 7, 0, EACH_STEPS]),
        ("Rename these 41 functions.", [0, 41, 0, EACH_STEPS]),
        ("Wait until it is done.", [0, 0, UNTIL_STEPS, 0]),
        ("Make the scripts executable.", [0, 0, 0, SET_STEPS]),
        ("Schau jede Datei an.", [0, 0, 0, EACH_STEPS]),
        ("检查所有文件", [0, 0, 0, EACH_STEPS]),
        ("Give me 50 % of it in 20 minutes.", [0, 0, 0, 0]),
        ("Fix issue 4711 in v1.20 of the parser.", [0, 0, 0, 0]),
        ("", [0, 0, 0, 0]),
    ],
)
def test_a_request_allows_what_it_names(request_text: str, left: list[int]):
    allowance = Allowance()
    allowance.add(request_text)
    assert allowance.save()[:4] == left


def test_a_later_request_renews_and_takes_nothing_away():
    allowance = Allowance()
    allowance.add("Do it 20 times.")
    allowance.times = 3
    allowance.add("And once more, please.")
    assert allowance.times == 3
    allowance.add("Do it 9 times more.")
    assert allowance.times == 9


def test_of_a_huge_request_both_ends_are_read():
    allowance = Allowance()
    allowance.add("x" * 200_000 + " do it 7 times")
    assert allowance.times == 7


def test_each_pair_of_calls_may_be_repeated_as_often_as_the_request_says():
    allowance = Allowance()
    allowance.add("Run each of them 3 times.")
    assert [allowance.repeat(1) for _ in range(4)] == [True, True, True, False]
    assert allowance.repeat(2)
    again = Allowance()
    again.load(allowance.save())
    assert not again.repeat(1)
    assert [again.repeat(2) for _ in range(3)] == [True, True, False]
    again.add("And 3 times more.")
    assert again.repeat(1)
