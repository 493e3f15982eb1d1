import asyncio

from anthropic import AsyncAnthropic

import monitor
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import call, finish, start


def population(city: str) -> int:
    """How many people live there."""
    return 2_100_000


async def main() -> None:
    looks_it_up = [start(), *call("population", {"city": "Paris"}), *finish("tool_use")]
    emits_it = [start(), *call("emit_value", {"name": "people", "value": 2_100_000}), *finish("tool_use")]
    with LocalAnthropic([looks_it_up, emits_it]) as server:
        async with AsyncAnthropic(api_key="none", base_url=server.base_url, max_retries=0) as client:
            model = monitor.model("anthropic:claude-sonnet-5", client=client)
            supervisor = monitor.Supervisor(
                model, tools=[population], outputs={"people": int}, stop_when=monitor.MaxTurns(10)
            )
            outcome = await supervisor.run("How many people live in Paris?")
    print(outcome.reason, outcome.emitted)


asyncio.run(main())
