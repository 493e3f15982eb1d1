from __future__ import annotations

import pytest

from monitor.detectors.calls.novelty.call_difference import Difference, counts_on, difference_of, goes_on
from monitor.detectors.calls.novelty.step_reading import StepCall, leaves_of


def reading(arguments: object) -> StepCall:
    return StepCall("tool", leaves_of(arguments))


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ({"path": "a/x.py"}, {"path": "b/x.py"}, Difference.NEXT),
        ({"path": "a.py"}, {"path": "./a.py"}, Difference.SPELLED),
        ({"q": "is the port open now"}, {"q": "tell me whether it is open"}, Difference.REWORDED),
        ({"c": "du -h /w | sort -h | tail -n 3"}, {"c": "du -h /w | sort -h | tail -n 3 | column"}, Difference.NEAR),
        ({"c": "make all of it"}, {"path": "a.py"}, Difference.OTHER),
    ],
)
def test_what_differs_says_what_the_call_tries(before: object, now: object, kind: Difference):
    assert difference_of(reading(now), [reading(before).words]).kind is kind


def test_a_row_is_known_by_its_numbers():
    def between(before: object, now: object) -> tuple[bool, bool]:
        one = difference_of(reading(now), [reading(before).words])
        return goes_on(one), counts_on(one)

    assert between({"page": 3}, {"page": 4}) == (True, True)
    assert between({"file": "img001"}, {"file": "img002"}) == (True, False)
    assert between({"host": "amber"}, {"host": "birch"}) == (False, False)
