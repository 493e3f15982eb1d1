import asyncio

import monitor
from monitor.testing import ScriptedModel, call


def search(query: str) -> str:
    """Search the web."""
    return f"nothing about {query}"


model = ScriptedModel(
    [call("search", query="a")],
    [call("search", query="b")],
    [call("emit_value", name="answer", value="There is nothing about it.")],  # the last turn
)
purse = monitor.Budget(tokens=100_000, usd=0.50)
supervisor = monitor.Supervisor(
    model,
    tools=[search],
    outputs={"answer": str},
    stop_when=monitor.MaxTurns(2) | monitor.Timeout(600),
    budget=purse,
    prices=monitor.Price(input=0.30, output=2.50),  # US dollars per million tokens
)
outcome = asyncio.run(supervisor.run("Search"))
print(outcome.reason, "after", outcome.recovered_from, "for", outcome.cost_usd, "USD")
assert outcome.recovered_from == "max_turns"
assert purse.spent_usd == outcome.cost_usd
