import asyncio
import tempfile

from temporalio.client import Client
from temporalio.worker import Worker

import monitor
from monitor.fleet import FolderControl, FolderSessions, Supervisors
from monitor.integrations.temporal import Fleet, FleetPlugin
from monitor.testing import LocalTemporal, ScriptedModel, call


def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


async def main() -> None:
    model = ScriptedModel(call("send", to="Ada"), "Ada has it.")
    supervisors = Supervisors()  # every worker registers them in its code
    supervisors.add("writer", monitor.Supervisor(model, tools=[send]), version="1")
    with LocalTemporal() as server, tempfile.TemporaryDirectory() as folder:
        sessions, control = FolderSessions(folder), FolderControl(folder)
        client = await Client.connect(server.address)
        plugin = FleetPlugin(supervisors, sessions, control)
        async with Worker(client, task_queue="agents", plugins=[plugin], build_id="1"):
            fleet = Fleet(client, sessions, control, task_queue="agents")  # usually in another process
            run = await fleet.submit("writer", "Write to Ada.", key="letter-7")
            receipt = await fleet.result(run)
            print(receipt.reason, receipt.turns, receipt.detail)


asyncio.run(main())
