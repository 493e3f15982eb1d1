"""Servers that lose sessions, declare nonsense, say nothing or too much, and that ask a person."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.errors import ConfigError, ToolError
from monitor.events import ToolFinished
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.testing import ScriptedModel, call, capture_events
from monitor.tools import McpServer, ToolContext
from monitor.tools.remote.mcp_transport import KEPT_BYTES, StderrTail

pytestmark = pytest.mark.anyio

PLAIN = Path(__file__).parents[1] / "mcp_servers" / "plain.py"


def plain(start: str = "", log: Path | str = "", **options: Any) -> McpServer:
    words = [sys.executable, "-I", "-S", PLAIN, 0, 1, log, start]
    return McpServer([str(word) for word in words], name="plain", sandbox=None, **options)


async def ask(server: McpServer, tool: str, **arguments: Any) -> str:
    (made,) = (one for one in server.tools() if one.original == tool)
    return (await made.call(arguments, ToolContext(ToolCall("1", tool, {})))).text


# --- sessions


@dataclass
class Forgetful:
    """A server over HTTP that forgets its sessions when it is told to."""

    port: int = 0
    sessions: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    forgets: int = 0
    """So many calls are answered with 404 first."""
    read_only: bool = True

    def answered(self, message: dict[str, Any], session: str | None) -> tuple[int, dict[str, Any] | None, str | None]:
        method = message["method"]
        if method == "initialize":
            made = f"s{len(self.sessions)}"
            self.sessions.add(made)
            version = message["params"]["protocolVersion"]
            info = {"name": "forgetful", "version": "1"}
            return 200, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}, made
        if method == "server/discover":
            return 404, None, None
        if "id" not in message:
            return 202, None, None
        if method == "tools/list":
            hints = {"readOnlyHint": self.read_only}
            return 200, {"tools": [{"name": "add", "inputSchema": {"type": "object"}, "annotations": hints}]}, None
        self.calls.append(session or "")
        if self.forgets:
            self.forgets -= 1
            return 404, None, None
        return 200, {"content": [{"type": "text", "text": f"done in {session}"}]}, None


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    state = Forgetful()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, result, session = state.answered(message, self.headers.get("mcp-session-id"))
            body = (
                b""
                if result is None
                else json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            )
            self.send_response(status)
            self.send_header("content-type", "application/json" if body else "text/plain")
            self.send_header("content-length", str(len(body)))
            if session is not None:
                self.send_header("mcp-session-id", session)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("content-length", "0")
            self.end_headers()

        do_DELETE = do_GET  # noqa: N815 - the name that the base class looks for

        def log_message(self, format: str, *_: object) -> None: ...  # noqa: A002 - its name there

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


HTTP = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""On trio the SDK leaves its streams to the garbage collector, which trio says."""


@HTTP
async def test_a_call_that_may_be_repeated_is_made_again_in_a_new_session(forgetful: Forgetful):
    async with McpServer(f"http://127.0.0.1:{forgetful.port}/mcp", name="web", trusted=True) as server:
        assert await ask(server, "add") == "done in s0"
        forgetful.forgets = 1
        assert await ask(server, "add") == "done in s1"
        assert forgetful.calls == ["s0", "s0", "s1"]


@HTTP
async def test_it_is_made_again_once(forgetful: Forgetful):
    async with McpServer(f"http://127.0.0.1:{forgetful.port}/mcp", name="web", trusted=True) as server:
        forgetful.forgets = 2
        with pytest.raises(ToolError, match="its session was gone"):
            await ask(server, "add")
        assert await ask(server, "add") == "done in s2"
        assert forgetful.calls == ["s0", "s1", "s2"]


@HTTP
async def test_another_call_is_not_repeated_and_the_next_one_has_a_new_session(forgetful: Forgetful):
    forgetful.read_only = False
    async with McpServer(f"http://127.0.0.1:{forgetful.port}/mcp", name="web", trusted=True) as server:
        forgetful.forgets = 1
        with pytest.raises(ToolError, match="the call was not repeated"):
            await ask(server, "add")
        assert await ask(server, "add") == "done in s1"
        assert forgetful.calls == ["s0", "s1"]


# --- declarations


async def test_one_tool_that_is_declared_wrongly_loses_that_tool_only():
    async with plain("bad") as server:
        names = [tool.original for tool in server.tools()]
        assert names[0] == "echo"
        assert names[-1] == "last"
        assert not {"no schema", "text", "task"} & set(names)
        said = "\n".join(server.problems)
        for name in ("no schema", "text", "no tool at all", "task"):
            assert f"the tool {name} is left out" in said
        assert await ask(server, "echo", text="hi") == "hi"


@pytest.mark.parametrize("depth", [250, 100_000])
async def test_a_schema_that_is_nested_deeper_than_the_sdk_reads_loses_that_tool_only(depth: int):
    async with plain(f"deep {depth}") as server:
        names = [tool.original for tool in server.tools()]
        assert "echo" in names
        assert "deeper" not in names
        assert any("the tool deeper is left out" in one for one in server.problems)
        assert await ask(server, "echo", text="hi") == "hi"


