"""What all detectors of calls share: the canonical form of a call, made once for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitor._util.hashing import canonical_json
from monitor.chunks import ToolCall
from monitor.detectors.calls.front import text_of_call
from monitor.detectors.calls.tool_repetition import ToolCallRepetition
from monitor.verdicts import Detection

SCALARS = st.one_of(
    st.sampled_from([1, 1.0, True, 0, -0.0, False, None, "1", "é", "e\u0301"]), st.floats(), st.text(max_size=3)
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)


VALUES = st.recursive(SCALARS, _nested, max_leaves=4)
ARGUMENTS = st.one_of(
    VALUES, st.dictionaries(st.one_of(st.sampled_from("ab"), st.sampled_from([1, True, None])), VALUES, max_size=3)
)


@given(st.lists(ARGUMENTS, max_size=6))
def test_the_form_that_is_kept_is_always_that_of_the_arguments_given(given_: list[Any]) -> None:
    """Whatever was seen before: equal for Python is not equal in JSON."""
    for arguments in [*given_, *given_[::-1]]:
        assert _form(arguments) == canonical_json(arguments)


def _form(arguments: Any) -> str:
    return text_of_call(ToolCall("", "read", arguments)).removeprefix("read(").removesuffix(")")


def test_arguments_that_change_in_place_are_read_again():
    for arguments, change in (
        ({"q": 1}, lambda a: a.update(q=True)),
        ({"q": "rain"}, lambda a: a.update(q="sun")),
        ({"q": ["rain"]}, lambda a: a["q"].append("sun")),
    ):
        before = _form(arguments)
        change(arguments)
        assert _form(arguments) == canonical_json(arguments) != before


def test_a_call_object_that_is_used_again_with_other_arguments_is_another_call():
    detector = ToolCallRepetition(suspect_at=None, loop_at=2)
    arguments: dict[str, Any] = {"page": 0}
    found: list[Detection] = []
    for page in range(4):
        arguments["page"] = page
        found += detector.observe(ToolCall(f"c{page}", "read", arguments))
    assert found == []
    assert detector.observe(ToolCall("c4", "read", arguments))
