"""A whole run, offline: a chief asks a reviewer, which must be nudged, and which has its own
limits.

With a key, put `monitor.model("google:gemini-2.5-flash")` in the place of the scripts.
"""

import asyncio

from pydantic import BaseModel, Field

import monitor
from monitor.testing import ScriptedModel, call, capture_events


class Review(BaseModel):
    """The outputs of a review."""

    summary: str
    risk: float = Field(ge=0, le=1, description="0 is harmless, 1 breaks production")


def read_file(path: str) -> str:
    """Read a file of the repository."""
    return {"requirements.txt": "httpclient==2.4.1"}[path]


REVIEWER = ScriptedModel(
    [call("read_file", path="requirement.txt")],  # there is no such file: the model reads why
    [call("read_file", path="requirements.txt")],
    "It pins the HTTP client, which is fine.",  # said, but not emitted
    [call("emit_value", name="summary", value="Pins the HTTP client."), call("emit_value", name="risk", value=0.2)],
)
CHIEF = ScriptedModel([call("review", task="Review requirements.txt")], "Merge it: the risk is 0.2.")


async def main() -> None:
    """Print the events of both runs, then the end."""
    purse = monitor.Budget(tokens=50_000)
    reviewer = monitor.Supervisor(
        REVIEWER, tools=[read_file], outputs=Review, stop_when=monitor.MaxTurns(10) | monitor.Timeout(120)
    )
    chief = monitor.Supervisor(
        CHIEF,
        instructions="You decide what is merged. Ask for a review first.",
        tools=[reviewer.as_tool(name="review", description="A review of a file: a summary and the risk.")],
        stop_when=monitor.MaxTurns(5) | monitor.Timeout(300),
        budget=purse,
    )
    with capture_events() as events:  # of the chief, and of the reviewer within it
        outcome = await chief.run("Shall we merge the change of requirements.txt?")
    print(*events.summary(), sep="\n")
    print(f"\n{outcome.reason}: {outcome.text}")
    print(f"{purse.spent_tokens} tokens, those of the reviewer included")
    assert outcome.ok


asyncio.run(main())
