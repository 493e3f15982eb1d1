from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional, get_args

import pytest
from google.genai import types
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from monitor.errors import ConfigError
from monitor.models import Sdk, ToolSpec, declare, in_words, portable, takes_text


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


class Item(BaseModel):
    """Something for sale."""

    title: str
    price: float = Field(ge=0, description="In euros.")


class Basket(BaseModel):
    first: Item
    others: list[Item] = []
    note: str | None = None


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Named(BaseModel):
    """Its properties have the names of keywords."""

    title: str
    const: int
    discriminator: list[Item]


class Movie(TypedDict):
    title: str
    year: int


PET = Annotated[Cat | Dog, Field(discriminator="kind")]

ANNOTATIONS: list[Any] = [
    *(str, int, float, bool, None, Any, object, bytes, Decimal, date, datetime),
    *(list, list[int], dict[str, int], tuple[int, str], tuple[int, ...], set[str], dict[str, list[Item]]),
    *(
        int | None,
        Optional[Item],  # noqa: UP045 - as users write it
        int | str,
        Literal["a", "b"],
        Literal[1, 2],
        Literal[1, "a"],
        Literal["only"],
        Colour,
        Rank,
    ),
    *(Item, Basket, Node, Movie, PET, list[PET], Named, list[Node]),
    *(
        Annotated[int, Field(gt=0, lt=10, multiple_of=2)],
        Annotated[str, Field(min_length=1, max_length=9, pattern="^a")],
    ),
]


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema that stands in a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key == "properties":
            for part in value.values():
                yield from schemas_in(part)
        elif key in {"anyOf", "oneOf", "allOf", "prefixItems"}:
            for part in value:
                yield from schemas_in(part)
        elif key in {"items", "additionalProperties"}:
            yield from schemas_in(value)


def portable_schema(annotation: Any) -> dict[str, Any]:
    return portable(TypeAdapter(annotation).json_schema())


# --- portable


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_a_portable_schema_points_nowhere_and_uses_only_what_all_providers_take(annotation: Any):
    schema = portable_schema(annotation)
    assert "$ref" not in str(schema)
    for part in schemas_in(schema):
        assert part.keys().isdisjoint({"$ref", "$defs", "oneOf", "const", "discriminator"})
        assert not isinstance(part.get("title"), str)


def test_properties_may_have_the_names_of_keywords():
    schema = portable_schema(Named)
    assert list(schema["properties"]) == ["title", "const", "discriminator"]
    assert schema["properties"]["discriminator"]["items"]["properties"]["price"]["description"] == "In euros."


def test_a_definition_is_put_where_it_is_used_with_what_is_said_there():
    class Order(BaseModel):
        item: Item = Field(description="What is bought.")

    item = portable_schema(Order)["properties"]["item"]
    assert item["description"] == "What is bought."
    assert item["required"] == ["title", "price"]


def test_a_model_that_holds_itself_ends_at_its_second_occurrence():
    schema = portable_schema(Node)
    assert schema["properties"]["children"]["items"] == {
        "type": "object",
        "description": "Node again, with the same properties.",
    }


def test_a_reference_that_leads_nowhere_is_any_value():
    assert portable({"type": "array", "items": {"$ref": "#/elsewhere"}}) == {"type": "array", "items": {}}


def test_the_given_schema_is_not_changed():
    schema = TypeAdapter(Basket).json_schema()
    before = str(schema)
    portable(schema)
    assert str(schema) == before


# --- in words

ITEM = "object {title: string, price: number (>= 0)}"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "string"),
        (float, "number"),
        (Any, "any JSON value"),
        (list[int], "array of integer"),
        (list, "array"),
        (dict[str, int], "object with values of integer"),
        (tuple[int, str], "array [integer, string] (at least 2 items, at most 2 items)"),
        (int | None, "integer or null"),
        (Literal["low", "high"], '"low" or "high"'),
        (Colour, '"red" or "blue"'),
        (datetime, "string (date-time)"),
        (Annotated[float, Field(ge=0, le=1)], "number (>= 0, <= 1)"),
        (Item, ITEM),
        (Basket, f"object {{first: {ITEM}, others?: array of {ITEM}, note?: string or null}}"),
        (PET, 'object {kind: "cat"} or object {kind: "dog"}'),
        (Literal[tuple(range(30))], " or ".join([*map(str, range(20)), "…"])),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_is_said_in_words(annotation: Any, words: str):
    assert in_words(portable_schema(annotation)) == words


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_every_type_can_be_said_in_words(annotation: Any):
    assert in_words(portable_schema(annotation))


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_a_type_takes_text_exactly_if_it_may_be_written_as_text(annotation: Any):
    written_as_text = {str, Any, object, bytes, Decimal, date, datetime, int | str, Colour, PET}
    literal_text = any(isinstance(value, str) for value in get_args(annotation))
    constrained = getattr(annotation, "__origin__", None) is str
    assert takes_text(portable_schema(annotation)) == (
        (annotation in written_as_text - {PET}) or literal_text or constrained
    )


# --- declare

SPECS = [
    ToolSpec(
        "emit",
        "Emits.",
        {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, "required": ["x"]},
    ),
    ToolSpec("stop", "Stops.", {"type": "object", "properties": {}}),
]


def test_google_takes_the_declaration():
    config = types.GenerateContentConfig(tools=declare(SPECS, "google"))  # type: ignore[arg-type] # dicts are taken, the annotation is narrower
    (tool,) = config.tools or []
    assert isinstance(tool, types.Tool)
    assert [
        (each.name, each.description, each.parameters_json_schema) for each in tool.function_declarations or []
    ] == [(spec.name, spec.description, spec.parameters) for spec in SPECS]


@pytest.mark.parametrize(
    ("sdk", "path"),
    [
        ("openai", "openai.types.chat:ChatCompletionToolParam"),
        ("openai-responses", "openai.types.responses:FunctionToolParam"),
        ("anthropic", "anthropic.types:ToolParam"),
    ],
)
def test_the_other_sdks_take_the_declaration(sdk: Sdk, path: str):
    module, name = path.split(":")
    wanted = TypeAdapter(getattr(pytest.importorskip(module), name))
    for tool in declare(SPECS, sdk):
        wanted.validate_python(tool)
    with pytest.raises(ValidationError):
        wanted.validate_python({"name": 1})


@pytest.mark.parametrize("sdk", get_args(Sdk))
def test_without_tools_nothing_is_declared(sdk: Sdk):
    assert declare([], sdk) == []


def test_the_responses_api_is_told_not_to_make_optional_properties_required():
    assert {tool["strict"] for tool in declare(SPECS, "openai-responses")} == {False}


def test_an_unknown_sdk_is_refused():
    with pytest.raises(ConfigError, match="'openai-responses'"):
        declare(SPECS, "mistral")  # type: ignore[arg-type]
