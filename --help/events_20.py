import asyncio

import monitor
from monitor.testing import ScriptedModel, call


def agent(name: str) -> monitor.tools.Tool:
    supervisor = monitor.Supervisor(ScriptedModel(f"The {name} is closed."))
    return supervisor.as_tool(name=name, description=f"Looks at the {name}.")


async def main() -> None:
    calls = [call("door", task="look"), call("window", task="look")]
    lead = monitor.Supervisor(
        ScriptedModel(calls, "All is closed."), agent="lead", tools=[agent("door"), agent("window")]
    )
    async with lead.stream("Is all closed?") as run:
        async for envelope in run.envelopes():
            if isinstance(envelope.event, monitor.events.TurnEnded):
                print(envelope.agent, envelope.seq, envelope.event.turn.text)


asyncio.run(main())
