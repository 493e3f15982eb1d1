import anyio
import monitor
from monitor.sessions import SQLiteSession
from monitor.testing import ScriptedModel, call


def look(q: str) -> str:
    """Look."""
    return f"nothing about {q}"


async def main() -> None:
    async with SQLiteSession("loops.session", chunks=True) as session:
        model = ScriptedModel(*(call("look", q="rain") for _ in range(4)), "There is nothing.")
        await monitor.Supervisor(model, tools=[look], session=session).run("Look for rain.")
        again = await monitor.replay(session)
        print(again.as_stored, len(again.events))
        strict = await monitor.replay(
            session, detectors=[monitor.ToolCallRepetition(loop_at=3)], policy=monitor.StopAtFirstLoop()
        )
        print(strict.departed)


anyio.run(main)
