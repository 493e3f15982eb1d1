import asyncio

from openai import AsyncOpenAI

import monitor
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text


async def main() -> None:
    answer = [text("Paris is "), text("the capital of France."), finish()]
    with LocalOpenAI([answer]) as server:  # a stand-in for the service; leave base_url out to talk to the real one
        async with AsyncOpenAI(api_key="none", base_url=server.base_url) as client:
            stream = client.chat.completions.create(
                model="gpt-5",
                messages=[{"role": "user", "content": "Capital of France?"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            async with monitor.watch(stream, stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
                async for chunk in watched:
                    print(chunk.choices[0].delta.content or "", end="", flush=True)
    print("\n->", watched.outcome.reason, watched.turn.usage)


asyncio.run(main())
