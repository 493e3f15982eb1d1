import anyio

from monitor import Supervisor
from monitor.messages import ApprovalAnswer
from monitor.fleet import FolderControl, FolderSessions, Supervisors
from monitor.integrations.dbos import Fleet
from monitor.runs import ToolCalls
from monitor.testing import ScriptedModel, call


def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


async def main() -> None:
    sessions, control = FolderSessions("runs"), FolderControl("runs")
    fleet = Fleet("sqlite:///fleet.db", sessions, control=control, poll_s=0.1)
    supervisors = Supervisors()
    model = ScriptedModel(call("send", to="Ada"), call("send", to="Bob"), "The letter to Ada is sent.")
    supervisors.add("writer", Supervisor(model, tools=[send], calls=ToolCalls(approval="default")))
    asks = await fleet.submit("writer", "Write to Ada.")

    async with fleet.work(supervisors, worker="worker-1", concurrency=1):
        waits = await fleet.result(asks)
        print(waits.next, waits.reason)  # wait paused
        async with sessions.open(asks) as session:
            (question,) = await session.approvals(only_open=True)
        await fleet.answer(asks, ApprovalAnswer(id=question.request.id, decision="approved"))
        print((await fleet.result(asks)).next)  # wait: the model wants another letter
        await fleet.abort(asks, "one letter is enough")
        print((await fleet.result(asks)).reason)  # aborted
    await fleet.aclose()


anyio.run(main)
