import asyncio

from strands import Agent
from strands.models.openai import OpenAIModel

import monitor
from monitor.integrations.strands import GuardPlugin
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, text


async def main() -> None:
    with LocalOpenAI([[Repeat(text("Let me check the file again. "), 1000)]]) as server:
        model = OpenAIModel(client_args={"api_key": "none", "base_url": server.base_url}, model_id="local")
        async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
            agent = Agent(model, plugins=[GuardPlugin(guard)], callback_handler=None)
            result = await agent.invoke_async("Is it done?")
    print(result.stop_reason, result.message)
    print(result.state["agent_monitor"])


asyncio.run(main())
