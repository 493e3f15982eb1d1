import asyncio

from opentelemetry.sdk.trace import TracerProvider

import monitor
from monitor.sinks import in_tool_span
from monitor.testing import ScriptedModel, call

provider = TracerProvider()
tracer = provider.get_tracer("program")


async def fetch(url: str) -> str:
    """Fetch a page."""
    with in_tool_span(), tracer.start_as_current_span("GET") as span:  # or an instrumented client
        print("the request has a parent:", getattr(span, "parent", None) is not None)
        return "a page"


async def main() -> None:
    model = ScriptedModel([call("fetch", url="https://example.org")], "done")
    with monitor.sinks.OtelSink(model=model, tracer_provider=provider) as telemetry:
        await monitor.Supervisor(model, tools=[fetch], sinks=[telemetry]).run("Fetch it")


asyncio.run(main())
