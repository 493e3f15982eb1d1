"""The script that tries the lower bounds knows the extras and their tests."""

from __future__ import annotations

import json

import pytest

from scripts import floors


def test_a_requirement_at_its_lower_bound():
    assert floors.floor("smolagents[openai]>=1.26") == "smolagents[openai]==1.26"
    with pytest.raises(ValueError, match="no lower bound"):
        floors.floor("openai")


@pytest.mark.parametrize("extra", floors.TESTS)
def test_an_extra_has_lower_bounds_and_tests_that_are_there(extra: str):
    assert all(">=" in one or "==" in one or one in floors.TOOLS for one in floors.wanted(extra))
    paths = [one for one in floors.TESTS[extra] if one.startswith("tests/")]
    assert paths
    assert all((floors.ROOT / path).exists() for path in paths)


def test_it_says_which_versions_were_tried():
    listed = [
        {"name": "openai", "version": "2.54.0"},
        {"name": "crewai", "version": "1.15.28"},
        {"name": "pip", "version": "1"},
    ]
    assert floors.versions("crewai", json.dumps(listed)) == "crewai 1.15.28, openai 2.54.0"
