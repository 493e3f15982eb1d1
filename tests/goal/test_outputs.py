from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from functools import partial
from itertools import permutations
from typing import Annotated, Any, Literal, NotRequired, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from monitor.errors import ConfigError
from monitor.goal.outputs import Emitted, Outputs, Terminate
from monitor.messages import EMIT


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    title: str
    price: float = Field(ge=0)


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Movie(TypedDict):
    title: str
    year: int


class Span(BaseModel):
    """When it happens."""

    start: int
    end: int = Field(description="Not before the start.")
    note: str = "none"

    @model_validator(mode="after")
    def in_order(self) -> Self:
        if self.start > self.end:
            raise ValueError("start must not be after end")
        return self


def emit(outputs: Outputs, name: object, value: object) -> str:
    """The answer to one call, which must be accepted."""
    answer = outputs.call({"name": name, "value": value})
    assert not answer.is_error, answer.text
    return answer.text


def refused(outputs: Outputs, name: object, value: object) -> str:
    """The answer to one call, which must be refused and change nothing."""
    before = outputs.snapshot(), outputs.emitted, outputs.output
    answer = outputs.call({"name": name, "value": value})
    assert answer.is_error, answer.text
    assert outputs.last is None
    assert (outputs.snapshot(), outputs.emitted, outputs.output) == before
    return answer.text


# --- blank texts


class Told(BaseModel):
    summary: str
    described: str = Field(description="In two sentences.", max_length=500)
    remark: str = ""


SAYS_NOTHING = st.text(st.sampled_from(" \t\n\r\u00a0\u2003\u3000\u200b\u2060\ufeff\u00ad"), max_size=12)
TEXTS: dict[str, Any] = {
    "plain": str,
    "described": Annotated[str, Field(description="In two sentences.")],
    "at most": Annotated[str, Field(max_length=50)],
    "at least": Annotated[str, Field(min_length=1)],
}
MAY_BE_BLANK: dict[str, Any] = {
    "said so": Annotated[str, Field(min_length=0)],
    "or none": str | None,
    "pattern": Annotated[str, Field(pattern=r"^\s*$")],
    "choice": Literal["", " ", "x"],
    "any": Any,
    "filled in": Annotated[str, AfterValidator(lambda value: value.strip() or "nothing")],
}


@given(SAYS_NOTHING, st.booleans(), st.sampled_from(sorted(TEXTS)))
def test_a_text_that_says_nothing_is_no_output_and_the_model_is_told_what_is_wanted(
    blank: str, quoted: bool, declared: str
):
    outputs = Outputs({declared: TEXTS[declared]})
    said = refused(outputs, declared, json.dumps(blank) if quoted else blank)
    assert f"Call {EMIT}(name=" in said
    assert outputs.missing == [declared]
    emit(outputs, declared, blank + "It is fine.")
    assert outputs.complete


@pytest.mark.parametrize("field", ["summary", "described"])
@pytest.mark.parametrize("blank", ["", " \n", '""'])
def test_a_required_text_of_a_model_class_must_say_something(field: str, blank: str):
    outputs = Outputs(Told)
    assert "it is blank" in refused(outputs, field, blank)
    emit(outputs, "remark", "")  # has a default, and so may be left out or be blank
    for name in ("summary", "described"):
        emit(outputs, name, "Fine.")
    assert outputs.output == Told(summary="Fine.", described="Fine.", remark="")


@pytest.mark.parametrize("declared", sorted(MAY_BE_BLANK))
def test_a_text_that_may_be_blank_is_taken_as_it_is(declared: str):
    outputs = Outputs({declared: MAY_BE_BLANK[declared]})
    emit(outputs, declared, " " if declared == "choice" else "")
    assert outputs.complete


def test_a_blank_text_leaves_the_one_from_before():
    outputs = Outputs({"summary": str})
    emit(outputs, "summary", "Fine.")
    assert "The value from before stays." in refused(outputs, "summary", " ")
    assert outputs.emitted == {"summary": "Fine."}


