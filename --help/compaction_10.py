import asyncio

import monitor
from monitor.testing import ScriptedModel, call

numbers = iter(range(1, 31))


def agent(request: monitor.models.ModelRequest) -> object:  # stands for a model: it reads one file after another
    number = next(numbers, None)
    return [call("read_file", path=f"src/f{number}.py")] if number else "All is read."


def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "value = compute(value)\n" * 200


async def main() -> None:
    supervisor = monitor.Supervisor(
        ScriptedModel(agent),  # monitor.model("google:gemini-2.5-flash")
        tools=[read_file],
        window=32_000,  # left out where the table of models knows it
        compaction=monitor.Compaction.pi(summarizer=monitor.context.Extractive()),  # left out: Compaction.default()
    )
    async with supervisor.stream("Read all files. The report goes to /srv/reports/final.md.") as run:
        async for event in run:
            if isinstance(event, monitor.events.CompactionFinished):
                print(f"turn {event.turn}: {event.tokens_before:,} -> {event.tokens_after:,} tokens")
    print(run.outcome.reason, "-", run.outcome.text)
    print(len(run.history), "messages are shown")
    assert run.outcome.reason == "goal"


asyncio.run(main())
