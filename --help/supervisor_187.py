import asyncio

import monitor
from monitor.testing import ScriptedModel, call


async def main() -> None:
    model = ScriptedModel("Let me think.", [call("emit_value", name="risk", value=0.5)])
    async with monitor.Supervisor(model, outputs={"risk": float}).stream("How risky?") as run:
        async for event in run:
            match event:
                case monitor.events.ChunkReceived(chunk=monitor.chunks.TextDelta(text=text)):
                    print(text)
                case monitor.events.Nudged() | monitor.events.OutputEmitted() | monitor.events.RunTerminated():
                    print(type(event).__name__)
                case _:
                    pass  # another event
    print(run.outcome.reason)


asyncio.run(main())
