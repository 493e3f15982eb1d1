import asyncio

import monitor
from monitor.testing import ScriptedStream


async def agent(guard: monitor.Guard, name: str, *words: str) -> str:
    async with guard.child(name) as child, child.watch(ScriptedStream(*words)) as watched:
        async for _ in watched:
            pass
    return watched.turn.text


async def main() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        answers = await asyncio.gather(agent(guard, "a", "It is ", "done."), agent(guard, "b", "So is ", "this."))
    print(answers, guard.outcome.turns)
    assert guard.outcome.turns == 2


asyncio.run(main())
