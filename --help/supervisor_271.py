import asyncio

import monitor
from monitor.testing import ScriptedModel, call, capture_events


async def my_agent(model: monitor.models.Model) -> monitor.Outcome:
    """The code under test."""

    def search(query: str) -> str:
        """Search the web."""
        raise ConnectionError("no network")

    return await monitor.Supervisor(model, tools=[search]).run("Search")


model = ScriptedModel([call("search", query="x")], "I cannot search just now.")
with capture_events() as events:
    asyncio.run(my_agent(model))

print(*events.summary(), sep="\n")
assert 'call search(query="x")' in events.summary()
assert "error of search: Error: ConnectionError: no network" in events.summary()
assert events.outcome.reason == "goal"
assert [spec.name for spec in model.requests[0].tools] == ["terminate", "search"]
assert events.of(monitor.events.ToolFinished)[0].result.is_error
