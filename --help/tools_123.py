import anyio
import monitor
from monitor.sessions import InMemorySession, deliver
from monitor.testing import ScriptedModel, call

asked: list[str] = []


@monitor.tool
async def ask_office(question: str, context: monitor.ToolContext) -> monitor.tools.ToolAnswer:
    """Ask the office."""
    asked.append(context.idempotency_key)  # sent with the question
    return monitor.tools.deferred("the office")


async def main() -> None:
    session = InMemorySession()
    model = ScriptedModel(call("ask_office", question="May we?"), "They say yes.")
    supervisor = monitor.Supervisor(model, tools=[ask_office], session=session)
    print((await supervisor.run("Ask.")).detail)  # a call waits for its result: the office
    await deliver(session, asked[0], "yes")
    print((await supervisor.resume()).text)  # They say yes.


anyio.run(main)
