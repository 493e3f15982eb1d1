"""Tools that one command declares and another one carries out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor import ConfigError
from monitor.chunks import ToolCall
from monitor.errors import ToolErrorKind
from monitor.runs import Results
from monitor.testing import call
from monitor.tools import carry_out
from monitor.tools.artifacts.artifact_store import InMemoryArtifacts, Reference
from monitor.tools.remote.discovery import DiscoveredTools, declared
from tests.processes import commands_left, no_command_is_left
from tests.runs.driving import drive

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-02")]

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DECLARED: list[dict[str, Any]] = [
    {"name": "shout", "description": "Say it loud.", "parameters": SCHEMA},
    {"name": "fail"},
]
CALLED = """
import json, os, subprocess, sys, time
given = json.load(sys.stdin)
match sys.argv[1]:
    case "shout": print(given["text"].upper())
    case "fail":
        print("so far")
        sys.exit("it went wrong")
    case "flood":
        while True: print("x" * 10_000)
    case "hang":
        subprocess.Popen(["setsid", "sleep", "300"])
        time.sleep(300)
    case "child":
        subprocess.Popen(["sleep", "300"])
        print("started")
    case "deaf":
        print("done")
"""


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    assert no_command_is_left(), commands_left()


def commands(folder: Path, printed: str | None = None, **options: Any) -> DiscoveredTools:
    names = ("flood", "hang", "child", "deaf")
    text = json.dumps([*DECLARED, *({"name": name} for name in names)]) if printed is None else printed
    (folder / "list").write_text(text)
    (folder / "call.py").write_text(CALLED)
    return DiscoveredTools(
        ["cat", str(folder / "list")], [sys.executable, "-I", "-S", str(folder / "call.py")], **options
    )


async def ask(tools: DiscoveredTools, name: str, **arguments: Any):
    return await carry_out(ToolCall("1", name, arguments), {tool.spec.name: tool for tool in tools.tools()})


async def test_what_a_command_declares_another_one_carries_out(tmp_path: Path):
    async with commands(tmp_path) as tools:
        assert tools.tools()[0].spec.description == "Say it loud."
        assert tools.tools()[0].spec.parameters == SCHEMA
        assert (await ask(tools, "shout", text="ärger \ud800")).text == "ÄRGER ?\n"
        failed = await ask(tools, "fail")
        assert (failed.is_error, failed.error_kind) == (True, ToolErrorKind.EXECUTION_FAILED)
        assert failed.text == "exit code 1\nso far\nit went wrong"


async def test_a_run_has_the_tools_with_their_prefix(tmp_path: Path):
    done = call("terminate", status="success")
    run = await drive(call("my_shout", text="hi"), done, tools=[commands(tmp_path, prefix="my_")])
    assert "my_shout" in run.offered(0)
    assert run.results(0)[0].text == "HI\n"


@pytest.mark.feature("MA-01")
async def test_a_long_reply_is_kept_with_the_request_that_it_answers(tmp_path: Path):
    store, text = InMemoryArtifacts(), "x" * 3_000
    asked, done = call("shout", text=text), call("terminate", status="success")
    await drive(asked, done, tools=[commands(tmp_path)], results=Results(artifacts=store))
    (kept,) = await store.artifacts()
    request = {"tool": "shout", "arguments": {"text": text}}
    assert kept.references == (Reference(kind="reply", request=request),)


async def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path):
    started = time.monotonic()
    async with commands(tmp_path, timeout_s=0.5) as tools:
        answer = await ask(tools, "hang")
    assert answer.error_kind is ToolErrorKind.TIMEOUT
    assert time.monotonic() - started < 50


async def test_a_command_ends_when_it_ends_and_not_when_its_child_does(tmp_path: Path):
    async with commands(tmp_path) as tools:
        with anyio.fail_after(50):
            assert (await ask(tools, "child")).text == "started\n"


async def test_a_flood_is_stopped(tmp_path: Path):
    async with commands(tmp_path, max_bytes=100_000) as tools:
        answer = await ask(tools, "flood")
    assert answer.text == "Error: the command wrote more than 100,000 bytes, and was ended"


async def test_a_command_need_not_read_its_arguments(tmp_path: Path):
    async with commands(tmp_path) as tools:
        assert (await ask(tools, "deaf", text="x" * 1_000_000)).text == "done\n"


@pytest.mark.parametrize(
    "form",
    [
        lambda: {"functionDeclarations": DECLARED},
        lambda: [{"function_declarations": DECLARED}],
        lambda: [{"name": "shout", "parametersJsonSchema": SCHEMA, "parameters": None}, {"name": "fail"}],
    ],
)
def test_the_forms_of_declarations_that_others_use_are_read(form: Any):
    assert [one.name for one in declared(json.dumps(form()), "", "it")] == ["shout", "fail"]


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "printed no JSON"),
        ("no json", "printed no JSON"),
        ("{}", "printed no list"),
        ('"text"', "printed no list"),
        ("[1]", "without a name"),
        ('[{"name": "a b"}]', "cannot be the name of a tool"),
        ('[{"name": "terminate"}]', "the run answers that one itself"),
        ('[{"name": "a", "parameters": {"type": "string"}}]', "without one JSON schema"),
        ('[{"name": "a", "parameters": {}, "inputSchema": {}}]', "without one JSON schema"),
        ('[{"name": "a", "description": 1}]', "no text"),
    ],
)
async def test_what_is_no_declaration_is_refused_and_never_guessed(tmp_path: Path, printed: str, why: str):
    with pytest.raises(ConfigError, match=why):
        await commands(tmp_path, printed).__aenter__()


async def test_a_command_that_fails_or_is_not_there_is_a_mistake_of_the_configuration():
    with pytest.raises(ConfigError, match=r"failed: exit code 3. It wrote: no luck"):
        await DiscoveredTools(["sh", "-c", "echo no luck >&2; exit 3"], "x").__aenter__()
    with pytest.raises(ConfigError, match="cannot be started: FileNotFoundError"):
        await DiscoveredTools("/nowhere/at/all", "x").__aenter__()


@pytest.mark.parametrize(
    "wrong", [{"discover": ""}, {"call": []}, {"call": "'open"}, {"timeout_s": 0}, {"max_bytes": 0}]
)
def test_an_option_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        DiscoveredTools(**{"discover": "a", "call": "b", **wrong})
