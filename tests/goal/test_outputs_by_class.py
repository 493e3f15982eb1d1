"""Outputs that are declared by a dataclass or by a TypedDict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict, Union

import pydantic
import pytest

import monitor
from monitor.goal import Outputs


@dataclass
class Finding:
    """What was found."""

    summary: str
    risk: Annotated[float, pydantic.Field(ge=0, le=1)]
    tags: list[str] = field(default_factory=list)
    level: Literal["low", "high"] = "low"
    shown: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.risk > 0.5 and self.level == "low":
            raise ValueError("a high risk has the level high")


class Base(TypedDict):
    summary: str
    source: NotRequired[str]


class Report(Base, total=False):
    """What is reported."""

    risk: Required[Annotated[float, pydantic.Field(ge=0, le=1)]]
    tags: list[str]


def emit(outputs: Outputs, **values: Any) -> list[str]:
    """The answers to the calls."""
    return [outputs.call({"name": name, "value": value}).text for name, value in values.items()]


@pytest.mark.parametrize("declared", [Finding, Report])
def test_the_fields_are_the_outputs_and_those_with_a_default_are_optional(declared: type):
    outputs = Outputs(declared)
    assert [name for name in outputs.names if name != "source"] == [
        name for name in ("summary", "risk", "tags", "level") if name in outputs.names
    ]
    assert outputs.missing == ["summary", "risk"]
    assert "`tags` (array of string; optional)" in outputs.spec.description
    assert (declared.__doc__ or "") in outputs.spec.description
    assert "shown" not in outputs.names


def test_the_result_is_an_instance_of_the_dataclass():
    outputs = Outputs(Finding)
    emit(outputs, summary="Fine.", risk="0.25")
    assert outputs.output == Finding("Fine.", 0.25)
    emit(outputs, tags=["x"])
    assert outputs.output == Finding("Fine.", 0.25, ["x"])
    assert outputs.emitted == {"summary": "Fine.", "risk": 0.25, "tags": ["x"]}


def test_the_result_of_a_typed_dict_has_the_keys_that_were_emitted():
    outputs = Outputs(Report)
    emit(outputs, summary="Fine.", risk=0.25)
    assert outputs.output == {"summary": "Fine.", "risk": 0.25}
    emit(outputs, source="a book")
    assert outputs.output == {"summary": "Fine.", "source": "a book", "risk": 0.25}


@pytest.mark.parametrize("declared", [Finding, Report])
def test_a_value_that_does_not_fit_is_refused_and_nothing_changes(declared: type):
    outputs = Outputs(declared)
    (answer,) = emit(outputs, risk=7)
    assert "`risk` is not accepted: Input should be less than or equal to 1 (got 7)" in answer
    (blank,) = emit(outputs, summary="  ")
    assert "it is blank" in blank
    assert outputs.emitted == {}


def test_a_check_of_the_whole_dataclass_is_made_when_all_are_there():
    outputs = Outputs(Finding)
    answers = emit(outputs, risk=0.9, summary="Bad.")
    assert "is recorded" in answers[0]
    assert "do not fit together: a high risk has the level high" in answers[1]
    emit(outputs, level="high", summary="Bad.")
    assert outputs.output == Finding("Bad.", 0.9, level="high")


def test_what_was_emitted_comes_back_from_a_snapshot():
    for declared in (Finding, Report):
        outputs, again = Outputs(declared), Outputs(declared)
        emit(outputs, summary="Fine.", risk=0.25)
        again.restore(outputs.snapshot())
        assert again.output == outputs.output


@dataclass
class Optional:
    """Nothing must be given."""

    summary: str = ""


class AlsoOptional(TypedDict, total=False):
    summary: str


class Unknown(TypedDict):
    what: Undescribed  # type: ignore[name-defined] # noqa: F821 - nobody defines it


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (Optional, "Optional has no field without a default"),
        (AlsoOptional, "AlsoOptional has no field without a default"),
        (Unknown, "Unknown cannot be described to a model"),
        (int, "a pydantic model class, a dataclass, a TypedDict or a union of classes, not the class int"),
    ],
)
def test_a_class_that_declares_nothing_is_refused(declared: Any, why: str):
    with pytest.raises(monitor.ConfigError, match=why):
        Outputs(declared)


# --- a union: one object of any of its classes


class Found(pydantic.BaseModel):
    title: str


@dataclass
class Refused:
    why: str


def test_one_object_of_a_union_is_the_whole_output():
    outputs = Outputs(Found | Refused)
    assert outputs.missing == ["Found or Refused"]
    assert "one of these outputs is missing" in outputs.nudge_text()
    assert "Choose the one that fits" in outputs.spec.description
    assert not outputs.call({"name": "Refused", "value": {"why": "not mine"}}).is_error
    assert outputs.complete
    assert outputs.output == Refused("not mine")
    assert outputs.emitted == {"Refused": Refused("not mine")}


def test_the_newest_object_of_a_union_replaces_the_other_one():
    older: Any = Union[Found, Refused]  # noqa: UP007 - as older programs write it
    outputs = Outputs(older)
    outputs.call({"name": "Refused", "value": {"why": "not mine"}})
    outputs.call({"name": "Found", "value": '{"title": "a"}'})  # as models send it
    assert outputs.output == Found(title="a")
    assert list(outputs.emitted) == ["Found"]
    again = outputs.fresh()
    again.restore(outputs.snapshot())
    assert again.output == Found(title="a")


def test_a_wrong_object_of_a_union_is_refused_with_the_right_call():
    outputs = Outputs(Found | Refused)
    answer = outputs.call({"name": "Found", "value": {"why": "x"}})
    assert answer.is_error
    assert "`Found` is not accepted: title: Field required" in answer.text
    assert outputs.missing


@pytest.mark.parametrize("declared", [Found | None, Found | str, Found | list[Found]])
def test_a_union_has_classes_with_fields_only(declared: Any):
    with pytest.raises(monitor.ConfigError, match="each class of a union"):
        Outputs(declared)
