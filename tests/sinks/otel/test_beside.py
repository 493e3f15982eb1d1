"""Beside the real instrumentors of the SDKs, and inside the traces of real frameworks, nothing is
made twice, and all of it is one trace.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types
from opentelemetry.sdk.trace import ReadableSpan

import monitor
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer
from monitor.testing.openai_steps import Repeat, call, finish, text
from tests.adapters.google.sdk import sdk_warnings
from tests.integrations.programs.openai_client import client_of
from tests.sinks.otel.recorder import Recorder, recording

CHANT = "Let me check the file again. "
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the instrumentors
]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


@contextmanager
def instrumented(recorder: Recorder, module: str, name: str) -> Iterator[None]:
    """With the instrumentor switched on."""
    instrumentor = getattr(pytest.importorskip(module, reason=f"{module} is not installed"), name)()
    instrumentor.instrument(tracer_provider=recorder.tracers, meter_provider=recorder.meters, skip_dep_check=True)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def of_calls(recorder: Recorder) -> list[ReadableSpan]:
    """The spans of model calls, whoever made them."""
    return [span for span in recorder.spans if _operation(span) in {"chat", "generate_content", "LLM"}]


def _operation(span: ReadableSpan) -> object:
    given = span.attributes or {}
    return given.get("gen_ai.operation.name") or given.get("openinference.span.kind")


def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


def openai_server() -> LocalServer:
    return LocalOpenAI([[call("look", {"q": "a"}, id="c1"), finish("tool_calls")], [text("It is done."), finish()]])


def openai_model(server: LocalServer, clients: AsyncExitStack) -> Any:
    client = openai.AsyncOpenAI(api_key="none", base_url=server.base_url, max_retries=0)
    clients.push_async_callback(client.close)
    return monitor.model("openai:local", client=client)


def responses_server() -> LocalServer:
    first = [*openai_steps.response_call("look", {"q": "a"}, id="c1"), openai_steps.response_finish()]
    return LocalOpenAI([first, openai_steps.response_events_of("It is done.")])


def responses_model(server: LocalServer, clients: AsyncExitStack) -> Any:
    client = openai.AsyncOpenAI(api_key="none", base_url=server.base_url, max_retries=0)
    clients.push_async_callback(client.close)
    return monitor.model("openai-responses:local", client=client)


def anthropic_server() -> LocalServer:
    first = [anthropic_steps.start(), *anthropic_steps.call("look", {"q": "a"}), *anthropic_steps.finish("tool_use")]
    return LocalAnthropic([first, anthropic_steps.events_of("It is done.")])


def anthropic_model(server: LocalServer, clients: AsyncExitStack) -> Any:
    client = anthropic.AsyncAnthropic(api_key="none", base_url=server.base_url, max_retries=0)
    clients.push_async_callback(client.close)
    return monitor.model("anthropic:local", client=client)


def gemini_server() -> LocalServer:
    first = [gemini_steps.call("look", {"q": "a"}), gemini_steps.finish()]
    return LocalGemini([first, [gemini_steps.text("It is done."), gemini_steps.finish()]])


def gemini_model(server: LocalServer, clients: AsyncExitStack) -> Any:
    options = types.HttpOptions(base_url=server.base_url, async_client_args={"transport": httpx2.AsyncHTTPTransport()})
    client = genai.Client(api_key="none", http_options=options)
    clients.push_async_callback(client.aio.aclose)
    clients.callback(client.close)
    return monitor.model("google:gemini-2.5-flash", client=client)


OPENAI = (openai_server, openai_model)
RESPONSES = (responses_server, responses_model)
SDKS = {
    "openai": ("opentelemetry.instrumentation.genai.openai", "OpenAIInstrumentor", OPENAI),
    "openai of OpenInference": ("openinference.instrumentation.openai", "OpenAIInstrumentor", OPENAI),
    "responses": ("opentelemetry.instrumentation.genai.openai", "OpenAIInstrumentor", RESPONSES),
    "responses of OpenInference": ("openinference.instrumentation.openai", "OpenAIInstrumentor", RESPONSES),
    "anthropic": (
        "opentelemetry.instrumentation.genai.anthropic",
        "AnthropicInstrumentor",
        (anthropic_server, anthropic_model),
    ),
    "google-genai": (
        "opentelemetry.instrumentation.google_genai",
        "GoogleGenAiSdkInstrumentor",
        (gemini_server, gemini_model),
    ),
}


async def run_of_two_calls(recorder: Recorder, parts: Any) -> None:
    """A supervised run inside a span of the program."""
    serve, model_of = parts
    async with AsyncExitStack() as clients:
        server = clients.enter_context(serve())
        model = model_of(server, clients)
        sink = recorder.sink(model=model, now_ns=time.time_ns)
        with recorder.tracers.get_tracer("program").start_as_current_span("request"):
            ended = await monitor.Supervisor(model, tools=[look], sinks=[sink]).run("go")
        assert ended.ok, ended.detail
        assert len(server.requests) == 2


@sdk_warnings
@pytest.mark.parametrize("name", SDKS)
async def test_beside_a_real_instrumentor_each_call_has_one_span_and_all_is_one_trace(recorder: Recorder, name: str):
    module, instrumentor, parts = SDKS[name]
    with instrumented(recorder, module, instrumentor):
        await run_of_two_calls(recorder, parts)
    calls = of_calls(recorder)
    assert len(calls) == 2
    assert {span.instrumentation_scope.name for span in calls if span.instrumentation_scope} != {"agent-monitor"}
    assert Counter(_operation(span) for span in recorder.spans)["execute_tool"] == 1
    assert len({span.context.trace_id for span in recorder.spans}) == 1
    assert recorder.parent_of(recorder.named("invoke_agent researcher")) == "request"
    for metric in ("gen_ai.client.token.usage", "gen_ai.client.operation.duration"):
        assert recorder.scopes_of(metric) <= {module}
    assert recorder.metrics()["gen_ai.invoke_agent.inference_calls"][0].sum == 2


@sdk_warnings
async def test_an_instrumentor_that_is_switched_off_takes_nothing_away(recorder: Recorder):
    module, instrumentor, parts = SDKS["openai"]
    with instrumented(recorder, module, instrumentor):
        pass
    await run_of_two_calls(recorder, parts)
    assert [span.instrumentation_scope.name for span in of_calls(recorder) if span.instrumentation_scope] == [
        "agent-monitor"
    ] * 2
    assert recorder.scopes_of("gen_ai.client.token.usage") == {"agent-monitor"}


# --- frameworks


async def guarded_pydantic_ai(recorder: Recorder, base_url: str) -> None:
    """An agent that makes its own spans, as a user writes it."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.instrumented import InstrumentationSettings
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from monitor.integrations.pydantic_ai import GuardedModel, Stopped

    async with client_of(base_url) as client:
        model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model, name="theirs", tools=[look])
        agent.instrument = InstrumentationSettings(tracer_provider=recorder.tracers, meter_provider=recorder.meters)
        async with monitor.Guard(sinks=[recorder.sink(model="openai:local", now_ns=time.time_ns)]) as guard:
            with pytest.raises(Stopped):
                await agent.run("go", model=GuardedModel(model, guard))


