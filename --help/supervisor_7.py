import asyncio

import monitor
from monitor.testing import ScriptedModel, call


def read_file(path: str) -> str:
    """Read a file of the repository.

    Args:
        path: Its path, from the root.
    """
    return "pins the HTTP client to 2.4.1"


# in life: monitor.model("google:gemini-2.5-flash")
model = ScriptedModel(
    ["Reading.", call("read_file", path="requirements.txt")],
    "A small and safe change.",
    [call("emit_value", name="summary", value="Pins the HTTP client."), call("emit_value", name="risk", value=0.2)],
)

reviewer = monitor.Supervisor(
    model,
    instructions=monitor.runs.Instructions("You review changes of ${project}.", variables={"project": "agent-monitor"}),
    tools=[read_file],
    outputs={"summary": str, "risk": float},
    stop_when=monitor.MaxTurns(30) | monitor.Timeout(600),
)

outcome = asyncio.run(reviewer.run("Review requirements.txt"))
print(outcome.reason, outcome.output, outcome.turns)
assert outcome.output == {"summary": "Pins the HTTP client.", "risk": 0.2}
