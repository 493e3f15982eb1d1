"""For those who know opencode's compaction: the same numbers, in our words, offline.

| there | here |
| --- | --- |
| `compaction.auto` | `compaction=Compaction.opencode()`; `None` is off |
| `isOverflow`: the window less a reserve of 20,000 tokens | the preset has it |
| `compaction.prune`: newest two turns and 40,000 tokens stay | `after_turn=[PruneResults()]` |
| `skill` is never pruned | `PruneResults(protected_tools=...)`; `skill` is its default |
| the hook `experimental.session.compacting` | `monitor.context.CompactionHook` |
| `/compact` | `await run.compact()` |
| the part of type `compaction` | a node of the session; the original stays readable |

With a key, put `monitor.model("anthropic:claude-sonnet-4-5")` in the place of the script; `window=`
is then for trying only.
"""

import asyncio

import monitor
from monitor.context import BeforeCompaction, CompactionAsked, CompactionHook, PruneResults
from monitor.models import ModelRequest
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel, call

NOTES = 40
IMPORTANT = 2
SUMMARY = """## Goal
Read all notes, then say which valve leaks.
## Constraints & Preferences
(none)
## Progress
### Done
The notes so far are read.
### In Progress
(none)
### Blocked
(none)
## Key Decisions
(none)
## Next Steps
Read the next note.
## Critical Context
Valve 7 leaks.
## Relevant Files
(none)
"""


class Script:
    """Stands for a model: it reads one note after another, and summarises when it is asked to."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, request: ModelRequest) -> object:
        """Its answer."""
        if not request.tools:  # a summary is made without tools
            return SUMMARY
        self.read += 1
        return [call("read_note", number=self.read)] if self.read <= NOTES else "Valve 7 leaks."


def read_note(number: int) -> str:
    """Read a note."""
    return (
        f"Note {number}: " + ("Valve 7 leaks. " if number == IMPORTANT else "") + "The pump runs at 40 degrees. " * 250
    )


def keep_numbers(_: CompactionAsked) -> BeforeCompaction:
    """What a plugin of opencode puts into `context`."""
    return BeforeCompaction(context="Keep the numbers of valves.")


async def main() -> None:
    """Print each compaction, then the answer and the size of what is stored."""
    async with InMemorySession() as session:
        agent = monitor.Supervisor(
            ScriptedModel(Script()),
            tools=[read_note],
            session=session,
            window=48_000,
            compaction=monitor.Compaction.opencode(
                hooks=[CompactionHook(before=keep_numbers)],
                after_turn=[PruneResults(protect_turns=0, protect_tokens=18_000, more_than_tokens=4_000)],
            ),
        )
        async with agent.stream(f"Read the notes 1 to {NOTES}, then say which valve leaks.") as run:
            async for event in run:
                match event:
                    case monitor.events.HistoryReduced(saved_tokens=saved):
                        print(f"turn {event.turn}: old results are pruned, {saved:,} tokens less")
                    case monitor.events.CompactionFinished(tokens_before=before, tokens_after=after):
                        print(f"turn {event.turn}: compacted, {before:,} -> {after:,} tokens")
                    case _:
                        pass  # another event
        print(f"{run.outcome.reason}: {run.outcome.text}")
        print(f"{len(await session.nodes())} nodes are stored, every note among them")
    assert run.outcome.ok


asyncio.run(main())
