import asyncio
from collections.abc import AsyncIterator
from typing import Any

from anthropic import AsyncAnthropic

import monitor
from monitor.testing import LocalAnthropic, ReceivedRequest
from monitor.testing.anthropic_steps import events_of

WINDOW = 32_000
SYSTEM = "Be brief."
files = iter(range(1, 41))


def service(request: ReceivedRequest) -> list[dict[str, Any]]:
    """A stand-in for the service: it counts, and reads one file after another."""
    tokens = len(str(request.body["messages"])) // 4
    number = next(files, None)
    calls = [("read_file", {"path": f"src/f{number}.py"})] if number else []
    return events_of("" if calls else "All is read.", calls, tokens=(tokens, 20))


async def main(client: AsyncAnthropic) -> None:
    compaction = monitor.Compaction.claude_code(
        summarizer=monitor.context.Extractive()
    )  # or model=monitor.model("anthropic:claude-haiku-4-5")
    history: list[Any] = [{"role": "user", "content": "Read all files. The report goes to /srv/final.md."}]

    async def asked() -> AsyncIterator[Any]:
        # the helper opens its stream in here, so that a call that is refused is a turn like any other
        async with client.messages.stream(
            model="claude-sonnet-5", max_tokens=1_000, system=SYSTEM, messages=history
        ) as events:
            async for event in events:
                yield event

    async with client, monitor.Guard(window=WINDOW) as guard:
        while True:
            said: list[Any] = []
            async with guard.watch(asked()) as watched:
                async for event in watched:
                    if event.type == "message_stop":
                        said = [block.model_dump() for block in event.message.content]
            turn = watched.turn
            results: list[Any] = []
            if turn.stopped:
                break  # refused, blocked, cut off; or a loop or a limit has ended the run
            for call in turn.tool_calls:
                text = f"# {call.arguments}\n" + "value = compute(value)\n" * 200
                guard.tool_result(call, text)
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": text})
            history += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
            match guard.check():
                case monitor.Stop():
                    break
                case _ if not turn.tool_calls:
                    guard.finish()  # the model has answered
                    break
                case monitor.Compact(why):
                    history, result = await compaction.shorten("anthropic", history, window=WINDOW, instructions=SYSTEM)
                    print(why, "->", result.tokens_after)
                case _:
                    pass  # go on
    print(guard.outcome.reason, guard.outcome.turns, guard.outcome.text)
    assert "/srv/final.md" in str(history)


with LocalAnthropic(service) as server:
    asyncio.run(main(AsyncAnthropic(api_key="none", base_url=server.base_url)))
