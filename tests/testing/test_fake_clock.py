"""A clock that goes only when it is told to."""

from __future__ import annotations

from monitor.testing import FakeClock


def test_it_says_when_the_next_alarm_is_due() -> None:
    clock, rung = FakeClock(), list[str]()
    late, early = clock.call_at(5, lambda: rung.append("late")), clock.call_at(2, lambda: rung.append("early"))
    due = [clock.next_due]
    early.cancel()
    due.append(clock.next_due)
    clock.advance(5)
    due.append(clock.next_due)
    assert due == [2, 5, None]
    assert rung == ["late"]
    late.cancel()
    assert clock.pending == 0