# --- collecting


def test_outputs_are_collected_until_none_is_missing():
    outputs = Outputs({"summary": str, "risk": float})
    assert (outputs.missing, outputs.complete, outputs.output) == (["summary", "risk"], False, None)
    assert emit(outputs, "risk", 0.5) == "`risk` is recorded. Still missing: `summary`."
    assert (outputs.emitted, outputs.missing, outputs.output) == ({"risk": 0.5}, ["summary"], None)
    assert emit(outputs, "summary", "fine") == "`summary` is recorded. All required outputs are there."
    assert outputs.complete
    assert list(outputs.output.items()) == [("summary", "fine"), ("risk", 0.5)]


def test_emitting_again_overwrites_and_says_so():
    outputs = Outputs({"risk": float})
    emit(outputs, "risk", 0.5)
    assert outputs.last == Emitted("risk", 0.5, 0.5, overwritten=False)
    assert "in place of the value from before" in emit(outputs, "risk", 0.7)
    assert outputs.last == Emitted("risk", 0.7, 0.7, overwritten=True)
    assert outputs.output == {"risk": 0.7}


def test_a_declaration_serves_many_runs():
    outputs = Outputs({"risk": float})
    emit(outputs, "risk", 1)
    other = outputs.fresh()
    assert (other.missing, other.emitted, other.last, other.spec) == (["risk"], {}, None, outputs.spec)
    assert outputs.complete


class Listed(BaseModel):
    items: list[Any]
    more: int


@pytest.mark.parametrize("declared", [{"items": list[Any], "more": int}, Listed], ids=str)
def test_what_the_caller_changes_later_is_not_changed_here(declared: Any):
    outputs, value = Outputs(declared), [1]
    emit(outputs, "items", value)
    value.append(2)
    assert outputs.emitted == {"items": [1]}
    assert outputs.snapshot()["emitted"] == {"items": [1]}


# --- types


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, "x", "x"),
        (str, "[1]", "[1]"),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (list[Item], [{"title": "a", "price": 1}], [Item(title="a", price=1)]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[str], ["a", "a"], {"a"}),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (int | str, "3", "3"),
        (int | None, None, None),
        (Literal["low", "high"], "low", "low"),
        (Colour, "red", Colour.RED),
        (datetime, "2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - as the model wrote it
        (Annotated[date, Field(strict=True)], "2026-01-02", date(2026, 1, 2)),
        (Movie, {"title": "M", "year": 1931}, {"title": "M", "year": 1931}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node(name="a", children=[Node(name="b")])),
        (Annotated[float, Field(ge=0, le=1)], 1, 1.0),
        (Any, {"x": [None]}, {"x": [None]}),
        (None, None, None),
    ],
    ids=str,
)
def test_a_value_of_its_type_is_accepted_and_has_that_type(annotation: Any, value: object, expected: object):
    outputs = Outputs({"x": annotation})
    emit(outputs, "x", value)
    assert outputs.output == {"x": expected}
    assert type(outputs.output["x"]) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (int, "3", 3),
        (float, "0.5", 0.5),
        (bool, "true", True),
        (bool, "yes", True),  # no JSON, but pydantic reads it
        (list[int], "[1, 2]", [1, 2]),
        (list[int], " [1,\n 2] ", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Item, '{"title": "a", "price": 1}', Item(title="a", price=1)),
        (int | None, "null", None),
        (list[Item] | None, '[{"title": "a", "price": 1}]', [Item(title="a", price=1)]),
        (Literal["none"] | list[int], "[1, 2]", [1, 2]),  # takes text, but not this one
        (Literal["low", "high"], '"low"', "low"),
        (Colour | None, "null", None),
    ],
    ids=str,
)
def test_a_value_written_as_json_in_a_string_is_read(annotation: Any, text: str, expected: object):
    outputs = Outputs({"x": annotation})
    emit(outputs, "x", text)
    assert outputs.output == {"x": expected}


