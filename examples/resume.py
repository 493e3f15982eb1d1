"""A run dies in the middle of a tool. Another process goes on with it, and no effect happens twice.

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
from monitor.sessions import SQLiteSession
from monitor.testing import ScriptedModel, call


async def main(folder: Path, *, dies: bool) -> None:
    """One process: it begins the run and dies in the middle of it, or goes on with it."""
    letters, report = folder / "letters.txt", folder / "report.txt"

    def send(to: str) -> str:
        """Send a letter."""
        with letters.open("a") as file:
            print(to, file=file)
        if dies:
            os._exit(9)  # the power is gone: the letter is sent, and its result is lost
        return f"sent to {to}"

    @monitor.tool(idempotent=True)
    def write(text: str) -> str:
        """Write the report."""
        report.write_text(text)
        return "written"

    answers = [call("send", to="Ada"), [call("write", text="Ada has it.")], "All is done."]
    async with SQLiteSession(folder / "work.session") as session:
        model = ScriptedModel(*(answers if dies else answers[1:]))
        supervisor = monitor.Supervisor(model, tools=[send, write], session=session)
        outcome = await (supervisor.run("Write to Ada, then report.") if dies else supervisor.resume())
        for result in (result for reply in outcome.history[1:] for result in getattr(reply, "results", ())):
            print(f"{result.name}: {result.text}")
        print(f"{outcome.reason}: {outcome.text}")
        assert (outcome.ok, letters.read_text(), report.read_text()) == (True, "Ada\n", "Ada has it.")


if __name__ == "__main__":
    if sys.argv[1:]:
        anyio.run(lambda: main(Path(sys.argv[1]), dies=True))
    else:
        with tempfile.TemporaryDirectory() as made:
            died = subprocess.run([sys.executable, __file__, made], check=False)
            print(f"the first process ended with {died.returncode}, in the middle of send")
            anyio.run(lambda: main(Path(made), dies=False))
