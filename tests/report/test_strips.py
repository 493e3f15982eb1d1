from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.report.story import CELLS, WEIGHTS, Strip, Sums

KINDS = st.sampled_from(sorted(WEIGHTS))


@given(st.lists(KINDS, max_size=5_000))
def test_a_strip_stays_bounded_and_each_cell_shows_its_most_telling_event(kinds: list[str]):
    strip = Strip()
    for kind in kinds:
        strip.add(kind)
    assert strip.events == len(kinds)
    assert len(strip.cells) < 2 * CELLS
    for cell, shown in enumerate(strip.cells):
        inside = kinds[cell * strip.width : (cell + 1) * strip.width]
        assert WEIGHTS[shown] == max(map(WEIGHTS.__getitem__, inside))


@given(st.integers(1, 200_000))
def test_an_event_is_found_in_the_cell_that_shows_it(length: int):
    strip = Strip()
    place = length // 3
    for number in range(length % 10_000 + 1):
        strip.add("L" if number == place % (length % 10_000 + 1) else "t")
    assert strip.cells[strip.cell_of(place % (length % 10_000 + 1))] == "L"


@given(st.lists(st.integers(0, 10**6), max_size=2_000))
def test_no_token_is_lost_when_cells_are_joined(numbers: list[int]):
    sums = Sums()
    for number in numbers:
        sums.add(number)
    assert sum(sums.cells) == sum(numbers)
    assert len(sums.cells) < 2 * sums.most
