from google import genai

import monitor


async def ask(client: genai.Client, question: str) -> str:
    stream = client.aio.models.generate_content_stream(model="gemini-2.5-flash", contents=question)
    async with monitor.watch(stream, stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
        async for chunk in watched:  # google-genai's own chunks
            print(chunk.text)
    watched.outcome.raise_for_reason()  # 401, 429, a lost connection, a block, a loop, a limit: all of them are here
    return watched.outcome.text
