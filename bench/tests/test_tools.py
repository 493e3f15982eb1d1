"""The bench of the tool runtime runs, and its soak finds nothing wrong."""

import anyio

from bench import tools


def test_the_soak_loses_nothing():
    soaked = anyio.run(tools.soak, 300)
    assert soaked.calls == soaked.results == 300
    assert sum(soaked.states.values()) == 300
    assert (soaked.out_of_order, soaked.without_one_end, soaked.open_records) == (0, 0, 0)
    assert (soaked.threads_left, soaked.processes_left, soaked.sockets_left) == (0, 0, 0)


def test_the_cost_has_a_number_for_each_row():
    rows = anyio.run(tools.cost, 1, 3)
    assert [row.beside_task_group > 0 for row in rows] == [True] * 3