@pytest.mark.parametrize("annotation", [str, Any, int | str, str | None, object])
@pytest.mark.parametrize("text", ["3", "[1]", "null", '{"a": 1}', "true"])
def test_a_type_that_takes_text_keeps_text(annotation: Any, text: str):
    outputs = Outputs({"x": annotation})
    emit(outputs, "x", text)
    assert outputs.output == {"x": text}


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (str, 3, 'Input should be a valid string (got 3). Call emit_value(name="x", value=<string>).'),
        (int, "many", 'unable to parse string as an integer (got "many"). Call emit_value(name="x", value=<integer>).'),
        (int, 3.5, "fractional part (got 3.5)"),
        (int, None, "(got null)"),
        (Literal["low", "high"], "medium", 'value=<"low" or "high">'),
        (Colour, "green", "Input should be 'red' or 'blue'"),
        (Annotated[float, Field(ge=0, le=1)], 7, "value=<number (>= 0, <= 1)>"),
        (list[Item], [{"title": "a", "price": -1}, {"price": 1}], "or equal to 0 (got -1); 1.title: Field required."),
        (list[Item], '[{"title": "a"}]', "0.price: Field required."),
        (list[int], "[1, 2", "Input should be a valid array"),
        (list[int], ["a"] * 9, "and 4 more."),
        (dict[str, int], [1], "Input should be an object"),
        (datetime, "soon", "value=<string (date-time)>"),
        (Annotated[int, AfterValidator(lambda number: 1 // number)], 0, "ZeroDivisionError"),
        (str, "x" * 10_000_000, None),
        (list[int], "x" * 10_000_000, "Input should be a valid array"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_is_wrong_and_what_is_allowed(
    annotation: Any, value: object, told: str | None
):
    outputs = Outputs({"x": annotation})
    if told is None:
        emit(outputs, "x", value)
        return
    text = refused(outputs, "x", value)
    assert text.startswith("Error: `x` is not accepted: ")
    assert told in text
    assert len(text) < 1500


def test_a_refused_value_leaves_the_one_from_before():
    outputs = Outputs({"risk": float})
    emit(outputs, "risk", 0.5)
    assert "The value from before stays." in refused(outputs, "risk", "high")


# --- calls as models make them


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "risk", "value": 0.5, "comment": "quite sure"},
        '{"name": "risk", "value": 0.5}',
        {"value": "0.5", "name": "risk"},
    ],
)
def test_a_call_is_understood_with_more_or_stranger_arguments(arguments: object):
    outputs = Outputs({"risk": float})
    assert not outputs.call(arguments).is_error
    assert outputs.output == {"risk": 0.5}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, "`name` is missing."),
        ({}, "`name` is missing."),
        ({"risk": 0.5}, "`name` is missing."),
        ("{", "The arguments are not valid JSON"),
        ([1], "The arguments must be a JSON object, not [1]."),
        ({"name": None, "value": 1}, "No output is called null."),
        ({"name": ["risk"], "value": 1}, 'No output is called ["risk"].'),
        ({"name": "weather", "value": 1}, 'No output is called "weather".'),
    ],
)
def test_a_wrong_call_is_told_all_that_is_allowed(arguments: object, told: str):
    answer = Outputs({"risk": float, "summary": str}).call(arguments)
    assert answer.is_error
    assert told in answer.text
    assert (
        "Declared outputs: `risk` (number), `summary` (string). Call emit_value with one of these as `name`, and its"
        " `value`." in answer.text
    )


@pytest.mark.parametrize("name", ["Risk", " risk", "risk ", "RISK", "rsik", "`risk`"])
def test_a_name_is_taken_exactly_and_the_close_one_suggested(name: str):
    text = refused(Outputs({"risk": float, "summary": str}), name, 0.5)
    assert (
        'Did you mean `risk`? Declared outputs: `risk`, `summary`. Call emit_value(name="risk", value=<number>).'
        in text
    )


