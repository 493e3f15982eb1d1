"""A whole request is read in any form: where its messages, instructions and tools stand."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.wires.fields import declarations_of, instructions_of, messages_of


@pytest.mark.parametrize("field", ["messages", "contents", "input", "history"])
def test_the_messages_stand_in_a_field_of_the_form(field: str):
    assert messages_of({"model": "m", field: [{"role": "user"}]}) == [{"role": "user"}]


@pytest.mark.parametrize("data", [None, [], "text", {"model": "m"}, {"messages": 1}, {"role": "user", "input": "x"}])
def test_what_holds_no_messages_is_no_request(data: object):
    assert messages_of(data) is None


@pytest.mark.parametrize(
    "system",
    [
        "Be brief.\n\nBe kind.",
        [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        {"role": "system", "parts": [{"text": "Be brief."}, {}, {"text": "Be kind."}]},
    ],
)
def test_instructions_are_one_text_whatever_their_parts(system: object):
    assert instructions_of(system) == "Be brief.\n\nBe kind."


@pytest.mark.parametrize("system", [None, 1, {}, [None], {"text": None}])
def test_instructions_that_are_no_text_are_empty(system: object):
    assert instructions_of(system) == ""


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}],
        [{"type": "function", "name": "f"}, {"name": "g", "input_schema": {}}],
        [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}],
        [{"function_declarations": [{"name": "f"}, None]}, "no tool", {"name": "g"}],
    ],
)
def test_a_declaration_is_found_in_whatever_a_form_puts_around_it(tools: list[Any]):
    assert [tool["name"] for tool in declarations_of(tools)] == ["f", "g"]


def test_tools_that_are_no_list_declare_nothing():
    assert [*declarations_of({"name": "f"})] == []
