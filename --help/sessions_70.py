import asyncio

import monitor
from monitor.sessions import SQLiteSession
from monitor.testing import ScriptedModel, call


def read_page(number: int) -> str:
    """Read a page of the report."""
    return f"Page {number}: nothing unusual."


def reader(tokens: int) -> monitor.Supervisor:
    return monitor.Supervisor(MODEL, tools=[read_page], budget=monitor.Budget(tokens=tokens))


# in life: monitor.model("openai:gpt-5")
MODEL = ScriptedModel(call("read_page", number=1), call("read_page", number=2), "Nothing.", "You are welcome.")


async def main() -> None:
    async with SQLiteSession("report.session") as session:
        outcome = await reader(tokens=5).run("Is there anything unusual?", session=session)
        print(outcome.reason, "-", outcome.detail)
    async with SQLiteSession("report.session") as session:  # tomorrow
        stopped = (await session.runs())[-1]
        outcome = await reader(tokens=200_000).resume(session, run=stopped.id)
        print(outcome.reason, "-", outcome.text)
        outcome = await reader(tokens=200_000).run("Thank you.", session=session)  # a new run of the same conversation
        print(len(outcome.history))


asyncio.run(main())
