import asyncio

import monitor
from monitor.chunks import UsageReport
from monitor.testing import ScriptedModel, call

SENT = UsageReport(input_tokens=10_000, output_tokens=50)  # what the provider reports for each call


def agent(request: monitor.models.ModelRequest) -> object:  # a model that asks in other words each time
    said = str(request.messages)
    if "Its note, quoted" in said:  # until it is told
        return ["The archive has no figures for May. The report of June says 31 mm.", SENT]
    return [call("search", query=f"rainfall, wording {len(request.messages)}"), SENT]


JUDGE = """{"analysis": "Seven searches in other words got the same page.", "confidence": 0.8,
 "repeats": "a search that finds nothing", "advice": "Stop searching the archive; read the report of June.",
 "ask_person": false}"""


async def search(query: str) -> str:
    """Search the archive."""
    await asyncio.sleep(0.01)
    return "No results. Try other words."


async def main() -> None:
    model = ScriptedModel(agent, judge_replies=[JUDGE])  # monitor.model("google:gemini-2.5-flash")
    supervisor = monitor.Supervisor(model, tools=[search], detectors=None)
    async with supervisor.stream("How much did it rain in May?") as run:
        async for event in run:
            if isinstance(event, monitor.events.JudgeAnswered):
                print(f"turn {event.turn}: {event.judgement.confidence} - {event.judgement.analysis}")
            if isinstance(event, monitor.events.Nudged):
                print(f"turn {event.turn}: the agent is told: {event.text}")
    outcome = run.outcome
    print(outcome.reason, "-", outcome.text)
    print("the judge used", outcome.judge_usage.total_tokens, "tokens beside", outcome.usage.total_tokens)
    assert outcome.ok and outcome.turns < 12


asyncio.run(main())