def test_a_missing_value_is_no_null():
    answer = Outputs({"x": int | None}).call({"name": "x"})
    assert answer.is_error
    assert answer.text == 'Error: `value` is missing. Call emit_value(name="x", value=<integer or null>).'


def test_half_a_surrogate_pair_is_repaired_and_a_whole_one_joined():
    outputs = Outputs({"x": str, "y": str})
    emit(outputs, "x", "a\ud800b")
    emit(outputs, "y", "\ud83d\ude00\x00")
    assert outputs.output == {"x": "a\ufffdb", "y": "\U0001f600\x00"}
    json.dumps(outputs.snapshot()).encode()


DEEP = json.loads("[" * 900 + "]" * 900)


@pytest.mark.parametrize("declared", [{"x": Any}, {"x": list[Any]}, {"x": str}, Node, Span], ids=str)
@pytest.mark.parametrize(
    "value",
    [DEEP, {1, 2}, object(), "[" * 100_000, 10**5000, {1: object()}],
    ids=["deep", "set", "object", "brackets", "long", "keys"],
)
def test_what_is_no_json_ends_in_an_answer(declared: Any, value: object):
    outputs = Outputs(declared)
    name, *_ = outputs.names
    answer = outputs.call({"name": name, "value": value})
    assert answer.is_error == (name not in outputs.emitted)
    assert answer.is_error or isinstance(value, str)
    assert len(answer.text) < 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    json_values | st.fixed_dictionaries({"name": st.sampled_from(["n", "s", "i"]) | json_values, "value": json_values})
)
def test_no_call_raises_and_whatever_is_accepted_fits_its_type(arguments: Any):
    outputs = Outputs({"n": float, "s": str, "i": list[int]})
    outputs.call(arguments)
    kinds = {"n": float, "s": str, "i": list}
    assert all(type(value) is kinds[name] for name, value in outputs.emitted.items())


# --- a pydantic model


def test_a_model_is_complete_with_its_required_fields_and_is_its_instance():
    outputs = Outputs(Span)
    assert outputs.names == ["start", "end", "note"]
    assert outputs.missing == ["start", "end"]
    emit(outputs, "end", "3")
    assert not outputs.complete
    emit(outputs, "start", 1)
    assert outputs.output == Span(start=1, end=3)
    emit(outputs, "note", "late")
    assert outputs.output == Span(start=1, end=3, note="late")


def test_values_that_do_not_fit_together_are_refused_when_the_last_one_comes():
    outputs = Outputs(Span)
    emit(outputs, "start", 5)
    text = refused(outputs, "end", 3)
    assert text.startswith(
        "Error: `end` is not accepted: the outputs do not fit together: start must not be after end. Call emit_value("
    )
    assert outputs.missing == ["end"]
    emit(outputs, "start", 2)  # the fault may be in either
    emit(outputs, "end", 3)
    assert outputs.output == Span(start=2, end=3)


def test_a_model_that_is_complete_stays_complete():
    outputs = Outputs(Span)
    emit(outputs, "start", 1)
    emit(outputs, "end", 3)
    refused(outputs, "start", 9)
    assert outputs.output == Span(start=1, end=3)


class Checked(BaseModel):
    low: int
    high: int

    @field_validator("low", mode="before")
    @classmethod
    def words(cls, value: object) -> object:
        return 0 if value == "none" else value

    @field_validator("high")
    @classmethod
    def above(cls, value: int, info: ValidationInfo) -> int:
        if value <= info.data["low"]:  # a KeyError while `low` is not there
            raise ValueError("high must be above low")
        return value


