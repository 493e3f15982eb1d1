import anyio

from monitor import Supervisor
from monitor.fleet import FolderControl, FolderSessions, Supervisors
from monitor.integrations.dbos import Fleet
from monitor.testing import ScriptedModel


async def main() -> None:
    supervisors = Supervisors()  # in the code of every worker
    supervisors.add("poet", Supervisor(ScriptedModel(lambda request: "Roses are red.")))

    # The same in all processes: the queue, the sessions, and where aborts are written.
    fleet = Fleet("sqlite:///fleet.db", FolderSessions("runs"), control=FolderControl("runs"), poll_s=0.1)

    session = await fleet.submit("poet", "Write a poem.", key="poem-1")  # any process may do this
    async with fleet.work(supervisors, worker="worker-1"):  # this process is a worker meanwhile
        receipt = await fleet.result(session)
    print(receipt.reason, receipt.turns)  # goal 1
    await fleet.aclose()


anyio.run(main)
