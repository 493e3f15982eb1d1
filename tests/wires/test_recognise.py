"""A record shows its form: strictly, by all of its fields, or loosely, by its main signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.wires.chat import is_message
from monitor.wires.gemini import is_content
from monitor.wires.read import NEUTRAL, form_of, forms_of, not_understood
from monitor.wires.responses import CALL_OF, is_item, is_own_item, problems

RECORDS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
    ],
    "anthropic": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "web_search_tool_result", "tool_use_id": "c"}]},
    ],
    "openai-responses": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "reasoning", "encrypted_content": "x"},
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
        {"role": "model", "parts": [{"function_call": {"name": "f"}, "thought_signature": "x"}]},
        {"parts": [{"text": "hi"}]},
    ],
    NEUTRAL: [{"type": "user_message", "content": []}],
}


@pytest.mark.parametrize("form", RECORDS)
def test_a_record_with_signs_of_one_form_is_of_that_form_alone(form: str):
    for record in RECORDS[form]:
        assert forms_of(record) == {form}
    assert form_of({}, RECORDS[form]) == form


def test_a_text_of_the_user_fits_several_forms_and_the_request_says_which():
    records = [{"role": "user", "content": "hi"}]
    assert forms_of(records[0]) == {"openai-chat", "anthropic", "openai-responses"}
    assert form_of({}, records) == "openai-chat"
    assert form_of({"system": "Be brief."}, records) == "anthropic"
    assert form_of({"input": records}, records) == "openai-responses"


def test_records_of_two_forms_are_counted_in_the_error():
    mixed = [RECORDS["gemini"][0], RECORDS["openai-responses"][0]]
    with pytest.raises(ConfigError, match="1 may be gemini, 1 may be openai-responses"):
        form_of({}, mixed)
    assert not_understood("gemini", mixed) == 1


@pytest.mark.parametrize(
    ("fits", "record"),
    [
        (is_message, {"role": "assistant", "content": "hi", "timestamp": 1}),
        (is_message, {"role": "user", "content": [{"type": "tool_result"}]}),
        (is_item, {"type": "shell_call", "status": "done"}),
        (is_item, {"role": "user", "content": [{"type": "text"}], "created": 1}),
        (is_content, {"role": "model", "parts": [], "createTime": 1}),
    ],
)
def test_a_record_with_fields_of_another_program_fits_loosely_only(
    fits: Callable[..., bool], record: Mapping[str, Any]
):
    assert not fits(record)
    assert fits(record, strict=False)


@pytest.mark.parametrize("record", [{}, {"role": "robot", "content": "hi"}, {"role": ["user"], "content": "hi"}])
def test_a_record_without_a_known_role_fits_no_form_even_loosely(record: dict[str, Any]):
    assert forms_of(record) == frozenset()
    assert not is_message(record, strict=False)
    assert not is_item(record, strict=False)
    assert not is_content(record, strict=False)


@pytest.mark.parametrize(("output", "call"), CALL_OF.items())
def test_the_check_and_the_recogniser_know_the_same_outputs(output: str, call: str):
    assert is_own_item({"type": output})
    assert is_item({"type": output, "call_id": "c", "output": "done"})
    made = {"type": call, "call_id": "c", "name": "f", "arguments": "{}", "input": ""}
    answered = [made, {"type": output, "id": "o", "call_id": "c", "output": "done"}]
    assert [problem for problem in problems(answered) if problem.rule == "pairing"] == []
    assert [problem.rule for problem in problems(answered[1:])] == ["pairing"]
