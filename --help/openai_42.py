from typing import Any

from openai import OpenAI

import monitor
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import response_events_of

asks = response_events_of("", [("search", {"q": "the same as ever"})])
history: list[Any] = [{"role": "user", "content": "Find it."}]

with LocalOpenAI([asks]) as server, monitor.Guard() as guard:  # a model that asks for the same thing again and again
    client = OpenAI(api_key="none", base_url=server.base_url, timeout=60)
    while True:
        # a function that asks: so a refused request ends the run as well, and raises nothing
        with guard.watch(
            lambda: client.responses.create(model="gpt-5", input=history, stream=True, store=False)
        ) as watched:
            for event in watched:
                if event.type == "response.output_item.done":
                    history.append(event.item.to_dict())
        turn = watched.turn
        if turn.stopped:
            break  # refused, blocked, cut off; or a loop or a limit has ended the run
        for call in turn.tool_calls:
            guard.tool_result(call, "nothing found")
            history.append({"type": "function_call_output", "call_id": call.id, "output": "nothing found"})
        if isinstance(guard.check(), monitor.Stop):
            break
        if not turn.tool_calls:
            guard.finish()  # the model has answered
            break

print(guard.outcome.reason, "-", guard.outcome.detail)
