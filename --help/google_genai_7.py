import asyncio

from google import genai
from google.genai import types

import monitor
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import finish, text

CONFIG = types.GenerateContentConfig(
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    automatic_continuation=False,
)


async def main() -> None:
    answer = [text("Paris is "), text("the capital of France."), finish()]
    with LocalGemini([answer]) as server:  # a stand-in for the service; leave base_url out to talk to the real one
        client = genai.Client(api_key="none", http_options={"base_url": server.base_url})
        stream = client.aio.models.generate_content_stream(
            model="gemini-2.5-flash", contents="Capital of France?", config=CONFIG
        )
        async with monitor.watch(stream, stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
            async for chunk in watched:
                print(chunk.text, end="", flush=True)
        print("\n->", watched.outcome.reason, watched.turn.usage)
        await client.aio.aclose()


asyncio.run(main())
