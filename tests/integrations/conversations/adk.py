"""Google ADK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.adk.tools import FunctionTool
from google.genai import types

from tests.integrations.drivers import Tool
from tests.integrations.programs.adk import client_of
from tests.integrations.transparent.adk import runner_of

ASKS = "adk_request_confirmation"


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    return await _answers(url, guard, questions, one_session=False)


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    return await _answers(url, guard, questions, one_session=True)


async def _answers(url: str, guard: Any, questions: Sequence[str], *, one_session: bool) -> list[str]:
    client = client_of(url)
    async with client.aio:
        runner = runner_of(client, guard)
        try:
            answers: list[str] = []
            session: Any = None
            for question in questions:
                if session is None or not one_session:
                    session = await runner.session_service.create_session(app_name="app", user_id="user")
                parts = await _parts(runner, session, types.Part(text=question))
                answers.append("".join(part.text or "" for part in parts))
            return answers
        finally:
            await runner.close()


async def _parts(runner: Any, session: Any, *said: types.Part) -> list[types.Part]:
    message = types.Content(role="user", parts=[*said])
    stream = runner.run_async(user_id="user", session_id=session.id, new_message=message)
    return [part async for event in stream if event.content is not None for part in event.content.parts or ()]


async def approval(url: str, guard: Any, tool: Tool) -> str:
    tool.__name__ = "look"
    client = client_of(url)
    async with client.aio:
        runner = runner_of(client, guard)
        runner.app.root_agent.tools.append(FunctionTool(tool, require_confirmation=True))
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        try:
            parts = await _parts(runner, session, types.Part(text="go"))
            while asked := [
                part.function_call for part in parts if part.function_call and part.function_call.name == ASKS
            ]:
                yes = types.FunctionResponse(id=asked[-1].id, name=ASKS, response={"confirmed": True})
                parts = await _parts(runner, session, types.Part(function_response=yes))
            return "".join(part.text or "" for part in parts)
        finally:
            await runner.close()


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval}