async def guarded_agents(recorder: Recorder, base_url: str, *, traced: bool) -> None:
    """A run of the Agents SDK, as a user writes it."""
    pytest.importorskip("agents")
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

    from monitor.integrations.openai_agents import GuardedModel, Stopped

    sink = recorder.sink(model="openai:local", now_ns=time.time_ns)
    async with client_of(base_url) as client, monitor.Guard(sinks=[sink]) as guard:
        model = GuardedModel(OpenAIChatCompletionsModel("local", client), guard)
        config = RunConfig(model=model, tracing_disabled=not traced)
        result = Runner.run_streamed(Agent(name="theirs", tools=[function_tool(look)]), "go", run_config=config)
        with pytest.raises(Stopped):
            async for _ in result.stream_events():
                pass


def looping_server() -> LocalServer:
    first = [call("look", {"q": "a"}, id="c1"), finish("tool_calls")]
    return LocalOpenAI([first, [Repeat(text(CHANT), 5000, delay_s=0.001)]])


def one_trace_with_the_reason(recorder: Recorder) -> None:
    assert len({span.context.trace_id for span in recorder.spans}) == 1
    [found] = [span for span in recorder.spans if (span.attributes or {}).get("monitor.reason") == "loop_detected"]
    assert found.name == "monitor.run researcher"
    assert _operation(found) is None
    assert not [name for name in found.attributes or {} if name.startswith("gen_ai.usage.")]
    told = [event.name for span in recorder.spans for event in span.events]
    assert told.count("monitor.detection") == told.count("monitor.stop") == 1
    ours = [span.name for span in recorder.spans if span.instrumentation_scope.name == "agent-monitor"]
    assert ours == ["monitor.run researcher"]


async def test_inside_the_trace_of_pydantic_ai_its_spans_are_the_only_ones_of_calls_and_tools(recorder: Recorder):
    with looping_server() as server:
        await guarded_pydantic_ai(recorder, server.base_url)
    one_trace_with_the_reason(recorder)
    assert Counter(_operation(span) for span in recorder.spans) == {
        "invoke_agent": 1,
        "chat": 2,
        "execute_tool": 1,
        None: 1,
    }
    assert recorder.parent_of(recorder.named("monitor.run researcher")) == "invoke_agent theirs"
    cut = of_calls(recorder)[1]
    assert "monitor.detection" in {event.name for event in cut.events}
    assert (cut.attributes or {})["monitor.stopped"] == "loop_detected"
    assert recorder.scopes_of("gen_ai.client.token.usage") <= {"pydantic-ai"}


@pytest.mark.parametrize(
    ("module", "calls"),
    [
        ("openinference.instrumentation.openai_agents", 2),
        ("opentelemetry.instrumentation.genai.openai_agents", 0),  # it leaves them to the SDK's instrumentor
    ],
)
async def test_inside_the_trace_of_the_agents_sdk_nothing_is_made_twice(
    recorder: Recorder, module: str, calls: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_AGENTS_DISABLE_TRACING", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)  # the SDK's own exporter would send the run to OpenAI
    with instrumented(recorder, module, "OpenAIAgentsInstrumentor"), looping_server() as server:
        await guarded_agents(recorder, server.base_url, traced=True)
    one_trace_with_the_reason(recorder)
    assert len(of_calls(recorder)) == calls
    assert "theirs" in (recorder.parent_of(recorder.named("monitor.run researcher")) or "")


async def test_beside_the_agents_sdk_without_opentelemetry_the_run_is_below_the_programs_span(recorder: Recorder):
    with looping_server() as server, recorder.tracers.get_tracer("program").start_as_current_span("request"):
        await guarded_agents(recorder, server.base_url, traced=False)
    assert len({span.context.trace_id for span in recorder.spans}) == 1
    assert recorder.parent_of(recorder.named("invoke_agent researcher")) == "request"
    assert [recorder.parent_of(span) for span in of_calls(recorder)] == ["invoke_agent researcher"] * 2
