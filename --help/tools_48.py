from dataclasses import dataclass

import anyio
import monitor
from monitor.testing import ScriptedModel, call


@dataclass
class Clients:
    prices: dict[str, int]


@monitor.tool
def price(name: str, context: monitor.ToolContext[Clients]) -> int:
    """What a thing costs.

    Args:
        name: The thing, in the singular.
    """
    if name not in context.deps.prices:
        raise monitor.tools.ToolRetry(f"{name!r} is not known; known are {', '.join(context.deps.prices)}")
    return context.deps.prices[name]


model = ScriptedModel(call("price", name="apples"), call("price", name="apple"), "It costs 3.")
supervisor = monitor.Supervisor(model, tools=[price])
print(anyio.run(lambda: supervisor.run("What is an apple?", deps=Clients({"apple": 3}))).text)  # It costs 3.
