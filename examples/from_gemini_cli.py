"""For those who know Gemini CLI's subagents: the same definition, in our words, offline.

| there | here |
| --- | --- |
| `promptConfig.systemPrompt` with `${topic}` | `instructions=Instructions("...", variables=...)` |
| `outputConfig`, `complete_task` | `outputs=`, `emit_value` |
| `runConfig.maxTurns`, `maxTimeMinutes` | `stop_when=MaxTurns(30)`, joined with `Timeout(600)` |
| the grace turn of 60 s | `last_turn=LastTurn(60)` |
| `toolConfig.tools` | `tools=` |
| `onActivity` | `async for event in run` |
| `AgentTerminateMode` | `outcome.reason` |
| `LoopDetectionService` | on by default |

With a key, put `monitor.model("google:gemini-2.5-flash")` in the place of the script.
"""

import asyncio

import monitor
from monitor.testing import ScriptedModel, call

NOTES = {"a.txt": "The pump runs at 40 degrees.", "b.txt": "The valve leaks since Monday."}


def list_notes() -> list[str]:
    """List the notes."""
    return sorted(NOTES)


def read_note(name: str) -> str:
    """Read a note."""
    return NOTES[name]


MODEL = ScriptedModel(
    [call("list_notes")],
    [call("read_note", name="a.txt"), call("read_note", name="b.txt")],
    "The valve is what matters.",  # it says so, and emits nothing: it is nudged, as there
    [call("emit_value", name="report", value="The valve leaks."), call("emit_value", name="risk", value=0.6)],
)


async def main() -> None:
    """Print what happens, and how the run ends."""
    subagent = monitor.Supervisor(
        MODEL,
        agent="notes_investigator",
        instructions=monitor.runs.Instructions(
            "You read the notes about ${topic}, and report what matters.", variables={"topic": "the plant"}
        ),
        tools=[list_notes, read_note],
        outputs={"report": str, "risk": float},
        stop_when=monitor.MaxTurns(30) | monitor.Timeout(600),
        last_turn=monitor.LastTurn(60),
    )
    async with subagent.stream("What do the notes say?") as run:
        async for event in run:
            match event:
                case monitor.events.ToolStarted(call=tool_call):
                    print(f"calls {tool_call.name} {tool_call.arguments}")
                case monitor.events.Nudged(text=text):
                    print(f"nudge: {text.splitlines()[0]}")
                case monitor.events.OutputEmitted(name=name, value=value):
                    print(f"{name} = {value}")
                case _:
                    pass  # another event
    print(f"{run.outcome.reason} after {run.outcome.turns} turns: {run.outcome.emitted}")
    assert run.outcome.reason is monitor.TerminateReason.GOAL


asyncio.run(main())
