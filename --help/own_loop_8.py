import asyncio

from google import genai
from google.genai import types

import monitor

TASK = "What did we pay for paper in 2026?"
SEARCH = types.FunctionDeclaration(
    name="search",
    description="Search the archive.",
    parameters_json_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


def search(query: str) -> str:
    return f"nothing found for {query}"


async def main() -> None:
    history = [types.Content(role="user", parts=[types.Part(text=TASK)])]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[SEARCH])])
    limits = monitor.MaxTurns(30) | monitor.Timeout(600) | monitor.IdleTimeout(60)
    async with (
        genai.Client().aio as client,
        monitor.Guard(stop_when=limits, judge="google:gemini-2.5-flash-lite", task=TASK) as guard,
    ):
        while True:
            said: list[types.Part] = []
            results: list[types.Part] = []
            stream = client.models.generate_content_stream(model="gemini-2.5-flash", contents=history, config=config)
            async with guard.watch(stream) as watched:
                async for chunk in watched:  # google-genai's own chunks
                    content = chunk.candidates[0].content if chunk.candidates else None
                    said += content.parts or [] if content else []
            turn = watched.turn
            if turn.stopped:
                break  # the call failed, was blocked or was cut off; or a loop or a limit has ended the run
            for call in turn.tool_calls:
                answer = search(**call.arguments)
                guard.tool_result(call, answer)
                results.append(types.Part.from_function_response(name=call.name, response={"result": answer}))
            if isinstance(guard.check(), monitor.Stop):
                break  # a loop or a limit, seen between turns
            if not turn.tool_calls:
                guard.finish()  # the model has answered: that was the goal
                break
            history += [types.Content(role="model", parts=said), types.Content(role="user", parts=results)]
    outcome = guard.outcome
    print(outcome.text if outcome.ok else f"{outcome.reason}: {outcome.detail}")


asyncio.run(main())
