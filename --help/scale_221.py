import anyio
from monitor import Supervisor
from monitor.events import OutageFound
from monitor.runs import Requests
from monitor.shared import OutageRule, Outages
from monitor.sinks import MemorySink
from monitor.testing import ScriptedModel, call

left = 6  # calls that fail before the service is back


async def search(q: str) -> str:
    """Search."""
    global left
    if left > 0:
        left -= 1
        raise ConnectionError("the index does not answer")
    return "anyio 4.11"


async def main() -> None:
    outages = Outages(rule=OutageRule(runs=3, probe_every_s=0.1))
    seen = MemorySink()

    async def one() -> None:
        model = ScriptedModel(*[call("search", q="anyio") for _ in range(2)], "Version 4.11.")
        supervisor = Supervisor(model, tools=[search], requests=Requests(outages=outages), sinks=[seen])
        await supervisor.run("Which is the newest?")

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(one)
    for event in seen.events:
        if isinstance(event, OutageFound):
            print(event.finding.what, "failed in", event.finding.runs, "runs")  # tool search, 3


anyio.run(main)
