"""The list of tested programs is made of the tests."""

from __future__ import annotations

from scripts import frameworks


def test_the_list_of_tested_programs_is_up_to_date():
    assert frameworks.PAGE.read_text(encoding="utf-8") == frameworks.page(), "run python scripts/frameworks.py"


def test_every_test_that_fills_a_cell_is_there():
    assert {cell for _, cell in frameworks.tested()} >= set(frameworks.CELLS)
    every = {(framework, cell) for framework in frameworks.FRAMEWORKS for cell in frameworks.CELLS}
    assert every - frameworks.tested().keys() == frameworks.NONE.keys(), "tested, or a reason why not; never both"
    for framework, _ in frameworks.OWN:
        assert frameworks.OWN[framework, "looping model"] in frameworks._tests_of(framework)
