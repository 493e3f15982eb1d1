import asyncio
from typing import Any

from google import genai
from google.genai import types

import monitor
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing.gemini_steps import events_of, usage

WINDOW = 32_000
SYSTEM = "Be brief."
files = iter(range(1, 41))


def service(request: ReceivedRequest) -> list[dict[str, Any]]:
    """A stand-in for the service: it counts, and reads one file after another."""
    tokens = len(str(request.body["contents"])) // 4
    number = next(files, None)
    calls = [("read_file", {"path": f"src/f{number}.py"})] if number else []
    return events_of("" if calls else "All is read.", calls, tokens=usage(tokens, output=20))


async def main(client: genai.Client) -> None:
    compaction = monitor.Compaction.gemini_cli(
        summarizer=monitor.context.Extractive()
    )  # or model=monitor.model("google:gemini-2.5-flash-lite")
    history = [types.Content(role="user", parts=[types.Part(text="Read all files. The report goes to /srv/final.md.")])]
    config = types.GenerateContentConfig(system_instruction=SYSTEM)
    async with client.aio as asked, monitor.Guard(window=WINDOW) as guard:
        while True:
            said: list[types.Part] = []
            stream = asked.models.generate_content_stream(model="gemini-2.5-flash", contents=history, config=config)
            async with guard.watch(stream) as watched:
                async for chunk in watched:
                    said += (
                        chunk.candidates[0].content.parts or []
                        if chunk.candidates and chunk.candidates[0].content
                        else []
                    )
            turn = watched.turn
            results: list[types.Part] = []
            if turn.stopped:
                break  # refused, blocked, cut off; or a loop or a limit has ended the run
            for call in turn.tool_calls:
                text = f"# {call.arguments}\n" + "value = compute(value)\n" * 200
                guard.tool_result(call, text)
                results.append(types.Part.from_function_response(name=call.name, response={"result": text}))
            history += [types.Content(role="model", parts=said), types.Content(role="user", parts=results)]
            match guard.check():
                case monitor.Stop():
                    break
                case _ if not turn.tool_calls:
                    guard.finish()  # the model has answered
                    break
                case monitor.Compact(why):
                    shorter, result = await compaction.shorten("gemini", history, window=WINDOW, instructions=SYSTEM)
                    history = [types.Content.model_validate(one) for one in shorter]
                    print(why, "->", result.tokens_after)
                case _:
                    pass  # go on
    print(guard.outcome.reason, guard.outcome.turns, guard.outcome.text)
    assert "/srv/final.md" in str(history)


with LocalGemini(service) as server:
    options = types.HttpOptions(base_url=server.base_url)
    asyncio.run(main(genai.Client(api_key="none", http_options=options)))
