import asyncio

from openai import AsyncOpenAI

import monitor
from monitor.messages import Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import events_of


async def main() -> None:
    with LocalOpenAI([events_of("Paris.")]) as server:
        async with AsyncOpenAI(
            api_key="none", base_url=server.base_url, max_retries=0
        ) as client:  # any compatible server
            model = monitor.model("openai:some-model", client=client)
            request = ModelRequest(
                (UserMessage((Text("Capital of France?"),)),), instructions="Be brief.", settings={"temperature": 0}
            )
            async with monitor.watch(model.stream(request)) as watched:
                async for _ in watched:
                    pass
    print(model.name, "->", watched.turn.text)


asyncio.run(main())