def test_validators_of_fields_work_as_soon_as_they_can():
    outputs = Outputs(Checked)
    emit(outputs, "low", "none")
    assert "`high` is not accepted: high must be above low (got 0)" in refused(outputs, "high", 0)
    emit(outputs, "high", 1)
    assert outputs.output == Checked(low=0, high=1)
    assert outputs.emitted == {"low": 0, "high": 1}


def test_a_validator_that_needs_what_is_missing_has_its_say_later():
    outputs = Outputs(Checked)
    emit(outputs, "high", 0)
    text = refused(outputs, "low", 3)
    assert "high: high must be above low (got 0)" in text
    assert 'Call emit_value(name="low", value=<integer>) or emit_value(name="high", value=<integer>).' in text


class Explained(Checked):
    why: str


def test_what_contradicts_an_earlier_output_is_refused_before_all_are_there():
    outputs = Outputs(Explained)
    emit(outputs, "high", 0)
    assert "high: high must be above low (got 0)" in refused(outputs, "low", 3)
    assert outputs.missing == ["low", "why"]


class Aliased(BaseModel):
    day: int = Field(alias="theDay")


@pytest.mark.parametrize("key", ["day", "theDay"])
def test_nested_fields_are_taken_by_name_and_by_alias(key: str):
    outputs = Outputs({"x": Aliased})
    emit(outputs, "x", {key: 3})
    assert outputs.output["x"].day == 3


class Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, str_strip_whitespace=True)

    day: date = Field(alias="theDay", frozen=True)
    colour: Colour = Field(validation_alias="color")
    text: str
    times: int = 3


def test_aliases_configuration_and_strict_types_are_those_of_the_model():
    outputs = Outputs(Described)
    assert outputs.names == ["day", "colour", "text", "times"]
    refused(outputs, "times", "three")
    emit(outputs, "day", "2026-01-02")
    emit(outputs, "colour", "red")
    emit(outputs, "text", " x ")
    emit(outputs, "times", 4)
    assert outputs.output == Described.model_validate(
        {"theDay": date(2026, 1, 2), "color": Colour.RED, "text": "x", "times": 4}
    )
    assert outputs.emitted == {"day": date(2026, 1, 2), "colour": Colour.RED, "text": "x", "times": 4}


def test_a_model_of_itself_can_be_declared():
    outputs = Outputs(Node)
    emit(outputs, "children", [{"name": "b", "children": [{"name": "c"}]}])
    assert "children.0.name" in json.dumps(refused(outputs, "children", [{}])) or "0.name: Field required" in refused(
        outputs, "children", [{}]
    )
    emit(outputs, "name", "a")
    assert outputs.output.children[0].children[0].name == "c"


# --- what cannot be declared


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({}, "empty"),
        (None, "dict of types"),
        (["summary"], "dict of types"),
        ("summary", "dict of types"),
        (str, "not the class str"),
        (list[int], "dict of types"),
        (Movie, "not the class Movie"),
        (Span(start=1, end=2), "dict of types"),
        ({1: str}, "not 1"),
        ({"": str}, "not ''"),
        ({" x": str}, "not ' x'"),
        ({"x": "A summary of it."}, "Annotated"),
        ({"x": "float"}, "give a type"),
        ({"x": 3}, r"outputs\['x'\]"),
        ({"x": object()}, "not a type"),
        ({"x": [int]}, "not a type"),
        ({"x": lambda value: value}, "function"),
        ({"x": print}, "function"),
        ({"x": Callable[[], int]}, "described"),
        ({"x": partial}, r"outputs\['x'\]"),
        ({"x": NotRequired[int]}, r"outputs\['x'\]"),
        ({"x": type("Plain", (), {})}, "not a type"),
        (RootModel[list[int]], "RootModel"),
        (type("Empty", (BaseModel,), {}), "no field without a default"),
    ],
    ids=lambda given: str(given).partition(" at 0x")[0],
)
def test_what_cannot_be_an_output_is_refused_at_construction(declared: Any, told: str):
    with pytest.raises(ConfigError, match=told):
        Outputs(declared)


