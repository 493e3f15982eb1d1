import asyncio

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage

import monitor
from monitor.integrations.langchain import GuardMiddleware


async def main() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Let me check the file again. " * 1000)]))
    async with monitor.Guard() as guard:
        agent = create_agent(model, [], middleware=[GuardMiddleware(guard)])
        state = await agent.ainvoke({"messages": [HumanMessage("Is it done?")]})
    last = state["messages"][-1]
    print(last.content)
    print(last.response_metadata["agent_monitor"])


asyncio.run(main())
