import asyncio

import monitor
from monitor.testing import ScriptedModel, call


async def build() -> str:
    """Run the build."""
    return "".join(f"{'KeyError: x' if line == 50_000 else 'fine'}\n" for line in range(1, 100_001))


async def main() -> None:
    store = monitor.tools.InMemoryArtifacts()  # or FolderArtifacts("artifacts")
    model = ScriptedModel(call("build"), call("terminate", status="success"))
    supervisor = monitor.Supervisor(model, tools=[build], results=monitor.runs.Results(artifacts=store))
    await supervisor.run("Build it.")
    answer = model.requests[1].messages[-1]
    assert isinstance(answer, monitor.AssistantMessage)
    (result,) = answer.results
    lines = result.text.splitlines()
    print(lines[0])  # [100,000 lines, 500,006 characters]
    print(*(line for line in lines if "KeyError" in line))  # line 50000: KeyError: x
    assert result.artifact is not None
    print(result.truncated, await store.read(result.artifact) == await build())  # True True


asyncio.run(main())
