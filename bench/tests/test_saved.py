from __future__ import annotations

from bench import saved
from monitor.transcripts.analysis.calibration import StopPlace, Trace

LEVELS = 8


def run(turns: int, *, label: str = "clean", stop: int | None = None) -> saved.Run:
    costs = tuple(10.0 * turn for turn in range(1, turns + 1))
    stops = tuple(None if stop is None else StopPlace(stop, costs[stop - 1]) for _ in range(LEVELS))
    return saved.Run(label, Trace(costs, stops), tuple(range(1, turns + 1)))


def test_evidence_saves_where_length_says_nothing():
    runs = [run(10) for _ in range(60)] + [run(10, label="loop", stop=4) for _ in range(5)]
    rows = {row.name: row for row in saved.measure(runs, splits=3)}
    ours, length = rows["ours: evidence"], rows["length alone"]
    assert (ours.good_stopped, ours.loops_stopped, ours.saved, ours.saved_of_each) == (0, 1, 0.6, 0.6)
    assert (length.good_stopped, length.loops_stopped, length.saved) == (0, 0, 0)


def test_length_saves_where_loops_are_long():
    runs = [run(10) for _ in range(60)] + [run(40, label="loop") for _ in range(5)]
    rows = {row.name: row for row in saved.measure(runs, splits=3)}
    assert rows["length alone"].saved == 0.75
    assert rows["ours: evidence"].saved == 0


def test_a_stop_at_a_call_counts_the_whole_turn_of_the_call():
    one = saved.Run("loop", Trace((10.0, 30.0), ()), (1, 2, 2))
    assert [saved._after_call(one, call) for call in (None, 1, 2, 3, 4)] == [None, 10.0, 30.0, 30.0, None]