def test_a_model_without_a_required_field_holds_nobody_to_anything():
    class Loose(BaseModel):
        note: str = ""

    with pytest.raises(ConfigError, match="Loose has no field without a default"):
        Outputs(Loose)


def test_a_model_that_has_no_schema_is_refused():
    class Odd(BaseModel):
        call: Callable[[], int]

    with pytest.raises(ConfigError, match="Odd cannot be described"):
        Outputs(Odd)


# --- the tool


def test_the_tool_lists_the_names_and_says_what_each_output_is():
    spec = Outputs({"summary": Annotated[str, Field(description="What happened.")], "risk": float, "why": str}).spec
    assert spec.name == EMIT == "emit_value"
    assert "- `summary` (string): What happened.\n- `risk` (number)\n- `why` (string)" in spec.description
    assert spec.parameters["properties"]["name"]["enum"] == ["summary", "risk", "why"]
    assert spec.parameters["properties"]["value"]["anyOf"] == [
        {"type": "string", "description": "For `summary`, `why`."},
        {"type": "number", "description": "For `risk`."},
    ]
    assert spec.parameters["required"] == ["name", "value"]


def test_one_type_needs_no_choice():
    assert Outputs({"a": float, "b": float}).spec.parameters["properties"]["value"] == {
        "type": "number",
        "description": "Its value.",
    }


def test_a_model_is_declared_with_its_words_and_its_optional_fields():
    description = Outputs(Span).spec.description
    assert "When it happens.\n" in description
    assert "- `end` (integer): Not before the start.\n- `note` (string; optional)" in description


@pytest.mark.parametrize("declared", [{"x": list[Node], "y": Node | None}, Node, Span], ids=str)
def test_the_declaration_points_nowhere(declared: Any):
    outputs = Outputs(declared)
    assert "$ref" not in json.dumps(outputs.spec.parameters)
    assert outputs.declare("anthropic") == [
        {"name": EMIT, "description": outputs.spec.description, "input_schema": outputs.spec.parameters}
    ]


# --- nudges


def test_a_nudge_names_each_missing_output_its_type_and_the_tool():
    outputs = Outputs({"summary": str, "risk": float, "items": list[Item]})
    emit(outputs, "summary", "fine")
    assert (
        outputs.nudge_text() == "You stopped, but these outputs are missing:\n"
        "- `risk`: number\n"
        "- `items`: array of object {title: string, price: number (>= 0)}\n"
        "Call the tool emit_value once for each of them, with `name` and `value`."
    )


def test_nobody_is_nudged_for_nothing():
    outputs = Outputs({"risk": float})
    emit(outputs, "risk", 1)
    assert outputs.nudge_text() == ""


# --- laws

VALUES: dict[str, Any] = {"summary": "fine", "risk": 0.5, "tags": ["a"], "item": {"title": "a", "price": 1}}
DECLARED: dict[str, Any] = {"summary": str, "risk": float, "tags": list[str], "item": Item}


@pytest.mark.parametrize("order", list(permutations(VALUES)), ids="-".join)
def test_the_order_of_emitting_does_not_matter(order: tuple[str, ...]):
    outputs = Outputs(DECLARED)
    for count, name in enumerate(order, 1):
        emit(outputs, name, VALUES[name])
        assert outputs.complete == (count == len(order))
    assert list(outputs.output.items()) == [
        ("summary", "fine"),
        ("risk", 0.5),
        ("tags", ["a"]),
        ("item", Item(title="a", price=1)),
    ]


@given(st.lists(st.tuples(st.sampled_from(["start", "end", "note"]), st.integers(-3, 3) | st.text())))
def test_the_last_accepted_value_of_each_name_counts(calls: list[tuple[str, Any]]):
    outputs, accepted = Outputs({"start": int, "end": int, "note": str}), dict[str, Any]()
    for name, value in calls:
        if not outputs.call({"name": name, "value": value}).is_error:
            assert outputs.last is not None
            assert outputs.last.overwritten == (name in accepted)
            accepted[name] = outputs.last.value
    assert outputs.emitted == accepted
    assert outputs.missing == [name for name in outputs.names if name not in accepted]