async def test_half_a_surrogate_pair_in_a_result_is_a_question_mark():
    async with plain("half") as server:
        assert await ask(server, "echo", text="hi") == "?hi?"


async def test_a_server_that_says_nothing_before_it_is_initialized_can_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)
    async with plain("silent", tmp_path / "log") as server:
        assert await ask(server, "echo", text="hi") == "hi"
        monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 1_000)
        with pytest.raises(ToolError):
            await ask(server, "die")
        assert await ask(server, "echo", text="again") == "again"  # it is not asked for a newer protocol again


# --- stderr


async def test_a_server_that_writes_much_to_its_stderr_is_read_and_little_is_kept():
    with pytest.raises(ConfigError, match="it wrote: this server has no configuration"):
        await plain("fail").__aenter__()
    async with plain("noisy") as server:
        assert await ask(server, "echo", text="hi") == "hi"


def test_the_last_bytes_are_kept():
    tail = StderrTail()
    try:
        for number in range(20_000):
            tail.file.write(f"line {number}\n")
        tail.file.flush()
        assert tail.text(12) == "\nline 19999\n"
        assert len(tail.text(10**9)) <= KEPT_BYTES
    finally:
        tail.close()
        tail.close()
    assert not [one for one in threading.enumerate() if one.name == "stderr of a server"]


# --- resources, prompts, questions


async def test_resources_and_prompts_are_read_by_tools():
    async with plain("reads") as server:
        tools = {tool.original: tool for tool in server.tools()}
        assert "notes://a: the notes" in tools["read_resource"].spec.description
        assert "greet: a greeting (who)" in tools["read_prompt"].spec.description
        assert await ask(server, "read_resource", uri="notes://a") == "[notes://a]\ntext of notes://a"
        assert await ask(server, "read_prompt", name="greet", arguments={"who": "Ada"}) == "user: Greet Ada."
        with pytest.raises(ToolError, match="name the resource"):
            await ask(server, "read_resource")
    async with plain() as server:
        assert not [tool for tool in server.tools() if tool.original.startswith("read_")]
    async with plain("reads", filter=["echo"]) as server:
        assert [tool.original for tool in server.tools()] == ["echo"]


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "an answer": ({"name": "Ada", "other": 1}, {"action": "accept", "content": {"name": "Ada"}}),
    "without what is required": ({"age": 3}, {"action": "decline"}),
    "a refusal": (False, {"action": "decline"}),
    "a yes without an answer": (True, {"action": "decline"}),
}


@pytest.mark.parametrize(("answer", "sent"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_person_answers_what_a_server_asks(answer: Any, sent: dict[str, Any]):
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer | bool:
        asked.append(request)
        if isinstance(answer, bool):
            return answer
        return ApprovalAnswer(id=request.id, decision="approved", arguments=answer)

    with capture_events() as events:
        await monitor.Supervisor(
            ScriptedModel([call("plain__survey", text="Who are \x1b[31myou?")], "Done."),
            tools=[plain("reads")],
            calls=monitor.runs.ToolCalls(approver=approver),
        ).run("x")
    (finished,) = (event.result for event in events if isinstance(event, ToolFinished))
    assert json.loads(finished.text) == sent
    (request,) = asked
    assert "\x1b" not in request.why
    assert request.why.startswith("an MCP server asks: plain: Who are ")
    assert set(request.arguments) == {"name", "age"}


async def test_a_server_asks_one_question_at_a_time_and_three_in_a_call():
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request.why)
        await anyio.lowlevel.checkpoint()
        return ApprovalAnswer(id=request.id, decision="approved", arguments={})

    with capture_events() as events:
        await monitor.Supervisor(
            ScriptedModel([call("plain__nag"), "Done."]),
            tools=[plain("reads")],
            calls=monitor.runs.ToolCalls(approver=approver),
        ).run("x")
    (finished,) = (event.result for event in events if isinstance(event, ToolFinished))
    assert sorted(json.loads(finished.text)) == ["accept"] * 3 + ["decline"] * 2
    assert len(asked) == 3
    assert all(why.startswith("an MCP server asks: plain: question") for why in asked)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_answer_of_many_parts_does_not_stop_the_event_loop():
    async with plain() as server, anyio.create_task_group() as group:
        longest = 0.0

        async def beat() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await anyio.sleep(0.01)
                longest = max(longest, time.perf_counter() - before)

        group.start_soon(beat)
        began = time.perf_counter()
        text = await ask(server, "parts", text="300000")
        took = time.perf_counter() - began
        group.cancel_scope.cancel()
    assert text.count("x") == 300_000
    assert longest < max(1.0, took / 2)  # the parser of JSON holds the interpreter for a part of it


async def test_without_an_approver_a_server_is_told_that_nobody_can_be_asked(tmp_path: Path):
    async with plain("reads", tmp_path / "log") as server:
        assert "not supported" in await ask(server, "survey", text="Who?")
    assert '"elicitation"' not in (tmp_path / "log").read_text()
