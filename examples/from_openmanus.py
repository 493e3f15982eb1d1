"""For those who know OpenManus: an agent that thinks, acts and follows a plan, in our words,
offline.

| there | here |
| --- | --- |
| `ToolCallAgent(available_tools=ToolCollection(...))` | `Supervisor(tools=[...])` |
| `max_steps = 20` | `stop_when=MaxTurns(20)` |
| `Terminate` in `special_tool_names` | `terminate`, offered where there are outputs or a plan |
| `AgentState.FINISHED`, `ERROR` | `outcome.ok`, `outcome.reason` |
| `is_stuck`, `duplicate_threshold` | the detectors and the `Ladder`, on by default |
| `PlanningFlow`, `[✓] [→] [!]` | `plan=Plan([...])`, `update_plan` |
| `tool_choices = ToolChoice.AUTO` | `requests=Requests(tool_choice="auto")` |

With a key, put `monitor.model("openai:gpt-5")` in the place of the script.
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


def step(number: int, status: str) -> object:
    """The model marks a step of the plan."""
    return call("update_plan", step=number, status=status)


MODEL = ScriptedModel(
    [step(1, "in_progress"), call("list_notes")],
    [call("read_note", name="a.txt"), call("read_note", name="b.txt")],
    [step(1, "completed"), step(2, "in_progress")],
    ["The valve leaks since Monday; the pump is fine.", step(2, "completed"), call("terminate", status="success")],
)


async def main() -> None:
    """Print the plan as it changes, and how the run ends."""
    agent = monitor.Supervisor(
        MODEL,
        instructions="Work through the plan, and terminate when it is done.",
        tools=[list_notes, read_note],
        plan=monitor.Plan(["Read every note", "Say what matters"]),
        stop_when=monitor.MaxTurns(20),
    )
    async with agent.stream("What do the notes say?") as run:
        async for event in run:
            if isinstance(event, monitor.events.PlanUpdated):
                print(f"turn {event.turn}, {event.plan}")
    print(f"{run.outcome.reason}: {run.outcome.text}")
    assert run.outcome.ok


asyncio.run(main())
