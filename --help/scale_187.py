import anyio

from monitor import Supervisor
from monitor.fleet import FolderSessions, FleetJob, NextTurn, Supervisors, decide, enter, session_id, take_turn
from monitor.testing import ScriptedModel


async def main() -> None:
    supervisors, sessions = Supervisors(), FolderSessions("runs")
    supervisors.add("poet", Supervisor(ScriptedModel("Roses are red.")))
    id = session_id("poem-1")
    await enter(sessions, id, FleetJob(supervisor="poet", version="1", task="Write a poem."))

    following: object = NextTurn(1)
    while isinstance(following, NextTurn):  # the workflow: deterministic
        receipt = await take_turn(supervisors, sessions, id, following.turn)  # a step: may run again
        following = decide(receipt)
    print(following)  # End(ok=True, reason='goal')


anyio.run(main)
