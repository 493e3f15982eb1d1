import enum
import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from monitor.tools._schema import portable


class Leaf(BaseModel):
    title: str
    size: int = 1


class Pair(BaseModel):
    left: Leaf
    right: Leaf = Field(description="the other one")


class Node(BaseModel):
    value: Leaf
    children: "list[Node]" = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def of(annotation: Any) -> dict[str, Any]:
    return portable(TypeAdapter(annotation).json_schema())


LEAF = {"type": "object", "properties": {"title": {"type": "string"}, "size": {"type": "integer", "default": 1}}, "required": ["title"]}


def test_a_definition_is_put_where_it_is_used():
    assert of(Pair) == {
        "type": "object",
        "properties": {"left": LEAF, "right": {**LEAF, "description": "the other one"}},
        "required": ["left", "right"],
    }


def test_only_a_definition_that_holds_itself_stays_one():
    schema = of(dict[str, Node])
    assert schema["additionalProperties"] == {"$ref": "#/$defs/Node"}
    assert set(schema["$defs"]) == {"Node"}
    assert schema["$defs"]["Node"]["properties"] == {
        "value": LEAF,
        "children": {"type": "array", "default": [], "items": {"$ref": "#/$defs/Node"}},
    }


def test_a_union_with_a_discriminator_is_a_plain_one():
    schema = of(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert schema == {
        "anyOf": [
            {"type": "object", "properties": {"kind": {"enum": [kind], "type": "string"}}, "required": ["kind"]} for kind in ("cat", "dog")
        ]
    }


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Color, {"enum": ["red", "blue"], "type": "string"}),
        (Literal["a"], {"enum": ["a"], "type": "string"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            tuple[Color, int],
            {
                "type": "array",
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [{"enum": ["red", "blue"], "type": "string"}, {"type": "integer"}],
            },
        ),
        (Any, {}),
    ],
)
def test_annotations_in_the_common_part_of_json_schema(annotation: Any, schema: dict[str, Any]):
    assert of(annotation) == schema


def test_what_is_data_and_not_schema_is_left_alone():
    default = {"title": "x", "const": 1, "oneOf": []}
    schema = {"type": "object", "title": "T", "default": default, "properties": {"title": {"const": default}}, "additionalProperties": True}
    assert portable(schema) == {
        "type": "object",
        "default": default,
        "properties": {"title": {"enum": [default]}},
        "additionalProperties": True,
    }


@pytest.mark.parametrize("annotation", [Pair, Node, list[Node], dict[str, Pair | Node], Annotated[Cat | Dog, Field(discriminator="kind")]])
def test_no_reference_points_nowhere(annotation: Any):
    schema = of(annotation)
    text = json.dumps(schema)
    for name in schema.get("$defs", {}):
        text = text.replace(f'"#/$defs/{name}"', '""')
    assert "#/" not in text
