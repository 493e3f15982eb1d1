"""A run asks a person, and its process dies. The answer, and what else the person has to say, come
from another process. A third one goes on with the run, which ends.

The model here is scripted, so the example needs no key. With a real one, only `answers` changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

import monitor
from monitor.messages import ApprovalRequest
from monitor.sessions import SQLiteSession, answer, inbox, tell
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals


class Dies(PendingApprovals):
    """Asks nobody: the process is gone before anybody can answer."""

    async def ask(self, request: ApprovalRequest) -> None:
        """Die, as a worker does whose machine is switched off. The question is stored."""
        os._exit(9)


def said(message: object) -> str:
    """The text of a message."""
    return "".join(getattr(part, "text", "") for part in getattr(message, "content", ()))


async def main(folder: Path, *, dies: bool) -> None:
    """One process: it begins the run and dies, or goes on with it."""

    @monitor.tool(needs_approval=True)
    def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    answers = [call("send", to="Ada"), "Ada has it.", "Bob's letter is written."]
    async with SQLiteSession(folder / "work.session") as session:
        model = ScriptedModel(*(answers if dies else answers[1:]))
        approver = Dies() if dies else PendingApprovals()
        supervisor = monitor.Supervisor(
            model, tools=[send], session=session, calls=monitor.runs.ToolCalls(approver=approver)
        )
        outcome = await (supervisor.run("Write to Ada.") if dies else supervisor.resume())
        for message in outcome.history:
            print(f"{type(message).__name__}: {said(message)}")
        assert (outcome.ok, outcome.turns, outcome.text) == (True, 3, "Bob's letter is written.")
        assert said(model.requests[0].messages[-1]) == "Keep it short."


async def person(folder: Path) -> None:
    """Another process: what `agent-monitor sessions inbox` and `agent-monitor sessions tell` do."""
    (waits,) = inbox(folder)
    (question,) = waits.questions
    print(f"{Path(waits.session).stem} is {waits.state}: may {question.tool} be called with {question.arguments}?")
    await answer(waits.session, question.id, "approved", by="Eve")
    tell(waits.session, "Keep it short.", by="Eve")
    tell(waits.session, "Then write to Bob.", kind="follow_up", by="Eve")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [made, "begin"]:
            anyio.run(lambda: main(Path(made), dies=True))
        case [made, "person"]:
            anyio.run(person, Path(made))
        case _:
            with tempfile.TemporaryDirectory() as made:
                died = subprocess.run([sys.executable, __file__, made, "begin"], check=False)
                print(f"the first process ended with {died.returncode}, while it asked")
                subprocess.run([sys.executable, __file__, made, "person"], check=True)
                anyio.run(lambda: main(Path(made), dies=False))
