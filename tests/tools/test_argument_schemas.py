"""The arguments of a call against the schema of its tool, whoever wrote the tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.errors import ToolError, ToolErrorKind
from monitor.messages import ApprovalAnswer
from monitor.models import ToolSpec
from monitor.testing import ScriptedModel, call
from monitor.tools import DiscoveredTools, McpServer, Registry, ToolGroup, ToolWarning, carry_out
from monitor.tools.functions import FAULT_CHARS, FAULTS_SHOWN, ArgumentSchema, UnusableSchema

pytestmark = pytest.mark.feature("GT-05")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "when": {"oneOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/node"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["value"],
        }
    },
}
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["city: is required", "days: is required"]),
    ({"city": "Rome"}, ["days: is required"]),
    ({"city": "Rome", "days": "3"}, ["days: '3' is not of type \"integer\""]),
    ({"city": "Rome", "days": 40}, ["days: 40 is greater than the maximum of 14"]),
    ({"city": "", "days": 1}, ["city: '' is shorter than 2 characters"]),
    ({"city": "Rome", "days": 1, "unit": "K"}, ['unit: \'K\' is not one of "C" or "F"']),
    ({"city": "Rome", "days": 1, "town": "x"}, ["town: is not known"]),
    ({"city": None, "days": 1}, ['city: None is not of type "string"']),
    ({"city": "Rome", "days": 1, "stops": [{"name": "a"}, {"name": 2}]}, ['stops.1.name: 2 is not of type "string"']),
    ({"city": "Rome", "days": 1, "when": "soon"}, ["when: fits none of its forms", 'is not a "date"', '"null"']),
    ({"city": "Rome", "days": 1, "tree": {"value": 1, "next": {"value": 2, "next": {}}}}, ["tree.next.next.value: is"]),
]
RIGHT: dict[str, Any] = {"city": "Rome", "days": 3, "unit": "C", "when": "2026-01-02", "tree": {"value": 1}}


class Weather:
    """A tool of somebody's own, which checks nothing by itself."""

    needs_approval = True

    def __init__(self, schema: Mapping[str, Any] = SCHEMA) -> None:
        self.spec = ToolSpec("weather", "The weather.", schema)
        self.made: list[Mapping[str, Any]] = []

    async def call(self, arguments: Mapping[str, Any], context: monitor.ToolContext) -> object:
        self.made.append(arguments)
        return "sunny"


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_each_fault_is_named_with_its_place_what_was_sent_and_what_is_expected(
    arguments: dict[str, Any], says: list[str]
):
    with pytest.raises(ToolError) as error:
        ArgumentSchema("weather", SCHEMA).check(arguments)
    assert error.value.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert [part for part in says if part not in str(error.value)] == [], str(error.value)
    assert str(error.value).endswith("Arguments of weather: city, days, unit, stops, when, tree.")
    ArgumentSchema("weather", SCHEMA).check(RIGHT)


# --- nobody is asked, and nothing runs

