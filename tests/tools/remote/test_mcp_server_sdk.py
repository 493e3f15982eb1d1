"""The same for servers that are made with the SDK: over stdio, streamable HTTP and server-sent
events. One server process serves all tests of a transport over the network.
"""

from __future__ import annotations

import runpy
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import anyio
import pytest

from monitor import ConfigError
from monitor.chunks import Media, ToolCall
from monitor.errors import ToolError
from monitor.tools import ToolContext
from monitor.tools.remote.mcp_server import McpServer
from tests.processes import commands_left, no_command_is_left
from tests.tools.remote.test_mcp_server import SERVERS, Watcher, until

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-03")]

SERVER = str(SERVERS / "sdk.py")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def served(transport: str, port: int | None = None) -> Generator[int, None, None]:
    port = port or free_port()
    process = subprocess.Popen([sys.executable, SERVER, transport, str(port)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def http() -> Iterator[int]:
    yield from served("http")


@pytest.fixture(scope="module")
def sse() -> Iterator[int]:
    yield from served("sse")


async def exercised(server: McpServer) -> None:
    """What every server can do, over every transport."""

    async def ask(name: str, watcher: Watcher | None = None, **arguments: object):
        (made,) = (one for one in server.tools() if one.original == name)
        return await made.call(arguments, ToolContext(ToolCall("1", name, arguments), reporter=watcher))

    add = next(tool for tool in server.tools() if tool.original == "add")
    assert add.spec.description == "Add two numbers."
    assert add.spec.parameters["required"] == ["a"]
    answer = await ask("add", a=2, b=3)
    assert (answer.text, answer.data) == ("5", {"result": 5})
    watcher = Watcher()
    assert (await ask("slow", watcher)).text == "done"
    await until(lambda: len(watcher.heard) == 2)
    assert watcher.heard == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
    assert (await ask("picture")).media == (Media("image/png", data="YSBwaWN0dXJl"),)
    failed = await ask("fail")
    assert failed.is_error
    assert failed.text == "Error executing tool fail"
    assert (await ask("add", a="no number")).is_error


async def test_over_stdio():
    async with McpServer([sys.executable, SERVER, "stdio"], name="sdk") as server:
        await exercised(server)
        before = server.changed
        (learn,) = (one for one in server.tools() if one.original == "learn")
        await learn.call({"name": "newest"}, ToolContext(None))  # type: ignore[arg-type]  # it is not looked at
        await until(lambda: server.changed > before)
        assert server.tools()[-1].spec.name == "sdk__newest"
    assert no_command_is_left(), commands_left()


# On trio the SDK leaves its streams to the garbage collector, which trio says.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_over_streamable_http(http: int):
    async with McpServer(f"http://127.0.0.1:{http}/mcp", headers={"X-Test": "1"}) as server:
        assert server.name == "mcp_127_0_0_1"
        await exercised(server)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_over_server_sent_events(sse: int):
    async with McpServer(f"sse+http://127.0.0.1:{sse}/sse", name="old") as server:
        await exercised(server)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_goes_away_is_an_error_and_is_found_again_where_it_comes_back():
    port = free_port()
    first = served("http", port)
    next(first)
    async with McpServer(f"http://127.0.0.1:{port}/mcp", name="web") as server:
        await exercised(server)
        first.close()
        (add,) = (one for one in server.tools() if one.original == "add")
        for _ in range(2):
            with pytest.raises(ToolError, match="gave no answer"):
                await add.call({"a": 1}, ToolContext(None))  # type: ignore[arg-type]  # it is not looked at
        second = served("http", port)
        next(second)
        try:
            await anyio.sleep(1)
            assert (await add.call({"a": 1}, ToolContext(None))).text == "2"  # type: ignore[arg-type]  # the same
        finally:
            second.close()


async def test_an_address_where_nobody_answers_is_refused():
    with pytest.raises(ConfigError, match="the MCP server 'web' cannot be used"):
        await McpServer(f"http://127.0.0.1:{free_port()}/mcp", name="web").__aenter__()


@pytest.mark.feature("GT-03")
def test_a_subagent_works_with_the_files_of_a_server(capsys: pytest.CaptureFixture[str]):
    server = Path(__file__).parents[1] / "mcp_servers" / "files.py"
    example = Path(__file__).parents[3] / "examples" / "coding_subagent.py"
    runpy.run_path(str(example))["main"](["--mcp", f"{shlex.quote(sys.executable)} {shlex.quote(str(server))}"])
    said = capsys.readouterr().out
    assert "- files__read_text_file: def median(numbers):" in said
    assert "- files__edit_file: failed: " in said  # the slip
    assert "- shell: exit code 0" in said
    assert "goal: " in said
