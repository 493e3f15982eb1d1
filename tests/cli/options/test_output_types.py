"""Types of outputs as the command line writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.cli.options.output_types import outputs_of
from monitor.errors import ConfigError
from monitor.goal.outputs import Outputs


def emitted(written: str, value: object) -> Any:
    """What comes of `value` where an output of that type is declared; `None`: it was refused."""
    outputs = Outputs(outputs_of([f"x:{written}"]))
    return None if outputs.call({"name": "x", "value": value}).is_error else outputs.emitted["x"]


@pytest.mark.parametrize(
    ("written", "taken", "refused"),
    [
        ("str", "text", 3),
        ("int", 3, 3.5),
        ("float", 0.5, "much"),
        ("bool", True, "perhaps"),
        ("list[str]", ["a", "b"], [1]),
        ("list[list[int]]", [[1], []], [1]),
        ("json", {"a": [1, None]}, None),
        ('{"type": "string", "enum": ["low", "high"]}', "low", "medium"),
        ('{"type": "integer", "minimum": 1, "maximum": 5}', 5, 6),
        ('{"type": "number", "exclusiveMinimum": 0}', 0.1, 0),
        ('{"type": "array", "items": {"type": "integer"}, "maxItems": 2}', [1, 2], [1, 2, 3]),
        ('{"type": ["string", "null"]}', "a", 1),
        ('{"anyOf": [{"type": "integer"}, {"type": "boolean"}]}', True, "a"),
        ('{"const": 7}', 7, 8),
        ('{"type": "object"}', {"a": 1}, [1]),
        (
            '{"type": "object", "properties": {"a-b": {"type": "integer"}}, "required": ["a-b"]}',
            {"a-b": 1, "more": "x"},
            {"more": "x"},
        ),
        ('{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false}', {}, {"b": 1}),
    ],
)
def test_a_type_takes_what_it_says_and_nothing_else(written: str, taken: object, refused: object):
    assert emitted(written, taken) == taken
    if refused is not None:
        assert emitted(written, refused) is None


def test_a_model_of_ones_own_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "review_types.py").write_text(
        "from pydantic import BaseModel\n\nclass Review(BaseModel):\n    risk: float\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert emitted("review_types:Review", {"risk": 0.5}).risk == 0.5
    assert emitted("review_types:Review", {"risk": "much"}) is None
    with pytest.raises(ConfigError, match="which is not a type"):
        outputs_of(["x:review_types:__doc__"])


def test_what_a_schema_says_of_a_value_the_model_is_told():
    written = '{"type": "number", "minimum": 0, "description": "0 is harmless"}'
    said = Outputs(outputs_of([f"risk:{written}"])).spec.description
    assert "0 is harmless" in said


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{", "this is not a JSON schema"),
        ('{"type": "text"}', "has a type 'text'; there are string"),
        (
            '{"type": "string", "format": "email"}',
            "format of a JSON schema cannot be checked here; write a pydantic model",
        ),
        ('{"type": "object", "patternProperties": {}}', "patternProperties of a JSON schema cannot be checked here"),
        ('{"$ref": "#/x"}', r"\$ref of a JSON schema cannot be checked here"),
        ('{"type": "object", "required": ["a"]}', "requires a, and does not say what that is"),
        ('{"type": "object", "properties": []}', "properties is an object"),
        ('{"type": "array", "items": 3}', "a JSON schema is an object, not 3"),
        ('{"enum": []}', "an enum of a JSON schema lists"),
        ('{"anyOf": {}}', "anyOf of a JSON schema lists schemas"),
        ("list[text]", "'text' is not a type"),
        ("no_such_module:Model", "there is no module 'no_such_module'"),
    ],
)
def test_what_cannot_be_checked_is_refused_at_once(written: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        outputs_of([f"x:{written}"])
