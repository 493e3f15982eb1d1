import asyncio
from typing import Any

from anthropic import AsyncAnthropic

import monitor
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import finish, say, start, think

QUESTION: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Capital of France?"}],
}


async def main() -> None:
    answer = [start(), *think("An easy one."), *say("Paris is ", "the capital of France.", index=1), *finish()]
    with LocalAnthropic([answer]) as server:  # a stand-in for the service; leave base_url out to talk to the real one
        async with AsyncAnthropic(api_key="none", base_url=server.base_url) as client:
            stream = client.messages.create(**QUESTION, stream=True)
            async with monitor.watch(stream, stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
                async for event in watched:
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        print(event.delta.text, end="", flush=True)
            print("\n->", watched.outcome.reason, watched.turn.usage)

            async with client.messages.stream(**QUESTION) as helper, monitor.watch(helper) as watched:
                async for event in watched:
                    if event.type == "text":
                        print(event.text, end="", flush=True)
            print("\n->", watched.outcome.reason, helper.current_message_snapshot.stop_reason)


asyncio.run(main())
