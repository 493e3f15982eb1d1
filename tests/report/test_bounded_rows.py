from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.report.run_details import CELLS, WEIGHTS, time_line, token_line

KINDS = st.sampled_from(sorted(WEIGHTS))


@given(st.lists(KINDS, max_size=5_000))
def test_a_time_line_stays_bounded_and_each_cell_shows_its_most_telling_event(kinds: list[str]):
    row = time_line()
    for kind in kinds:
        row.add(kind)
    assert row.count == len(kinds)
    assert len(row.cells) < 2 * CELLS
    for cell, shown in enumerate(row.cells):
        inside = kinds[cell * row.width : (cell + 1) * row.width]
        assert WEIGHTS[shown] == max(map(WEIGHTS.__getitem__, inside))


@given(st.integers(1, 200_000))
def test_an_event_is_found_in_the_cell_that_shows_it(length: int):
    row = time_line()
    place = length // 3
    for number in range(length % 10_000 + 1):
        row.add("L" if number == place % (length % 10_000 + 1) else "t")
    assert row.cells[row.cell_of(place % (length % 10_000 + 1))] == "L"


@given(st.lists(st.integers(0, 10**6), max_size=2_000))
def test_no_token_is_lost_when_cells_are_joined(numbers: list[int]):
    row = token_line()
    for number in numbers:
        row.add(number)
    assert sum(row.cells) == sum(numbers)
    assert len(row.cells) < 2 * row.most