@pytest.mark.parametrize(
    "declared", [Span, Checked, Explained, {"start": int, "end": float, "low": str, "high": list[int]}], ids=str
)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["start", "end", "note", "low", "high", "why"]), st.integers(-3, 3) | st.just("none"))
    )
)
def test_a_snapshot_restores_the_outputs_through_json(declared: Any, calls: list[tuple[str, Any]]):
    outputs = Outputs(declared)
    for name, value in calls:
        outputs.call({"name": name, "value": value})
    other = outputs.fresh()
    other.restore(json.loads(json.dumps(outputs.snapshot())))
    assert (other.emitted, other.missing, other.output) == (outputs.emitted, outputs.missing, outputs.output)
    assert other.snapshot() == outputs.snapshot()
    assert other.last is None


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 1},
        {"version": 2, "emitted": {}},
        {"version": 1, "emitted": {"risk": "high"}},
        {"version": 1, "emitted": {"x": 1}},
    ],
)
def test_wrong_data_is_not_restored(state: dict[str, Any]):
    outputs = Outputs({"risk": float})
    emit(outputs, "risk", 1)
    with pytest.raises(ValueError, match="outputs"):
        outputs.restore(state)
    assert outputs.emitted == {"risk": 1.0}


# --- terminate


def test_success_is_held_to_the_outputs():
    outputs = Outputs({"summary": str, "risk": float})
    terminate = Terminate(outputs)
    emit(outputs, "risk", 1)
    answer = terminate.call({"status": "success", "reason": "done"})
    assert answer.is_error
    assert "outputs are missing: `summary`." in answer.text
    assert terminate.status is None
    emit(outputs, "summary", "fine")
    assert terminate.call({"status": "success", "reason": "done"}).text == "The run ends with success."
    assert terminate.reason == "done"


def test_failure_is_always_allowed():
    terminate = Terminate(Outputs({"summary": str}))
    assert terminate.call({"status": "failure", "reason": "no access"}).text == "The run ends with failure."
    assert (terminate.status, terminate.reason) == ("failure", "no access")


@pytest.mark.parametrize(
    "arguments", [{"status": " Success "}, '{"status": "success", "reason": null}', {"status": "success", "why": 1}]
)
def test_a_success_is_understood_without_many_words(arguments: object):
    terminate = Terminate()
    assert not terminate.call(arguments).is_error
    assert (terminate.status, terminate.reason) == ("success", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, '`status` must be "success" or "failure", not null.'),
        ({"status": "done", "reason": "x"}, 'not "done".'),
        ({"status": ["success"]}, 'not ["success"].'),
        ("{", "not valid JSON"),
        ({"status": "failure"}, "a failure needs a `reason`"),
        ({"status": "failure", "reason": "  "}, "a failure needs a `reason`"),
    ],
)
def test_a_wrong_terminate_ends_nothing(arguments: object, told: str):
    terminate = Terminate()
    answer = terminate.call(arguments)
    assert answer.is_error
    assert told in answer.text
    assert 'Call terminate(status="success" or "failure", reason="...").' in answer.text
    assert terminate.status is None


def test_the_first_terminate_counts():
    terminate = Terminate()
    terminate.call({"status": "failure", "reason": "first"})
    assert not terminate.call({"status": "success", "reason": "second"}).is_error
    assert (terminate.status, terminate.reason) == ("failure", "first")


def test_the_tool_says_that_success_needs_the_outputs_only_where_there_are_any():
    assert "emit_value" in Terminate(Outputs({"x": str})).spec.description
    assert "emit_value" not in Terminate().spec.description
