import asyncio

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types

import monitor
from monitor.integrations.adk import GuardPlugin, Stopped
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import Repeat, text


async def main() -> None:
    with LocalGemini([[Repeat(text("Let me check the file again. "), 1000)]]) as server:
        model = Gemini(model="gemini-2.5-flash", base_url=server.base_url, client_kwargs={"api_key": "none"})
        agent = LlmAgent(name="one", model=model)
        question = types.Content(role="user", parts=[types.Part(text="Is it done?")])
        async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
            runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[GuardPlugin(guard)]))
            session = await runner.session_service.create_session(app_name="app", user_id="user")
            try:
                async for event in runner.run_async(user_id="user", session_id=session.id, new_message=question):
                    print(event.content)
            except Stopped as stopped:
                print(stopped)
                print(stopped.turn.text if stopped.turn else "")
    print(guard.outcome.reason, guard.outcome.usage)


asyncio.run(main())