DISCOVERED = """
import json, sys
sys.stdout.write("carried out")
open(sys.argv[1], "a").write("called")
"""
SERVER = """
import json, sys
schema = json.loads(sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            result["serverInfo"] = {"name": "s", "version": "1"}
        case "tools/list":
            result = {"tools": [{"name": "weather", "description": "", "inputSchema": schema}]}
        case "tools/call":
            open(sys.argv[1], "a").write("called")
            result = {"content": [{"type": "text", "text": "carried out"}]}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def _of_each_kind(kind: str, folder: Path) -> tuple[str, Any]:
    """The name and the tool, which writes the file `called` if it runs."""
    called = str(folder / "called")
    match kind:
        case "discovered":
            (folder / "call.py").write_text(DISCOVERED)
            (folder / "list").write_text(json.dumps([{"name": "weather", "parameters": SCHEMA}]))
            run = [sys.executable, "-I", "-S", str(folder / "call.py"), called]
            return "weather", DiscoveredTools(["cat", str(folder / "list")], run, needs_approval=True)
        case "mcp":
            (folder / "server.py").write_text(SERVER)
            command = [sys.executable, "-I", "-S", str(folder / "server.py"), called, json.dumps(SCHEMA)]
            return "s__weather", McpServer(command, name="s", needs_approval=True, sandbox=None)
        case "own":
            return "weather", Weather()
        case _:
            return "x_weather", ToolGroup([Weather()], prefix="x_")


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["discovered", "mcp", "own", "renamed"])
async def test_a_wrong_call_is_answered_before_a_person_is_asked_and_before_anything_runs(kind: str, tmp_path: Path):
    name, tools = _of_each_kind(kind, tmp_path)
    asked: list[Any] = []

    async def ask(request: Any) -> bool:
        asked.append(request.arguments)
        return True

    wrong = [call(name, **arguments) for arguments, _ in WRONG]
    model = ScriptedModel(*wrong, call(name, **RIGHT), call("terminate", status="success"))
    supervisor = monitor.Supervisor(model, tools=[tools], calls=monitor.runs.ToolCalls(approver=ask), detectors=None)
    outcome = await supervisor.run("How is the weather?")
    assert asked == [RIGHT]
    results = [message.results[0] for message in outcome.history if isinstance(message, monitor.AssistantMessage)]
    assert [one.error_kind for one in results[: len(WRONG)]] == [ToolErrorKind.INVALID_ARGUMENTS] * len(WRONG)
    assert all(part in result.text for result, (_, says) in zip(results, WRONG, strict=False) for part in says)
    assert not results[len(WRONG)].is_error
    if kind in ("discovered", "mcp"):
        assert (tmp_path / "called").read_text() == "called"


@pytest.mark.anyio
async def test_arguments_that_a_person_has_changed_are_checked_too():
    weather = Weather()

    async def ask(request: Any) -> ApprovalAnswer:
        return ApprovalAnswer(id=request.id, decision="approved", arguments={"city": 5})

    model = ScriptedModel(call("weather", **RIGHT), call("terminate", status="success"))
    outcome = await monitor.Supervisor(model, tools=[weather], calls=monitor.runs.ToolCalls(approver=ask)).run("x")
    answered = outcome.history[1]
    assert isinstance(answered, monitor.AssistantMessage)
    assert "days: is required" in answered.results[0].text
    assert weather.made == []


@pytest.mark.anyio
async def test_the_check_of_a_tool_comes_behind_its_schema():
    class Careful(Weather):
        needs_approval = False

        def check(self, arguments: Mapping[str, Any]) -> None:
            if arguments["city"] == "Atlantis":
                raise ToolError("no such city")

    tools = Registry([Careful()])
    assert "city: is required" in (await carry_out(call("weather"), tools)).text
    sunk = await carry_out(call("weather", city="Atlantis", days=1), tools)
    assert sunk.text == "Error: no such city"
    assert (await carry_out(call("weather", city="Rome", days=1), tools)).text == "sunny"


# --- schemas that are none


BAD: dict[str, Any] = {
    "a type that is none": {"type": "object", "properties": {"a": {"type": "text"}}},
    "a bound that is a text": {"properties": {"a": {"type": "integer", "minimum": "3"}}},
    "a reference to nothing": {"properties": {"a": {"$ref": "#/$defs/none"}}},
    "a document far away": {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    "a file": {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
    "a pattern that is none": {"properties": {"a": {"type": "string", "pattern": "("}}},
    "required is a text": {"properties": {"a": {}}, "required": "a"},
}


@pytest.mark.parametrize("schema", BAD.values(), ids=BAD)
def test_a_schema_that_is_none_takes_away_its_own_tool_only_and_says_why(schema: dict[str, Any]):
    with pytest.raises(
        UnusableSchema, match=r"the schema of the tool 'weather' is no JSON schema: .*write parameters="
    ):
        Registry([Weather(schema)])
    good = monitor.tool(name="good")(lambda: 1)

    class Odd(ToolGroup):
        def tools(self) -> list[Any]:
            return [Weather(schema), good]

    with pytest.warns(ToolWarning, match="a tool of Odd is left out: the schema of the tool 'weather'"):
        assert list(Registry([Odd([])])) == ["good"]


def test_a_server_reports_its_tool_and_the_others_are_offered():
    class Listed:
        annotations = title = None
        description = ""

        def __init__(self, name: str, schema: Any) -> None:
            self.name, self.input_schema = name, schema

    server = McpServer("command", name="s")
    server._listed([Listed("bad", BAD["a document far away"]), Listed("good", SCHEMA)], True)
    assert [tool.original for tool in server.tools()] == ["good"]
    assert "the tool bad is left out" in server.problems[0]
    assert "another document" in server.problems[0]
    with pytest.warns(ToolWarning, match="the tool bad is left out"):
        assert list(Registry([server])) == ["s__good"]


@pytest.mark.asyncio
async def test_a_command_reports_its_tool_and_the_others_are_offered(tmp_path: Path):
    bad = {"name": "bad", "parameters": {"type": "object", "properties": {"a": {"type": "text"}}}}
    (tmp_path / "list").write_text(json.dumps([bad, {"name": "good"}]))
    async with DiscoveredTools(["cat", str(tmp_path / "list")], "true") as tools:
        assert [tool.spec.name for tool in tools.tools()] == ["good"]
        assert "'bad' is no JSON schema" in tools.problems[0]


# --- the forms in which schemas come

FORMS: dict[str, Any] = {
    "gemini": {"type": "OBJECT", "properties": {"a": {"type": "INTEGER", "nullable": True}}},
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"type": ["integer", "null"], "minimum": 0, "exclusiveMinimum": True}},
    },
    "draft 4, unsaid": {"properties": {"a": {"type": ["integer", "null"], "minimum": 0, "exclusiveMinimum": True}}},
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"type": ["integer", "null"]}},
    },
    "an unknown draft": {"$schema": "https://example.com/mine", "properties": {"a": {"type": ["integer", "null"]}}},
    "definitions": {
        "definitions": {"n": {"type": ["integer", "null"]}},
        "properties": {"a": {"$ref": "#/definitions/n"}},
    },
}


@pytest.mark.parametrize("schema", FORMS.values(), ids=FORMS)
def test_every_form_of_a_schema_is_understood(schema: dict[str, Any]):
    check = ArgumentSchema("it", schema).check
    check({"a": 3})
    check({"a": None})
    with pytest.raises(ToolError, match="a: 'x' is not of type"):
        check({"a": "x"})


def test_data_within_a_schema_is_not_taken_for_a_type():
    check = ArgumentSchema(
        "it", {"properties": {"type": {"enum": ["STRING"]}, "a": {"const": {"type": "STRING"}}}}
    ).check
    check({"type": "STRING", "a": {"type": "STRING"}})
    for wrong in ({"type": "string"}, {"a": {"type": "string"}}):
        with pytest.raises(ToolError, match=r"^invalid arguments: "):
            check(wrong)


def test_a_pattern_that_looks_back_without_end_is_a_fault_at_once():
    check = ArgumentSchema("it", {"properties": {"a": {"type": "string", "pattern": r"^(?:(a+)\1?)+$(?<!b)"}}}).check
    with pytest.raises(ToolError, match=r"^invalid arguments: a: "):
        check({"a": "a" * 60 + "!"})


def test_a_tool_without_parameters_says_so():
    with pytest.raises(ToolError, match=r"^invalid arguments: arguments: none are known.$"):
        ArgumentSchema("it", {"type": "object", "additionalProperties": False}).check({"a": 1})


def test_many_and_long_faults_are_cut():
    with pytest.raises(ToolError) as error:
        ArgumentSchema("it", {"properties": {"a": {}}, "additionalProperties": False}).check(
            {f"{n}" + "x" * 2_000: 1 for n in range(30)}
        )
    assert "and 22 more" in str(error.value)
    assert len(str(error.value)) < (FAULTS_SHOWN + 1) * (FAULT_CHARS + 10)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("\ud800"), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other", "\ud800"]), JSON))
def test_whatever_a_model_sends_it_fits_or_the_fault_is_named(arguments: dict[str, Any]):
    wrong = {"city": 1, **arguments}
    with pytest.raises(ToolError, match=r"^invalid arguments: "):
        ArgumentSchema("weather", SCHEMA).check({**wrong, "days": "many"})


KEYWORDS = ["type", "properties", "items", "required", "$ref", "enum", "anyOf", "additionalProperties", "x"]


@given(st.dictionaries(st.sampled_from(KEYWORDS), JSON))
def test_whatever_a_server_declares_as_a_schema_is_usable_or_reported(schema: dict[str, Any]):
    reported = None
    try:
        ArgumentSchema("it", schema).check({"x": 1})
    except (UnusableSchema, ToolError) as error:
        reported = str(error)
    assert reported is None or reported.startswith(("invalid arguments: ", "the schema of the tool 'it' is no JSON"))


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"propertyNames": {"pattern": "^b"}}, '"a0" does not match "^b"'),
        ({"additionalProperties": {"type": "integer"}}, "a0: 'x' is not of type \"integer\""),
        ({"patternProperties": {"^a": {"type": "integer"}}}, "a0: 'x' is not of type \"integer\""),
        ({"unevaluatedProperties": {"type": "integer"}}, "is not"),
        ({"properties": {"b": {}}, "additionalProperties": False}, "a0: is not known"),
        ({"properties": {"list": {"items": {"type": "integer"}}}, "required": ["list"]}, "list: is required"),
        ({"maxProperties": 5}, "more than 5 properties"),
        ({"not": {}}, "arguments:"),
    ],
)
def test_of_very_many_wrong_arguments_the_first_mistake_is_named(keywords: dict[str, Any], says: str):
    """Each mistake may hold a copy of all arguments: 20,000 of them would take all memory."""
    schema = ArgumentSchema("t", {"type": "object", **keywords})
    with pytest.raises(ToolError) as error:
        schema.check({f"a{number}": "x" for number in range(20_000)})
    assert says in str(error.value)
    assert "there may be more" in str(error.value)
    assert len(str(error.value)) < 2_000


def test_arguments_are_small_by_their_values_and_their_characters():
    schema = ArgumentSchema("t", {"type": "object", "propertyNames": {"pattern": "^b"}})
    for arguments, whole in (
        ({"a": 1, "c": 2}, True),
        ({"a": "x" * 200_000, "c": 2}, False),
        ({"a": [1] * 1_000, "c": 2}, False),
        ({"a": {"x" * 200_000: 1}, "c": 2}, False),
        ({"a": [[[["x" * 90_000]]]], "c": "x" * 20_000}, False),
    ):
        with pytest.raises(ToolError) as error:
            schema.check(arguments)
        assert ("there may be more" not in str(error.value)) is whole
