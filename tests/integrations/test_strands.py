"""Strands: its events, its own end, and the model of Bedrock, which reads in a thread."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("strands", reason="`make frameworks` runs this: strands needs an older mcp than the other tests")

import strands
from strands.middleware import InvokeModelStage
from strands.models import BedrockModel
from strands.models.openai import OpenAIModel
from strands.plugins import Plugin

import monitor
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError, ConfigError, FinishReason
from monitor.integrations.strands import GuardPlugin, Stopped, StrandsAdapter
from monitor.testing import LocalOpenAI
from tests.integrations.programs.strands import agent_of, openai_model
from tests.integrations.wires import CHANT, OPENAI


def nothing(q: str) -> str:
    """Finds nothing."""
    return f"nothing about {q} was found in the archive"


def read(*events: Any) -> list[Any]:
    adapter = StrandsAdapter(0)
    return [one for event in events for one in adapter.decode(event)] + list(adapter.finish())


def delta(**fields: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"delta": fields}}


def test_text_thinking_calls_usage_and_the_end_are_read():
    assert read(
        {"messageStart": {"role": "assistant"}},
        delta(reasoningContent={"text": "Hm."}),
        delta(reasoningContent={"signature": "c2ln"}),
        delta(text="Yes."),
        {"contentBlockStart": {"start": {"toolUse": {"name": "look", "toolUseId": "a"}}}},
        delta(toolUse={"input": '{"q": '}),
        delta(toolUse={"input": "1}"}),
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}, "metrics": {}}},
    ) == [
        ReasoningDelta("Hm."),
        TextDelta("Yes."),
        ToolCallDelta("a", "look", ""),
        ToolCallDelta("a", None, '{"q": '),
        ToolCallDelta("a", None, "1}"),
        ToolCall("a", "look", {"q": 1}),
        TurnFinished(FinishReason.DONE, "tool_use"),
        UsageReport(input_tokens=7, output_tokens=3, total_tokens=10),
    ]


def test_a_call_that_is_named_in_its_first_piece_is_a_call():
    chunks = read(delta(toolUse={"name": "look", "toolUseId": "a", "input": "{}"}), {"contentBlockStop": {}})
    assert chunks[-1] == ToolCall("a", "look", {})


def test_a_call_that_the_stream_cuts_off_has_its_text_as_arguments():
    chunks = read(
        {"contentBlockStart": {"start": {"toolUse": {"name": "look", "toolUseId": "a"}}}},
        delta(toolUse={"input": '{"q": 1}'}),
    )
    assert chunks[-1] == ToolCall("a", "look", '{"q": 1}')


def test_an_answer_at_the_output_limit_is_not_done():
    assert read({"messageStop": {"stopReason": "max_tokens"}}) == [TurnFinished(FinishReason.LENGTH, "max_tokens")]


def test_an_object_of_another_library_is_refused():
    with pytest.raises(AdapterError, match="expected an event of a model of Strands, not str"):
        StrandsAdapter().decode("hello")


def test_an_unknown_exit_behaviour_is_refused():
    with pytest.raises(ConfigError, match="'end' or 'error'"):
        GuardPlugin(monitor.Guard(), exit_behavior="stop")  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_the_exception_of_a_later_turn_is_not_wrapped_and_the_model_stays_the_agents_own():
    guard = monitor.Guard()
    with LocalOpenAI(OPENAI.looks(20)) as server:
        model = openai_model(server.base_url)
        async with guard:
            agent = agent_of(model, guard, nothing, exit_behavior="error")
            with pytest.raises(Stopped, match="gave the same result"):
                await agent.invoke_async("go")
        assert agent.model is model


@pytest.mark.asyncio
async def test_a_cancelled_agent_leaves_the_stream_and_the_guard_goes_on():
    guard = monitor.Guard()
    with LocalOpenAI([OPENAI.says("one ", "two ", "three"), OPENAI.says("Yes.")]) as server:
        async with guard:
            agent = agent_of(openai_model(server.base_url), guard, nothing)
            result: Any = None
            async for event in agent.stream_async("go"):
                if "data" in event:
                    agent.cancel()
                result = event.get("result", result)
            assert result.stop_reason == "cancelled"
            assert (await agent.invoke_async("and now?")).stop_reason == "end_turn"
    assert guard.outcome.turns == 2


@pytest.mark.asyncio
async def test_two_agents_of_a_run_share_the_plugin():
    guard = monitor.Guard(stop_when=monitor.MaxTurns(2))
    with LocalOpenAI(OPENAI.looks(20)) as server:
        async with guard:
            plugin = GuardPlugin(guard)
            look = strands.tool(name="look", description="Looks.")(nothing)
            first, second = (
                strands.Agent(openai_model(server.base_url), tools=[look], plugins=[plugin], callback_handler=None)
                for _ in range(2)
            )
            await first.invoke_async("go")
            result = await second.invoke_async("go")
        assert len(server.requests) == 2
    assert result.state["agent_monitor"]["reason"] == "max_turns"


# --- Bedrock


def frame(kind: str, body: dict[str, Any]) -> bytes:
    """One message of AWS's event stream."""
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


@contextmanager
def bedrock() -> Iterator[tuple[str, threading.Event]]:
    """A local service that chants until its client leaves. Yields its address, and the event of
    that.
    """
    left = threading.Event()

    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.amazon.eventstream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                self._send(frame("messageStart", {"role": "assistant"}))
                for _ in range(20_000):
                    self._send(frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": CHANT}}))
            except OSError:
                left.set()

        def _send(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", left
        finally:
            server.shutdown()


@pytest.mark.asyncio
async def test_the_thread_that_reads_from_bedrock_leaves_when_the_guard_does(monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    guard = monitor.Guard()
    with bedrock() as (url, left):
        model = BedrockModel(model_id="local", endpoint_url=url, region_name="us-east-1")
        async with guard:
            agent = strands.Agent(model, plugins=[GuardPlugin(guard)], callback_handler=None)
            result = await agent.invoke_async("go")
        assert left.wait(60)
    assert result.state["agent_monitor"]["reason"] == "loop_detected"
    assert result.message["content"][0]["text"].startswith(CHANT)


class Looks(Plugin):
    """Other middleware, which notes the class of the model."""

    name = "looks"

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[Any] = []

    def init_agent(self, agent: Any) -> None:
        agent.add_middleware(InvokeModelStage, self.middleware)

    async def middleware(self, context: Any, next_fn: Any) -> Any:
        self.kinds.append((isinstance(context.model, OpenAIModel), repr(type(context.model))))
        async for event in next_fn(context):
            yield event


@pytest.mark.asyncio
async def test_other_middleware_sees_a_model_of_the_same_class_and_name():
    looks = Looks()
    with LocalOpenAI([OPENAI.says("It is done.")]) as server:
        async with monitor.Guard() as guard:
            for plugins in ([looks], [GuardPlugin(guard), looks]):
                agent = strands.Agent(openai_model(server.base_url), plugins=plugins, callback_handler=None)
                await agent.invoke_async("go")
    assert guard.outcome.turns == 1
    assert looks.kinds == [(True, repr(OpenAIModel))] * 2
