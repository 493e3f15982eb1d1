import anyio
from monitor import Supervisor
from monitor.shared import SharedBudget, SQLiteBudgets
from monitor.testing import ScriptedModel


async def main() -> None:
    store = SQLiteBudgets(":memory:")
    await store.set_limit("research", tokens=5_000_000)
    budget = SharedBudget(store, "research/night")
    outcome = await Supervisor(ScriptedModel("Rayleigh scattering."), budget=budget).run("Why is the sky blue?")
    print(outcome.reason.value)
    for state in await store.states("research"):
        print(state.name, state.spent.tokens > 0, state.held.tokens, state.tokens)  # research True 0 5000000, ...
    await store.aclose()


anyio.run(main)
