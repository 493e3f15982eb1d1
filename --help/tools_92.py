import asyncio
from typing import Any

import monitor


@monitor.tool
async def ship(version: str) -> Any:
    """Ship a version. The work is done then."""
    return monitor.tools.finish(f"{version} is out")  # ok=False ends the run as a failure


async def main() -> None:
    model = monitor.testing.ScriptedModel(monitor.testing.call("ship", version="v2"))
    outcome = await monitor.Supervisor(model, tools=[ship]).run("Ship it.")
    print(outcome.ok, outcome.detail)  # True ship ended the run with success: v2 is out


asyncio.run(main())
