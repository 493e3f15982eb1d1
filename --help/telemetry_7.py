import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import monitor
from monitor.testing import ScriptedModel, call

exporter = InMemorySpanExporter()  # a program has an OTLP exporter here
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


async def search(query: str) -> str:
    """Search the web."""
    return "42 mm"


async def main() -> None:
    model = ScriptedModel([call("search", query="rain in May")], "42 mm")  # monitor.model("google:gemini-2.5-flash")
    with monitor.sinks.OtelSink(agent="weather", model=model, tracer_provider=provider) as telemetry:
        await monitor.Supervisor(model, tools=[search], sinks=[telemetry]).run("How much did it rain in May?")


asyncio.run(main())
for span in exporter.get_finished_spans():
    print(span.name, (span.attributes or {}).get("monitor.reason", ""))
