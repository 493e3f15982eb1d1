"""A long run in a small window, offline. It is compacted many times, and still knows the user's
first message.

With a key, put `monitor.model("google:gemini-2.5-flash")` in the place of the script; `window=` is
then for trying only.
"""

import asyncio
import re

import monitor
from monitor.models import ModelRequest
from monitor.testing import ScriptedModel, call

FILES = 60
TASK = (
    f"Read src/f1.py to src/f{FILES}.py in turn, then say where the report goes. It goes to /srv/reports/final-7731.md."
)
SUMMARY = """## Goal
Read all files, then say where the report goes.
## Constraints and Preferences
(none)
## Progress
The files so far are read; each holds one function.
## Key Decisions
(none)
## Next Steps
Read the next file.
## Critical Context
(none)
## Files and Artifacts
src/
## Tool and Runtime Notes
(none)
"""


class Script:
    """Stands for a model: it reads one file after another, and knows nothing but what each request
    says.
    """

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, request: ModelRequest) -> object:
        """Its answer."""
        if not request.tools:  # a summary is made without tools
            return SUMMARY
        if self.read < FILES:
            self.read += 1
            return [call("read_file", path=f"src/f{self.read}.py")]
        said = "".join(
            part.text
            for message in request.messages
            for part in message.content
            if isinstance(part, monitor.messages.Text)
        )
        where = re.search(r"It goes to (\S+)\.", said)
        return f"The report goes to {where[1]}." if where else "I have forgotten where the report goes."


def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "value = compute(value)  # and so on\n" * 150


async def main() -> None:
    """Print each compaction, then the answer."""
    model = ScriptedModel(Script())
    supervisor = monitor.Supervisor(model, tools=[read_file], window=32_000, compaction=monitor.Compaction.pi())
    async with supervisor.stream(TASK) as run:
        async for event in run:
            if isinstance(event, monitor.events.CompactionFinished):
                print(
                    f"turn {event.turn}: {event.tokens_before:,} -> {event.tokens_after:,} tokens,",
                    f"{event.kept_messages} messages kept, by {event.summarised_by}",
                )
    print(f"{run.outcome.reason} after {run.outcome.turns} turns: {run.outcome.text}")
    assert "/srv/reports/final-7731.md" in run.outcome.text


asyncio.run(main())
