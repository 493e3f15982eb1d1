import asyncio

import monitor
from monitor.testing import ScriptedModel, call


async def look(path: str, context: monitor.ToolContext) -> str:
    """Look at a file."""
    await context.run.steer("Leave the tests as they are.", by="Ada")
    await context.run.follow_up("Then write a changelog.")
    return "12 lines"


async def main() -> None:
    model = ScriptedModel(call("look", path="main.py"), "It is tidy.", "The changelog is written.")
    outcome = await monitor.Supervisor(model, tools=[look]).run("Tidy up")
    print(outcome.text, outcome.turns)
    assert "Leave the tests as they are." in str(model.requests[1].messages[-1])


asyncio.run(main())
