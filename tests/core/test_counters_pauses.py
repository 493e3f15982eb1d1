"""Time that does not count."""

from __future__ import annotations

from monitor.core.counters import Pauses


def test_time_stands_still_from_the_first_pause_to_the_end_of_the_last():
    pauses = Pauses()
    assert pauses.begin(10.0)
    assert not pauses.begin(12.0)
    assert (pauses.running, pauses.total_s(13.0)) == (True, 3.0)
    assert pauses.end(14.0) is None
    assert pauses.end(15.0) == 5.0
    assert (pauses.running, pauses.total_s(99.0)) == (False, 5.0)


def test_pauses_add_up():
    pauses = Pauses()
    for begin in (0.0, 10.0):
        pauses.begin(begin)
        pauses.end(begin + 2.0)
    assert pauses.total_s(99.0) == 4.0
