from __future__ import annotations

import time
from typing import Annotated

import pytest
from pydantic import Field

import monitor
from monitor.tools.functions import read_docstring

NAMES = ("city", "days", "unit")
ABOUT = {"city": "Where. Near the sea.", "days": "How many days: at most 7.", "unit": "C or F."}

GOOGLE = """The weather.

Args:
    city (str): Where.
        Near the sea.
    days: How many days: at most 7.

    unit (dict[str, int], optional): C or F.

Returns:
    A text.
"""
NUMPY = """The weather.

Parameters
----------
city : str
    Where.
    Near the sea.
days : int, optional
    How many days: at most 7.

unit
    C or F.

Returns
-------
str
    A text.
"""
SPHINX = """The weather.

:param str city: Where.
    Near the sea.
:type city: str
:param days: How many days: at most 7.
:param unit: C or F.
:returns: A text.
"""


@pytest.mark.parametrize("style", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_what_a_docstring_says_about_a_parameter_stands_with_the_parameter(style: str):
    found = read_docstring(style, NAMES)
    assert found.parameters == ABOUT
    assert found.text.startswith("The weather.")
    assert "A text." in found.text
    assert "Where." not in found.text
    assert "Args" not in found.text
    assert "Parameters" not in found.text


def test_several_parameters_of_one_entry_share_their_description():
    text = "Add.\n\nParameters\n----------\nx, y : int\n    A number.\n"
    assert read_docstring(text, ["x", "y"]).parameters == {"x": "A number.", "y": "A number."}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Args:",
        "Parameters\n---",
        "Look:\n    city: the one",
        "args: one line",
        ": :: :param: :type",
        "Args:\n    town: no parameter",
        "1. city: a list\n2. days: of steps",
    ],
)
def test_what_describes_no_parameter_stays_as_it_is(text: str):
    found = read_docstring(text, NAMES)
    assert (found.text, found.parameters) == (text, {})


def test_an_entry_that_is_no_parameter_keeps_its_heading():
    found = read_docstring("Do.\n\nArgs:\n    city: Where.\n    town: What?", NAMES)
    assert found.parameters == {"city": "Where."}
    assert found.text == "Do.\n\nArgs:\n    town: What?"


def test_a_tool_has_the_descriptions_in_its_schema_and_an_own_one_wins():
    @monitor.tool
    def weather(
        city: str, days: Annotated[int, Field(description="Mine.")] = 1, *, context: monitor.ToolContext
    ) -> str:
        """The weather.

        Args:
            context: Who asks.
            city: Where.
            days: How many days.

        """
        return f"{city} {days} {context}"

    assert weather.spec.description == "The weather."
    properties = weather.spec.parameters["properties"]
    assert {name: one["description"] for name, one in properties.items()} == {"city": "Where.", "days": "Mine."}


def test_a_long_docstring_is_read_in_linear_time():
    def seconds(count: int) -> float:
        text = "Args:\n" + "    city: x\n" * count + "Args:\n" * count + ":param " * count
        begun = time.process_time()
        read_docstring(text, NAMES)
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(40_000) < 40 * max(seconds(4_000), 0.002)
